// What lies over a view whose figures are not those of what is asked: it dims them and says so.
#pragma once

#include <QString>
#include <QWidget>

namespace echelon::gui {

/// How much is left of what is dimmed.
inline constexpr double kDimmed = 0.4;

class Veil : public QWidget {
  Q_OBJECT

 public:
  explicit Veil(QWidget& view);
  /// Covers the view and says why; "" uncovers it.
  void tell(const QString& why);
  [[nodiscard]] QString why() const { return isHidden() ? QString() : why_; }

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;

 private:
  QString why_;
};

}  // namespace echelon::gui
