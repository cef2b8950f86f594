// Overlay that dims a view with stale results and shows the reason.
#pragma once

#include <QString>
#include <QWidget>

namespace echelon::gui {

/// Opacity of stale results.
inline constexpr double kStaleOpacity = 0.4;

class StaleOverlay : public QWidget {
  Q_OBJECT

 public:
  explicit StaleOverlay(QWidget& view);
  /// Dims the view and shows why; "" removes the overlay.
  void show_reason(const QString& reason);
  [[nodiscard]] QString reason() const { return isHidden() ? QString() : reason_; }

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;

 private:
  QString reason_;
};

}  // namespace echelon::gui
