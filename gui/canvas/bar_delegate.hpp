// Item delegate that draws a bar behind the text; the item holds its length and colour.
#pragma once

#include <QStyledItemDelegate>

namespace echelon::gui {

class BarDelegate : public QStyledItemDelegate {
  Q_OBJECT

 public:
  static constexpr int kShareRole = Qt::UserRole + 1;   ///< of the cell's width, 0 to 1
  static constexpr int kColourRole = Qt::UserRole + 2;  ///< a QColor

  using QStyledItemDelegate::QStyledItemDelegate;
  void paint(QPainter* painter, const QStyleOptionViewItem& option,
             const QModelIndex& index) const override;
  [[nodiscard]] QSize sizeHint(const QStyleOptionViewItem& option,
                               const QModelIndex& index) const override;
};

}  // namespace echelon::gui
