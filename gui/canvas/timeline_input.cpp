// Keys and mouse of the timeline.
#include <QKeyEvent>
#include <QMouseEvent>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "gui/canvas/timeline_view.hpp"

namespace echelon::gui {
namespace {

constexpr double kZoomStep = 0.75;
constexpr double kPanStep = 0.1;     ///< of the window
constexpr double kWheelNotch = 120;  ///< eighths of a degree

}  // namespace

void TimelineView::pin(const Place& place) {
  pinned_ = place;
  const GanttRow& row = gantt_->rows[place.row];
  const Bar& bar = row.bars[place.bar];
  const double span = window_.to - window_.from;
  if (bar.start < window_.from || bar.end > window_.to) {
    window_.from = bar.start - span / 2;
    window_.to = window_.from + span;
  }
  const double top = window_.top(row);
  if (top < 0) window_.scroll += top;
  const double below = top + window_.height(row) - window_.size.height();
  if (below > 0) window_.scroll += below;
  setAccessibleDescription(pinned());
  window_changed();
}

/// Pins the first visible bar if none is pinned.
void TimelineView::pin_neighbour(int bars, int rows) {
  if (!gantt_) return;
  const auto size = [](const auto& of) { return static_cast<std::ptrdiff_t>(of.size()); };
  if (!pinned_) {
    const auto visible = std::ranges::find_if(gantt_->rows, [this](const GanttRow& row) {
      return window_.top(row) >= 0 && first_after(row, window_.from) < row.bars.size();
    });
    if (visible == gantt_->rows.end()) return;
    return pin({static_cast<std::size_t>(visible - gantt_->rows.begin()),
                first_after(*visible, window_.from)});
  }
  const auto row = static_cast<std::ptrdiff_t>(pinned_->row) + rows;
  if (row < 0 || row >= size(gantt_->rows)) return;
  const GanttRow& next = gantt_->rows[static_cast<std::size_t>(row)];
  if (next.bars.empty()) return;
  auto bar = static_cast<std::ptrdiff_t>(pinned_->bar) + bars;
  if (rows != 0) {
    const double now = gantt_->rows[pinned_->row].bars[pinned_->bar].start;
    bar = static_cast<std::ptrdiff_t>(first_after(next, now));
  }
  bar = std::clamp<std::ptrdiff_t>(bar, 0, size(next.bars) - 1);
  pin({static_cast<std::size_t>(row), static_cast<std::size_t>(bar)});
}

void TimelineView::keyPressEvent(QKeyEvent* event) {
  const bool control = event->modifiers().testFlag(Qt::ControlModifier);
  const double middle = window_.size.width() / 2;
  const double across = kPanStep * window_.size.width();
  const double down = kPanStep * window_.size.height();
  switch (event->key()) {
    case Qt::Key_W:
    case Qt::Key_Plus:
    case Qt::Key_Equal: return zoom(kZoomStep, middle);
    case Qt::Key_S:
    case Qt::Key_Minus: return zoom(1 / kZoomStep, middle);
    case Qt::Key_A:
    case Qt::Key_Left: return pan(-across, 0);
    case Qt::Key_D:
    case Qt::Key_Right: return pan(across, 0);
    case Qt::Key_Up: return control ? pin_neighbour(0, -1) : pan(0, -down);
    case Qt::Key_Down: return control ? pin_neighbour(0, 1) : pan(0, down);
    case Qt::Key_Period: return pin_neighbour(1, 0);
    case Qt::Key_Comma: return pin_neighbour(-1, 0);
    case Qt::Key_PageUp: return pan(0, -window_.size.height());
    case Qt::Key_PageDown: return pan(0, window_.size.height());
    case Qt::Key_F:
    case Qt::Key_Home: return fit();
    case Qt::Key_Escape:
      pinned_.reset();
      measure_.reset();
      return update();
    default: QWidget::keyPressEvent(event);
  }
}

void TimelineView::wheelEvent(QWheelEvent* event) {
  const QPoint turned = event->angleDelta();
  const double notches = (turned.y() != 0 ? turned.y() : turned.x()) / kWheelNotch;
  event->accept();
  const bool control = event->modifiers().testFlag(Qt::ControlModifier);
  const bool shift = event->modifiers().testFlag(Qt::ShiftModifier);
  if (control && shift) {
    const double at = event->position().y() - plot().top();
    const double unit = (at + window_.scroll) / window_.per_unit;
    window_.per_unit *= std::pow(kZoomStep, -notches);
    clamp_window();
    window_.scroll = unit * window_.per_unit - at;
    return window_changed();
  }
  if (control) {
    return zoom(std::pow(kZoomStep, notches), event->position().x() - plot().left());
  }
  const double far = kPanStep * notches;
  if (shift || turned.x() != 0) return pan(-far * window_.size.width(), 0);
  pan(0, -far * window_.size.height());
}

void TimelineView::mousePressEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton || !gantt_) return;
  dragged_from_ = event->position();
  dragging_ = false;
  measuring_ = event->modifiers().testFlag(Qt::ShiftModifier);
  if (!measuring_) return;
  const double at = window_.seconds(event->position().x() - plot().left());
  measure_ = {at, at};
  update();
}

void TimelineView::mouseMoveEvent(QMouseEvent* event) {
  constexpr double kDrag = 4;  // pixels
  if (!dragged_from_) {
    const auto now = place_at(event->position());
    if (now != hovered_) {
      hovered_ = now;
      update();
    }
    return;
  }
  if (measuring_) {
    measure_->second = window_.seconds(event->position().x() - plot().left());
    return update();
  }
  const QPointF by = event->position() - *dragged_from_;
  if (!dragging_ && by.manhattanLength() < kDrag) return;
  dragging_ = true;
  dragged_from_ = event->position();
  setCursor(Qt::ClosedHandCursor);
  pan(-by.x(), -by.y());
}

void TimelineView::mouseReleaseEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton || !dragged_from_) return;
  if (!dragging_ && !measuring_) pinned_ = place_at(event->position());
  if (measuring_ && measure_->first == measure_->second) measure_.reset();
  dragged_from_.reset();
  dragging_ = measuring_ = false;
  unsetCursor();
  update();
}

void TimelineView::leaveEvent(QEvent* event) {
  hovered_.reset();
  update();
  QWidget::leaveEvent(event);
}

}  // namespace echelon::gui
