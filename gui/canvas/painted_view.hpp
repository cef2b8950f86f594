// Base of views that paint themselves: size, focus and tooltips.
#pragma once

#include <QWidget>

namespace echelon::gui {

class PaintedView : public QWidget {
  Q_OBJECT

 public:
  /// The tooltip at a position; empty for none.
  [[nodiscard]] virtual QString tooltip_at(const QPointF& at) const = 0;

  [[nodiscard]] QSize minimumSizeHint() const override { return {300, 200}; }

 protected:
  PaintedView(const QString& name, QWidget* parent);

  bool event(QEvent* event) override;
};

}  // namespace echelon::gui
