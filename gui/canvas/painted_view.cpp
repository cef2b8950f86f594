#include "gui/canvas/painted_view.hpp"

#include <QHelpEvent>
#include <QToolTip>

namespace echelon::gui {

PaintedView::PaintedView(const QString& name, QWidget* parent) : QWidget(parent) {
  setAccessibleName(name);
  setFocusPolicy(Qt::StrongFocus);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
}

bool PaintedView::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  const QString note = tooltip_at(help->pos());
  if (note.isEmpty())
    QToolTip::hideText();
  else
    QToolTip::showText(help->globalPos(), note, this);
  return true;
}

}  // namespace echelon::gui
