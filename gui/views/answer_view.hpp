// A text computed on demand in a worker thread, with progress and cancellation.
#pragma once

#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QTextEdit>
#include <QToolButton>
#include <QWidget>
#include <functional>
#include <string>

#include "gui/session/results.hpp"
#include "gui/session/worker.hpp"
#include "report/terminal_style.hpp"

namespace echelon::gui {

class AnswerView : public QWidget {
  Q_OBJECT

 public:
  /// The text, to be wrapped to any width.
  using Text = std::function<std::string(const TextStyle&)>;
  using Work = std::function<Result<Text>(const Progress&)>;

  /// `hint` is shown while there is no text.
  AnswerView(const QString& name, const QString& action, const QString& hint,
             QWidget* parent = nullptr);

  /// Sets what start() computes; the text shown becomes stale. Null: there is nothing to compute.
  void prepare(Work work);
  void start();
  void cancel();
  [[nodiscard]] bool busy() const { return worker_.busy(); }
  /// The text shown.
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

  QString hint_;
  Work work_;
  Text answer_;
  QString failure_;
  bool stale_ = false;  ///< the text belongs to earlier settings
  int columns_ = 0;
  QPushButton* action_ = nullptr;
  QLabel* note_ = nullptr;
  QProgressBar* bar_ = nullptr;
  QToolButton* stop_ = nullptr;
  QTextEdit* shown_ = nullptr;
  Worker worker_;
};

}  // namespace echelon::gui
