// Exports a view as PNG (two pixels per device-independent pixel) or SVG.
#pragma once

#include <QString>
#include <QWidget>

#include "core/base/result.hpp"

namespace echelon::gui {

/// The suffix of `path` selects the format. An existing file is replaced atomically.
[[nodiscard]] Status export_image(QWidget& view, const QString& path);

}  // namespace echelon::gui
