// A view's content, or a message while there is none.
#pragma once

#include <QLabel>
#include <QStackedWidget>

namespace echelon::gui {

class EmptyState : public QStackedWidget {
  Q_OBJECT

 public:
  EmptyState(const QString& message, QWidget* content, QWidget* parent = nullptr);
  void show_content() { setCurrentIndex(1); }
  void show_message(const QString& message);
  [[nodiscard]] bool shows_content() const { return currentIndex() == 1; }
  [[nodiscard]] QString message() const { return message_->text(); }

 private:
  QLabel* message_;
};

}  // namespace echelon::gui
