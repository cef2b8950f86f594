#include "gui/app/screenshots.hpp"

#include <QApplication>
#include <QDir>
#include <QEventLoop>

namespace echelon::gui {

namespace {

/// Handles events until `done`, which always comes.
template <class Done>
void wait_until(Done done) {
  while (!done()) QApplication::processEvents(QEventLoop::WaitForMoreEvents);
}

void settle() {
  for (int i = 0; i < 5; ++i) QApplication::processEvents();
}

Status save(const QPixmap& picture, const QString& path) {
  if (picture.save(path)) return Done{};
  return environment_error(path.toStdString(), "the screenshot cannot be written",
                           "check the free space and the permissions of the folder");
}

}  // namespace

Status save_screenshots(Window& window, const std::string& folder) {
  const QDir where(QString::fromStdString(folder));
  if (!where.mkpath(QStringLiteral("."))) {
    return environment_error("--screenshot", "the folder '" + folder + "' cannot be created",
                             "a writable folder");
  }
  window.resize(1440, 900);
  window.show();
  wait_until([&] { return !window.session().searching(); });
  // For the comparison: the second plan of the list.
  if (const SpaceResultPtr space = window.session().space();
      space && space->report.candidates.size() > 1) {
    window.session().load_plan(space->report.candidates[1].plan);
    window.pin_plan();
    window.session().follow_best();
  }
  if (window.session().resolved()) {
    window.raise_view(QStringLiteral("Explanation"));
    window.explanation().start();
    wait_until([&] { return !window.explanation().busy(); });
    window.raise_view(QStringLiteral("Sensitivity"));
    window.sensitivity().start();
    wait_until([&] { return !window.sensitivity().busy(); });
  }
  for (const auto& [theme, name] :
       {std::pair(Theme::light, "light"), std::pair(Theme::dark, "dark")}) {
    window.set_theme(theme);
    window.resize(1440, 900);
    for (const Window::ViewEntry& view_entry : window.views()) {
      window.raise_view(view_entry.name);
      settle();
      const QString file =
          QStringLiteral("%1-%2.png").arg(view_entry.name.toLower().replace(' ', '-'), name);
      if (Status saved = save(view_entry.view->grab(), where.filePath(file)); !saved) return saved;
    }
    window.raise_first_views();
    for (const QSize size : {QSize(1280, 800), QSize(2560, 1440)}) {
      window.resize(size);
      settle();
      const QString file =
          QStringLiteral("window-%1x%2-%3.png").arg(size.width()).arg(size.height()).arg(name);
      if (Status saved = save(window.grab(), where.filePath(file)); !saved) return saved;
    }
  }
  return Done{};
}

}  // namespace echelon::gui
