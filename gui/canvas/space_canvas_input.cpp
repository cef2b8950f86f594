// Mouse and keyboard of the scatter chart.
#include <QKeyEvent>
#include <QMouseEvent>
#include <QToolTip>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>

#include "gui/canvas/space_canvas.hpp"
#include "gui/canvas/theme.hpp"

namespace echelon::gui {
namespace {

constexpr double kHitRadius = 8;  ///< pixels within which a point is hit
constexpr int kDragged = 5;       ///< pixels that turn a click into a rubber band
constexpr double kNotch = 0.8;    ///< factor on the range per notch of the wheel

}  // namespace

void SpaceCanvas::zoom(double factor, QPointF where) {
  if (points_.empty()) return;
  const QRectF before = shown_range();
  const QPointF fixed = unit(where);
  const QRectF after(fixed + factor * (before.topLeft() - fixed), factor * before.size());
  constexpr double kDeepest = 1e-4;  // axis labels still differ
  if (after.width() < kDeepest * whole_.width() || after.height() < kDeepest * whole_.height())
    return;
  zoomed_ = true;
  // Not beyond all points.
  const bool all = after.width() > whole_.width() && after.height() > whole_.height();
  set_range(all ? whole_ : after);
}

void SpaceCanvas::hover(QPointF where) {
  const Point* point = nearest(where, kHitRadius);
  const auto now = point == nullptr ? std::optional<std::size_t>()
                                    : static_cast<std::size_t>(point - points_.data());
  if (now == hovered_) return;
  hovered_ = now;
  viewport()->setCursor(hovered_ ? Qt::PointingHandCursor : Qt::CrossCursor);
  viewport()->update();
  if (!hovered_) return QToolTip::hideText();
  QToolTip::showText(viewport()->mapToGlobal(where.toPoint()), point_tooltip(*point), viewport());
}

void SpaceCanvas::mouseMoveEvent(QMouseEvent* event) {
  if (!pressed_) return hover(event->position());
  const QRect dragged = QRect(*pressed_, event->position().toPoint()).normalized();
  if (std::max(dragged.width(), dragged.height()) < kDragged) return;
  band_->setGeometry(dragged & chart()->plotArea().toRect());
  band_->show();
}

void SpaceCanvas::mousePressEvent(QMouseEvent* event) {
  setFocus(Qt::MouseFocusReason);
  if (event->button() == Qt::LeftButton) pressed_ = event->position().toPoint();
  if (event->button() != Qt::RightButton) return;
  if (zoom_history_.empty()) return fit();
  set_range(zoom_history_.back());
  zoom_history_.pop_back();
}

void SpaceCanvas::mouseReleaseEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton || !pressed_) return;
  const QRect dragged = QRect(*pressed_, event->position().toPoint()).normalized();
  pressed_.reset();
  band_->hide();
  if (std::max(dragged.width(), dragged.height()) < kDragged) {
    const Point* point = nearest(event->position(), kHitRadius);
    if (point != nullptr) Q_EMIT chosen(*point->plan.candidate);
    return;
  }
  const QRectF inside = QRectF(dragged) & chart()->plotArea();
  if (inside.width() < kDragged || inside.height() < kDragged || points_.empty()) return;
  zoom_history_.push_back(shown_range());
  zoomed_ = true;
  set_range(QRectF(unit(inside.topLeft()), unit(inside.bottomRight())).normalized());
}

void SpaceCanvas::wheelEvent(QWheelEvent* event) {
  constexpr double kPerNotch = 120;  // Qt's eighths of a degree
  zoom(std::pow(kNotch, event->angleDelta().y() / kPerNotch), event->position());
  event->accept();
}

/// Starts from the marked plan, or else from an end of the front.
void SpaceCanvas::step_along_front(int by) {
  std::vector<const Point*> front;
  for (const Point& point : points_) {
    if (point.plan.on_front) front.push_back(&point);
  }
  if (front.empty()) return;
  std::ranges::sort(front, {}, [](const Point* point) {
    return point->plan.candidate->prediction.time.step.in(kSecond);
  });
  const auto marked = std::ranges::find_if(front, [&](const Point* point) {
    return marked_ && point->plan.candidate->plan == marked_->plan;
  });
  const auto count = static_cast<std::ptrdiff_t>(front.size());
  const std::ptrdiff_t next =
      marked == front.end() ? (by > 0 ? 0 : count - 1)
                            : std::clamp<std::ptrdiff_t>(marked - front.begin() + by, 0, count - 1);
  const Candidate& candidate = *front[static_cast<std::size_t>(next)]->plan.candidate;
  if (marked_ && marked_->plan == candidate.plan) return;
  mark(candidate);
  Q_EMIT chosen(candidate);
}

void SpaceCanvas::keyPressEvent(QKeyEvent* event) {
  const QPointF centre = chart()->plotArea().center();
  const Candidate* winner = space_ ? space_->report.winner() : nullptr;
  switch (event->key()) {
    case Qt::Key_F: return fit_more();
    case Qt::Key_Plus:
    case Qt::Key_Equal: return zoom(kNotch, centre);
    case Qt::Key_Minus: return zoom(1 / kNotch, centre);
    case Qt::Key_Right:
    case Qt::Key_Down: return step_along_front(1);
    case Qt::Key_Left:
    case Qt::Key_Up: return step_along_front(-1);
    case Qt::Key_Home:
      if (winner == nullptr) return;
      mark(*winner);
      Q_EMIT chosen(*winner);
      return;
    default: QChartView::keyPressEvent(event);
  }
}

void SpaceCanvas::resizeEvent(QResizeEvent* event) {
  QChartView::resizeEvent(event);
  if (!points_.empty()) set_range(shown_range());  // the number of labels changes
}

void SpaceCanvas::leaveEvent(QEvent* event) {
  QChartView::leaveEvent(event);
  if (!hovered_) return;
  hovered_.reset();
  viewport()->update();
}

void SpaceCanvas::changeEvent(QEvent* event) {
  QChartView::changeEvent(event);
  if (event->type() != QEvent::PaletteChange) return;
  style_chart(*chart(), palette());
  front_->setPen(QPen(series_colour(1), 1.5));
}

}  // namespace echelon::gui
