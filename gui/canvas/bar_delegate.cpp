#include "gui/canvas/bar_delegate.hpp"

#include <QPainter>
#include <algorithm>

namespace echelon::gui {

void BarDelegate::paint(QPainter* painter, const QStyleOptionViewItem& option,
                        const QModelIndex& index) const {
  const QVariant share = index.data(kShareRole);
  if (share.isValid() && !(option.state & QStyle::State_Selected)) {
    QColor colour = index.data(kColourRole).value<QColor>();
    colour.setAlphaF(0.35F);
    QRectF bar = QRectF(option.rect).adjusted(2, 2, -2, -2);
    bar.setWidth(bar.width() * std::clamp(share.toDouble(), 0.0, 1.0));
    painter->fillRect(bar, colour);
  }
  QStyledItemDelegate::paint(painter, option, index);
}

QSize BarDelegate::sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const {
  constexpr int kPadding = 6;
  return QStyledItemDelegate::sizeHint(option, index) + QSize(0, kPadding);
}

}  // namespace echelon::gui
