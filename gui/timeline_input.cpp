// Keys and mouse of the timeline.
#include <QKeyEvent>
#include <QMouseEvent>
#include <QWheelEvent>
#include <cmath>

#include "gui/timeline_view.hpp"

namespace echelon::gui {
namespace {

constexpr double kZoomStep = 0.75;
constexpr double kPanStep = 0.1;     ///< of the window
constexpr double kWheelNotch = 120;  ///< eighths of a degree

}  // namespace

void TimelineView::keyPressEvent(QKeyEvent* event) {
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
    case Qt::Key_Up: return pan(0, -down);
    case Qt::Key_Down: return pan(0, down);
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
    settle();
    window_.scroll = unit * window_.per_unit - at;
    return moved();
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
