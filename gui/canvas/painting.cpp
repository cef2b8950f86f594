#include "gui/canvas/painting.hpp"

#include <QFontInfo>

#include <algorithm>
#include <cmath>

namespace echelon::gui {

void draw_message(QPainter& painter, const QRectF& area, const QPalette& palette,
                  const QString& message) {
  constexpr double kMargin = 12;
  painter.setPen(palette.color(QPalette::PlaceholderText));
  painter.drawText(area.adjusted(kMargin, kMargin, -kMargin, -kMargin),
                   Qt::AlignCenter | Qt::TextWordWrap, message);
}

void draw_elided_text(QPainter& painter, const QRectF& area, const QString& text, int flags) {
  const QString cut =
      painter.fontMetrics().elidedText(text, Qt::ElideRight, static_cast<int>(area.width()));
  painter.drawText(area, flags | Qt::TextSingleLine, cut);
}

QString clauses_within(const QString& words, const QFontMetricsF& metrics, double width) {
  QString shown = words;
  while (metrics.horizontalAdvance(shown) > width) {
    const auto comma = shown.lastIndexOf(", ");
    if (comma < 0) return metrics.elidedText(shown, Qt::ElideRight, width);
    shown.truncate(comma);
  }
  return shown;
}

QBrush hatched(const QColor& colour) { return {colour, Qt::BDiagPattern}; }

QColor with_opacity(QColor colour, double opacity) {
  colour.setAlphaF(static_cast<float>(opacity));
  return colour;
}

QFont legend_font(const QFont& font, double width) {
  constexpr double kShort = 460;
  QFont out = font;
  if (width < kShort) out.setPixelSize(std::max(8, QFontInfo(font).pixelSize() - 4));
  return out;
}

double draw_legend(QPainter* painter, const QRectF& area, const QFont& font, const QColor& text,
                   const std::vector<LegendEntry>& entries) {
  const QFont own = legend_font(font, area.width());
  const QFontMetricsF metrics(own);
  const double line = metrics.height() + 3;
  const double swatch = metrics.ascent();
  constexpr double kGap = 5;
  constexpr double kBetween = 14;
  double x = area.left();
  double y = area.top();
  if (painter != nullptr) painter->setFont(own);
  for (const LegendEntry& entry : entries) {
    const double width = swatch + kGap + metrics.horizontalAdvance(entry.name);
    if (x > area.left() && x + width > area.right()) {
      x = area.left();
      y += line;
    }
    if (painter != nullptr) {
      const QRectF box(x, y + (line - swatch) / 2, swatch, swatch);
      painter->fillRect(box, entry.fill);
      painter->setPen(text);
      painter->drawText(QRectF(box.right() + kGap, y, area.right() - box.right() - kGap, line),
                        Qt::AlignLeft | Qt::AlignVCenter | Qt::TextSingleLine, entry.name);
    }
    x += width + kBetween;
  }
  if (painter != nullptr) painter->setFont(font);
  return y + line - area.top();
}

double round_interval(double range, int max_count) {
  if (range <= 0) return 1;
  const double least = range / std::max(1, max_count);
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= least * (1 - 1e-9)) return step * power;
  }
  return 10 * power;
}

}  // namespace echelon::gui
