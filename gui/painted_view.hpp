// What views that paint themselves share: room, focus, and notes where the cursor rests.
#pragma once

#include <QWidget>

namespace echelon::gui {

class PaintedView : public QWidget {
  Q_OBJECT

 public:
  /// What the tooltip says there; empty where there is nothing to say.
  [[nodiscard]] virtual QString note_at(const QPointF& at) const = 0;

  [[nodiscard]] QSize minimumSizeHint() const override { return {300, 200}; }

 protected:
  PaintedView(const QString& name, QWidget* parent);

  bool event(QEvent* event) override;
};

}  // namespace echelon::gui
