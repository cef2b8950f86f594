// One sentence that says what to do, until there is something to show.
#pragma once

#include <QLabel>
#include <QStackedWidget>

namespace echelon::gui {

class Placeholder : public QStackedWidget {
  Q_OBJECT

 public:
  Placeholder(const QString& sentence, QWidget* content, QWidget* parent = nullptr);
  void show_content() { setCurrentIndex(1); }
  void show_sentence(const QString& sentence);
  [[nodiscard]] bool shows_content() const { return currentIndex() == 1; }
  [[nodiscard]] QString sentence() const { return sentence_->text(); }

 private:
  QLabel* sentence_;
};

}  // namespace echelon::gui
