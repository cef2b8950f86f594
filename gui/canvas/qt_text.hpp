// Conversion of UTF-8 text to QString.
#pragma once

#include <QString>
#include <string_view>

namespace echelon::gui {

[[nodiscard]] inline QString qt_text(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

}  // namespace echelon::gui
