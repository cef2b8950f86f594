// A view as a file: PNG with two pixels per device-independent one, or SVG.
#pragma once

#include <QString>
#include <QWidget>

#include "core/base/result.hpp"

namespace echelon::gui {

/// The suffix of `path` decides. An old file is replaced whole or not at all.
[[nodiscard]] Status save_picture(QWidget& view, const QString& path);

}  // namespace echelon::gui
