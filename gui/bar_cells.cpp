#include "gui/bar_cells.hpp"

#include <QPainter>
#include <algorithm>

namespace echelon::gui {

void BarCells::paint(QPainter* painter, const QStyleOptionViewItem& option,
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

QSize BarCells::sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const {
  constexpr int kAir = 6;
  return QStyledItemDelegate::sizeHint(option, index) + QSize(0, kAir);
}

}  // namespace echelon::gui
