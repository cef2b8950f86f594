// The light and dark themes, and colours that mean the same in every view.
#pragma once

#include <QApplication>
#include <QChart>
#include <QColor>
#include <QPalette>

namespace echelon::gui {

enum class Theme { system, light, dark };
[[nodiscard]] QString theme_name(Theme theme);

/// Sets the Fusion style and the palette of `theme`.
void apply_theme(QApplication& application, Theme theme);
[[nodiscard]] bool is_dark(const QPalette& palette);

/// Eight colours that are distinguishable with any colour vision, then lighter variants.
/// Source: Okabe and Ito, Color Universal Design (2008).
[[nodiscard]] QColor series_colour(int index);
/// Colour of text on a filled area of that colour.
[[nodiscard]] QColor text_on(const QColor& fill);
/// Good, warning and error colours, legible on the palette's background.
[[nodiscard]] QColor good_colour(const QPalette& palette);
[[nodiscard]] QColor warning_colour(const QPalette& palette);
[[nodiscard]] QColor error_colour(const QPalette& palette);

/// Applies `palette` to the background, axes, labels and legend of a chart.
void style_chart(QChart& chart, const QPalette& palette);

}  // namespace echelon::gui
