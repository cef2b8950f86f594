// A text that takes a moment to work out: on demand, beside the window, with progress and cancel.
#pragma once

#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QTextEdit>
#include <QToolButton>
#include <QWidget>
#include <functional>
#include <string>

#include "gui/shown.hpp"
#include "gui/worker.hpp"
#include "report/terminal_style.hpp"

namespace echelon::gui {

class AnswerView : public QWidget {
  Q_OBJECT

 public:
  /// The answer, to be folded to any width.
  using Text = std::function<std::string(const TextStyle&)>;
  using Work = std::function<Result<Text>(const Progress&)>;

  /// `invitation` stands there before there is an answer.
  AnswerView(const QString& name, const QString& action, const QString& invitation,
             QWidget* parent = nullptr);

  /// What start() will work out from now on; what is shown becomes an answer to an earlier
  /// question. Null: there is nothing to ask.
  void prepare(Work work);
  void start();
  void cancel();
  [[nodiscard]] bool busy() const { return worker_.busy(); }
  /// As shown.
  [[nodiscard]] QString text() const { return shown_->toPlainText(); }

 Q_SIGNALS:
  void started();
  void finished();

 protected:
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  void render();
  void refresh();

  QString invitation_;
  Work work_;
  Text answer_;
  QString failure_;
  bool earlier_ = false;  ///< the answer is to an earlier question
  int columns_ = 0;
  QPushButton* action_ = nullptr;
  QLabel* note_ = nullptr;
  QProgressBar* bar_ = nullptr;
  QToolButton* stop_ = nullptr;
  QTextEdit* shown_ = nullptr;
  Worker worker_;
};

}  // namespace echelon::gui
