// A window for tests: nobody's layout, a folder of its own, questions answered.
#pragma once

#include <QAbstractButton>
#include <QAction>
#include <QApplication>
#include <QFileDialog>
#include <QMessageBox>
#include <QSettings>
#include <QTest>
#include <QTimer>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>

#include "gui/window.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {

using Question = std::initializer_list<std::pair<const char*, const char*>>;

inline gui::Sheet asking(Question flags) {
  gui::Sheet sheet;
  for (const auto& [flag, value] : flags) {
    sheet.question.set(flag, {value, std::string("--") + flag});
  }
  return sheet;
}

/// On a small question that was searched, unless told otherwise.
struct Opened {
  explicit Opened(bool ask = true)
      : Opened(ask ? asking({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}})
                   : gui::Sheet{}) {}
  explicit Opened(const gui::Sheet& sheet) {
    QSettings::setPath(QSettings::IniFormat, QSettings::UserScope,
                       QString::fromStdString(folder.path().string()));
    window = std::make_unique<gui::Window>();
    window->show();
    if (sheet == gui::Sheet{}) return;
    window->desk().open(sheet);
    searched();
  }
  void searched() const {
    REQUIRE(QTest::qWaitFor([&] { return !window->desk().searching(); }, 60'000));
  }
  [[nodiscard]] QString file(const char* name) const {
    return QString::fromStdString((folder.path() / name).string());
  }
  void press(const char* action) const {
    QAction* found = window->action(QString::fromUtf8(action));
    REQUIRE(found != nullptr);
    found->trigger();
  }

  TempDir folder;
  std::unique_ptr<gui::Window> window;
};

/// Does something to the next dialog of a kind that comes up while this lives.
template <class Dialog>
class NextDialog {
 public:
  explicit NextDialog(std::function<void(Dialog&)> what) {
    QObject::connect(&timer_, &QTimer::timeout, [this, what = std::move(what)] {
      for (QWidget* each : QApplication::topLevelWidgets()) {
        auto* dialog = qobject_cast<Dialog*>(each);
        if (dialog == nullptr || !dialog->isVisible()) continue;
        timer_.stop();
        came_ = true;
        what(*dialog);
        return;
      }
    });
    timer_.start(20);
  }
  [[nodiscard]] bool came() const { return came_; }

 private:
  QTimer timer_;
  bool came_ = false;
};

/// The button of a question, by what is written on it.
inline auto pressing(const char* button) {
  return [button](QMessageBox& box) {
    for (QAbstractButton* each : box.buttons()) {
      if (each->text().remove('&') == button) return each->click();
    }
    FAIL_CHECK("no such button: " << button);
  };
}

}  // namespace echelon
