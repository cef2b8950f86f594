#include "gui/canvas/stale_overlay.hpp"

#include <QEvent>
#include <QPainter>
#include <algorithm>

namespace echelon::gui {

StaleOverlay::StaleOverlay(QWidget& view) : QWidget(&view) {
  setAttribute(Qt::WA_TransparentForMouseEvents);
  setFocusPolicy(Qt::NoFocus);
  view.installEventFilter(this);
  hide();
}

void StaleOverlay::show_reason(const QString& reason) {
  reason_ = reason;
  setVisible(!reason.isEmpty());
  if (reason.isEmpty()) return;
  setGeometry(parentWidget()->rect());
  raise();
  update();
}

bool StaleOverlay::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::Resize) setGeometry(parentWidget()->rect());
  if (event->type() == QEvent::ChildAdded && isVisible()) raise();
  return QWidget::eventFilter(watched, event);
}

void StaleOverlay::paintEvent(QPaintEvent* /*event*/) {
  constexpr int kInset = 8;
  QPainter painter(this);
  QColor wash = palette().color(QPalette::Base);
  wash.setAlphaF(static_cast<float>(1 - kStaleOpacity));
  painter.fillRect(rect(), wash);
  QFont bold = font();
  bold.setBold(true);
  const QRect area = rect().adjusted(kInset, kInset, -kInset, -kInset);
  constexpr int kWrapped = Qt::AlignHCenter | Qt::AlignTop | Qt::TextWordWrap;
  const QRect words = QFontMetrics(bold).boundingRect(area, kWrapped, reason_);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(palette().color(QPalette::Mid));
  painter.setBrush(palette().color(QPalette::Window));
  painter.drawRoundedRect(words.adjusted(-kInset, -kInset / 2, kInset, kInset / 2), 4, 4);
  painter.setFont(bold);
  painter.setPen(palette().color(QPalette::WindowText));
  painter.drawText(area, kWrapped, reason_);
}

}  // namespace echelon::gui
