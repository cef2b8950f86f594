// Shared painting functions: messages, hatching, legends, round axis intervals.
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

/// Draws the message of an empty view, wrapped and centred.
void draw_message(QPainter& painter, const QRectF& area, const QPalette& palette,
                  const QString& message);
/// Draws one line, elided if it is too long.
void draw_elided_text(QPainter& painter, const QRectF& area, const QString& text,
                      int flags = Qt::AlignLeft | Qt::AlignVCenter);

/// `words` where they fit into `width`; else what stands before their last comma that does. A first
/// clause that is too wide as well is elided.
[[nodiscard]] QString clauses_within(const QString& words, const QFontMetricsF& metrics,
                                     double width);

/// Diagonal stripes on a transparent background.
[[nodiscard]] QBrush hatched(const QColor& colour);
[[nodiscard]] QColor with_opacity(QColor colour, double opacity);

/// A smaller font for narrow views.
[[nodiscard]] QFont legend_font(const QFont& font, double width);

struct LegendEntry {
  QString name;
  QBrush fill;
};
/// Draws a legend in as many rows as the width needs, in legend_font(), and returns its height.
/// Without a painter it only measures.
double draw_legend(QPainter* painter, const QRectF& area, const QFont& font, const QColor& text,
                   const std::vector<LegendEntry>& entries);

/// 1, 2 or 5 times a power of ten, such that at most `max_count` intervals fit in `range`.
[[nodiscard]] double round_interval(double range, int max_count);

}  // namespace echelon::gui
