// Colours: light and dark, and the same colour for the same thing in every view.
#pragma once

#include <QApplication>
#include <QChart>
#include <QColor>
#include <QPalette>

namespace echelon::gui {

enum class Theme { system, light, dark };

/// Fusion in the palette of `theme`; everything drawn afterwards follows.
void apply_theme(QApplication& application, Theme theme);
[[nodiscard]] bool is_dark(const QPalette& palette);

/// Eight colours that people with any colour vision can tell apart, then lighter ones again.
/// Source: Okabe and Ito, Color Universal Design (2008).
[[nodiscard]] QColor series_colour(int index);
/// Of text on a filled area of that colour.
[[nodiscard]] QColor text_on(const QColor& fill);
/// What is good, doubtful and wrong, legible on the palette's background.
[[nodiscard]] QColor good_colour(const QPalette& palette);
[[nodiscard]] QColor warning_colour(const QPalette& palette);
[[nodiscard]] QColor error_colour(const QPalette& palette);

/// Background, axes, labels and legend of a chart in the colours of `palette`.
void dress_chart(QChart& chart, const QPalette& palette);

}  // namespace echelon::gui
