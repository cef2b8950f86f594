// Keys, mouse and tooltips of the scaling curve.
#include <QKeyEvent>
#include <QMouseEvent>
#include <algorithm>
#include <cmath>

#include "core/base/parse_quantity.hpp"
#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/views/scaling_view.hpp"
#include "report/format.hpp"

namespace echelon::gui {

QString ScalingView::point_tooltip(const ScalingPoint& point) const {
  const QString gpus = qt_text(counted(point.gpus, "GPU"));
  if (!point.best) return tr("%1: no plan\n%2").arg(gpus, qt_text(point.why_none));
  const double ideal = ideal_rate(points_, point.gpus);
  QString text = tr("%1: %2 tokens/s, %3 of ideal, MFU %4")
                     .arg(gpus, qt_text(human_count(point.best->tokens_per_second)),
                          qt_text(percent(point.best->tokens_per_second / ideal)),
                          qt_text(percent(point.best->candidate.prediction.mfu)));
  text +=
      point.best->per_million
          ? tr("\n%1 USD per million tokens").arg(point.best->per_million->in(kDollar), 0, 'g', 3)
          : tr("\n%1 of GPU time per million tokens").arg(qt_text(duration(point.best->gpu_time)));
  text += "\n" + qt_text(described(point.best->candidate.plan, TextStyle{}));
  if (point.same) {
    text += tr("\nthis layout with dp %1: %2 tokens/s")
                .arg(point.same->candidate.plan.dp)
                .arg(qt_text(human_count(point.same->tokens_per_second)));
  }
  return text + tr("\nClick or press Enter to open this plan.");
}

std::optional<int> ScalingView::nearest(const QPointF& at) const {
  constexpr double kNear = 14;  // pixels
  std::optional<int> found;
  double least = kNear;
  for (int i = 0; i < static_cast<int>(points_.size()); ++i) {
    const QPointF place = place_of(i);
    const double distance = std::hypot(place.x() - at.x(), place.y() - at.y());
    if (distance < least) {
      least = distance;
      found = i;
    }
  }
  return found;
}

QString ScalingView::tooltip_at(const QPointF& at) const {
  const std::optional<int> point = nearest(at);
  return point ? point_tooltip(points_[static_cast<std::size_t>(*point)]) : QString();
}

void ScalingView::keyPressEvent(QKeyEvent* event) {
  switch (event->key()) {
    case Qt::Key_Left: return mark(marked_.value_or(0) - 1);
    case Qt::Key_Right: return mark(marked_ ? *marked_ + 1 : 0);
    case Qt::Key_Escape: return cancel();
    case Qt::Key_R: stale_ = plan_ != nullptr; return search();
    case Qt::Key_Return:
    case Qt::Key_Enter: {
      if (!marked_) return;
      const ScalingPoint& point = points_[static_cast<std::size_t>(*marked_)];
      if (point.best) Q_EMIT chosen(point.gpus, point.best->candidate);
      return;
    }
    default: QWidget::keyPressEvent(event);
  }
}

void ScalingView::mousePressEvent(QMouseEvent* event) {
  const std::optional<int> point = nearest(event->position());
  if (event->button() != Qt::LeftButton || !point) return;
  mark(*point);
  const ScalingPoint& at = points_[static_cast<std::size_t>(*point)];
  if (at.best) Q_EMIT chosen(at.gpus, at.best->candidate);
}

void ScalingView::place_controls() {
  constexpr int kEdge = 6;
  constexpr int kBar = 90;
  const QSize button = stop_.sizeHint();
  stop_.setGeometry(width() - button.width() - kEdge, kEdge, button.width(), button.height());
  const int bar = std::min(kBar, width() / 4);
  progress_.setGeometry(stop_.x() - bar - kEdge, kEdge + button.height() / 4, bar,
                        button.height() / 2);
}

void ScalingView::resizeEvent(QResizeEvent* /*event*/) { place_controls(); }

void ScalingView::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  if (stale_) rest_.start();
}

}  // namespace echelon::gui
