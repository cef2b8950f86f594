// A window for tests: default layout, its own folder, dialogs answered.
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

#include "gui/app/window.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {

using RequestFlags = std::initializer_list<std::pair<const char*, const char*>>;

inline gui::Query query_with(RequestFlags flags) {
  gui::Query query;
  for (const auto& [flag, value] : flags) {
    query.request.set(flag, {value, std::string("--") + flag});
  }
  return query;
}

/// Default: a small request that is searched.
struct WindowFixture {
  explicit WindowFixture(bool with_request = true)
      : WindowFixture(with_request
                          ? query_with({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}})
                          : gui::Query{}) {}
  explicit WindowFixture(const gui::Query& query) {
    QSettings::setPath(QSettings::IniFormat, QSettings::UserScope,
                       QString::fromStdString(folder.path().string()));
    window = std::make_unique<gui::Window>();
    window->show();
    if (query == gui::Query{}) return;
    window->session().reset(query);
    wait_for_search();
  }
  void wait_for_search() const {
    REQUIRE(QTest::qWaitFor([&] { return !window->session().searching(); }, 60'000));
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

/// Handles the next dialog of a type during its lifetime.
template <class Dialog>
class NextDialog {
 public:
  explicit NextDialog(std::function<void(Dialog&)> what) {
    QObject::connect(&timer_, &QTimer::timeout, [this, what = std::move(what)] {
      for (QWidget* each : QApplication::topLevelWidgets()) {
        auto* dialog = qobject_cast<Dialog*>(each);
        if (dialog == nullptr || !dialog->isVisible()) continue;
        timer_.stop();
        appeared_ = true;
        what(*dialog);
        return;
      }
    });
    timer_.start(20);
  }
  [[nodiscard]] bool appeared() const { return appeared_; }

 private:
  QTimer timer_;
  bool appeared_ = false;
};

/// Clicks the button with this text.
inline auto click_button(const char* button) {
  return [button](QMessageBox& box) {
    for (QAbstractButton* each : box.buttons()) {
      if (each->text().remove('&') == button) return each->click();
    }
    FAIL_CHECK("no such button: " << button);
  };
}

}  // namespace echelon
