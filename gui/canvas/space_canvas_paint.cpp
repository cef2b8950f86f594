// Painting over the chart: points, memory limit, the marked and hovered plans.
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/space_canvas.hpp"
#include "gui/canvas/theme.hpp"
#include "report/format.hpp"
#include "report/trade_offs.hpp"

namespace echelon::gui {
namespace {

QPainterPath star(QPointF centre, double radius) {
  QPainterPath path;
  constexpr double kPi = 3.14159265358979323846;
  for (int i = 0; i < 10; ++i) {
    const double r = i % 2 == 0 ? radius : 0.45 * radius;
    const double angle = kPi * (i / 5.0 - 0.5);
    const QPointF at = centre + r * QPointF(std::cos(angle), std::sin(angle));
    i == 0 ? path.moveTo(at) : path.lineTo(at);
  }
  path.closeSubpath();
  return path;
}

}  // namespace

/// The memory limit and the area beyond it.
void SpaceCanvas::draw_limits(QPainter& painter) const {
  const QRectF area = chart()->plotArea();
  const QColor colour = error_colour(palette());
  QColor beyond = colour;
  beyond.setAlphaF(0.10F);
  painter.setPen(QPen(colour, 1.2, Qt::DashLine));
  if (const auto limit = limit_of(figure_y_)) {
    const double y = pixel({0, *limit / scale_y_.scale}).y();
    QRectF wrong = area;
    if (figure_y_ == Metric::memory) {
      wrong.setBottom(std::max(y, area.top()));
    } else {
      wrong.setTop(std::min(y, area.bottom()));
    }
    if (wrong.height() > 0) painter.fillRect(wrong & area, beyond);
    if (area.top() <= y && y <= area.bottom()) {
      painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y));
    }
  }
  if (const auto limit = limit_of(figure_x_)) {
    const double x = pixel({*limit / scale_x_.scale, 0}).x();
    QRectF wrong = area;
    if (figure_x_ == Metric::memory) {
      wrong.setLeft(std::max(x, area.left()));
    } else {
      wrong.setRight(std::min(x, area.right()));
    }
    if (wrong.width() > 0) painter.fillRect(wrong & area, beyond);
    if (area.left() <= x && x <= area.right()) {
      painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()));
    }
  }
}

void SpaceCanvas::draw_point(QPainter& painter, const Point& point, QPointF at) const {
  QColor fill = series_colour(0);
  if (point.miss != nullptr) {
    painter.setPen(QPen(palette().color(QPalette::PlaceholderText), 1.4));
    painter.setBrush(Qt::NoBrush);
    painter.drawEllipse(at, 4, 4);
    return;
  }
  if (point.plan.rank == 1) {
    painter.setPen(QPen(palette().color(QPalette::Base), 1));
    painter.setBrush(series_colour(5));
    painter.drawPath(star(at, 9.5));
    return;
  }
  painter.setPen(point.plan.tied ? QPen(series_colour(5), 1.6) : QPen(Qt::NoPen));
  if (point.plan.on_front) {
    painter.setBrush(series_colour(1));
    painter.drawEllipse(at, 4.2, 4.2);
    return;
  }
  fill.setAlphaF(point.plan.tied ? 0.9F : 0.55F);
  painter.setBrush(fill);
  painter.drawEllipse(at, 3.2, 3.2);
}

void SpaceCanvas::draw_points(QPainter& painter) const {
  const QRectF area = chart()->plotArea().adjusted(-1, -1, 1, 1);
  std::set<std::pair<int, int>> taken;  // plain points on the same pixel are drawn once
  for (const Point& point : points_) {
    const QPointF at = pixel(point.at);
    if (!area.contains(at)) continue;
    const bool plain = !point.plan.tied && !point.plan.on_front && point.miss == nullptr;
    if (plain && !taken.emplace(static_cast<int>(at.x()), static_cast<int>(at.y())).second)
      continue;
    draw_point(painter, point, at);
  }
}

/// In the margins, where they hide no point: the limit above, the number of plans out of view
/// below.
void SpaceCanvas::draw_captions(QPainter& painter) const {
  const QRectF area = chart()->plotArea();
  const double line = fontMetrics().height();
  const QRectF range = shown_range();
  const auto within = [](const std::optional<double>& limit, double scale, double low,
                         double high) {
    return limit && low <= *limit / scale && *limit / scale <= high;
  };
  if (within(limit_of(figure_x_), scale_x_.scale, range.left(), range.right()) ||
      within(limit_of(figure_y_), scale_y_.scale, range.top(), range.bottom())) {
    painter.setPen(error_colour(palette()));
    draw_elided_text(painter, QRectF(area.left(), area.top() - line - 2, area.width(), line),
                     QString::fromStdString("- - " + limit_text(space_->resolved.request)),
                     Qt::AlignRight | Qt::AlignVCenter);
  }
  const auto beyond = std::ranges::count_if(points_, [&](const Point& point) {
    return !area.adjusted(-1, -1, 1, 1).contains(pixel(point.at));
  });
  if (beyond == 0) return;
  const double title = fontMetrics().horizontalAdvance(axis_x_->titleText());
  const double left = area.center().x() + title;
  const QRectF right(left, height() - line - 10.0, area.right() - left, line);
  const QString words = QString::fromStdString(counted(beyond, "more plan"));
  const QString whole = words + " out of view (F shows all)";
  const bool fits = fontMetrics().horizontalAdvance(whole) <= right.width();
  painter.setPen(palette().color(QPalette::PlaceholderText));
  draw_elided_text(painter, right, fits ? whole : words + ": F", Qt::AlignRight | Qt::AlignVCenter);
}

void SpaceCanvas::drawForeground(QPainter* painter, const QRectF& rect) {
  QChartView::drawForeground(painter, rect);
  if (!space_ || points_.empty()) return;
  constexpr double kMark = 11;  // radius of the ring, which may reach into the margins
  painter->save();
  painter->resetTransform();
  painter->setRenderHint(QPainter::Antialiasing);
  draw_captions(*painter);
  painter->setClipRect(chart()->plotArea().adjusted(-kMark - 1, -kMark - 1, kMark + 1, kMark + 1));
  draw_limits(*painter);
  draw_points(*painter);
  painter->setBrush(Qt::NoBrush);
  if (const std::optional<QPointF> marked = marked_pixel()) {
    painter->setPen(QPen(palette().color(QPalette::WindowText), 2));
    painter->drawEllipse(*marked, kMark, kMark);
    if (!pixel_of(marked_->plan)) {
      painter->setBrush(palette().color(QPalette::WindowText));
      painter->drawEllipse(*marked, 3, 3);
    }
  }
  if (hovered_) {
    painter->setBrush(Qt::NoBrush);
    painter->setPen(QPen(palette().color(QPalette::Highlight), 2));
    painter->drawEllipse(pixel(points_[*hovered_].at), 7, 7);
  }
  painter->restore();
}

}  // namespace echelon::gui
