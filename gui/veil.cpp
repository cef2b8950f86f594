#include "gui/veil.hpp"

#include <QEvent>
#include <QPainter>
#include <algorithm>

namespace echelon::gui {

Veil::Veil(QWidget& view) : QWidget(&view) {
  setAttribute(Qt::WA_TransparentForMouseEvents);
  setFocusPolicy(Qt::NoFocus);
  view.installEventFilter(this);
  hide();
}

void Veil::tell(const QString& why) {
  why_ = why;
  setVisible(!why.isEmpty());
  if (why.isEmpty()) return;
  setGeometry(parentWidget()->rect());
  raise();
  update();
}

bool Veil::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::Resize) setGeometry(parentWidget()->rect());
  if (event->type() == QEvent::ChildAdded && isVisible()) raise();
  return QWidget::eventFilter(watched, event);
}

void Veil::paintEvent(QPaintEvent* /*event*/) {
  constexpr int kInset = 8;
  QPainter painter(this);
  QColor mist = palette().color(QPalette::Base);
  mist.setAlphaF(static_cast<float>(1 - kDimmed));
  painter.fillRect(rect(), mist);
  QFont bold = font();
  bold.setBold(true);
  const QRect room = rect().adjusted(kInset, kInset, -kInset, -kInset);
  constexpr int kFolded = Qt::AlignHCenter | Qt::AlignTop | Qt::TextWordWrap;
  const QRect words = QFontMetrics(bold).boundingRect(room, kFolded, why_);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(palette().color(QPalette::Mid));
  painter.setBrush(palette().color(QPalette::Window));
  painter.drawRoundedRect(words.adjusted(-kInset, -kInset / 2, kInset, kInset / 2), 4, 4);
  painter.setFont(bold);
  painter.setPen(palette().color(QPalette::WindowText));
  painter.drawText(room, kFolded, why_);
}

}  // namespace echelon::gui
