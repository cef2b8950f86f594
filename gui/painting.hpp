// What painted views share: sentences, hatching, legends, axes with round numbers.
#pragma once

#include <QColor>
#include <QFont>
#include <QFontMetricsF>
#include <QPainter>
#include <QPalette>
#include <QRectF>
#include <QString>
#include <vector>

namespace echelon::gui {

/// `sentence` in the middle of an area with nothing to show, folded to its width.
void draw_sentence(QPainter& painter, const QRectF& area, const QPalette& palette,
                   const QString& sentence);
/// One line, cut with an ellipsis where it is too long.
void draw_line_of_text(QPainter& painter, const QRectF& area, const QString& text,
                       int flags = Qt::AlignLeft | Qt::AlignVCenter);

/// Diagonal stripes of that colour over nothing.
[[nodiscard]] QBrush striped(const QColor& colour);
[[nodiscard]] QColor faint(QColor colour, double opacity);

/// Smaller where the width is short.
[[nodiscard]] QFont legend_font(const QFont& font, double width);

struct LegendEntry {
  QString name;
  QBrush fill;
};
/// In as many rows as the width of `area` needs, in legend_font; returns the height. Only measures
/// without a painter.
double draw_legend(QPainter* painter, const QRectF& area, const QFont& font, const QColor& text,
                   const std::vector<LegendEntry>& entries);

/// 1, 2 or 5 times a power of ten, so that at most `most` of them lie in `range`.
[[nodiscard]] double round_interval(double range, int most);

}  // namespace echelon::gui
