// Files in and out of the window.
#include <QClipboard>
#include <QDir>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QGuiApplication>
#include <QMimeData>
#include <QUrl>

#include "cli/this_machine.hpp"
#include "core/base/files.hpp"
#include "core/model/model_io.hpp"
#include "gui/candidates_view.hpp"
#include "gui/picture.hpp"
#include "gui/qt_text.hpp"
#include "gui/run_view.hpp"
#include "gui/session_io.hpp"
#include "gui/stored_settings.hpp"
#include "gui/welcome.hpp"
#include "gui/window.hpp"

namespace echelon::gui {

namespace {

Error nothing_to_export(const char* what) {
  return input_error(what, "there is no plan", "a plan",
                     "choose a model on the left, and a configuration that is legal");
}

constexpr const char* kRecentFiles = "recent_files";

/// Beside the window's settings.
QString last_session_path() {
  return QFileInfo(stored_settings().fileName()).absolutePath() +
         QStringLiteral("/last-session.json");
}

}  // namespace

bool Window::open_file(const QString& path) {
  const std::string name = path.toStdString();
  if (const Status legible = check_json(name); !legible) {
    say(qt_text(legible.error().message()), true);
    return false;
  }
  switch (kind_of(name)) {
    case FileKind::session: return begin_with(path, read_session(name), true);
    case FileKind::plan: return begin_with(path, sheet_of_plan_file(name), false);
    case FileKind::run_report:
      raise_view(tr("Run"));
      if (!run_->may_drop_report()) return false;
      run_->open_report(path);
      remember_file(path);
      return true;
    case FileKind::other: break;
  }
  if (const Result<ModelSpec> model = load_model(name)) {
    desk_.ask("model", name);
    desk_.seal();
    remember_file(path);
    say(tr("Model of %1").arg(path));
    return true;
  }
  if (cli::load_cluster(name, 0)) {
    desk_.ask("cluster", name);
    desk_.seal();
    remember_file(path);
    say(tr("Cluster of %1").arg(path));
    return true;
  }
  say(tr("%1: not a session, plan file, run report, model or cluster").arg(path), true);
  return false;
}

bool Window::begin_with(const QString& path, const Result<Sheet>& sheet, bool session) {
  if (!sheet) {
    say(qt_text(sheet.error().message()), true);
    return false;
  }
  const bool kept = path == last_session_path();
  desk_.load(*sheet, kept ? std::string() : path.toStdString(), session && !kept);
  if (!kept) remember_file(path);
  say(kept ? tr("As the window was closed; Ctrl+Z goes back")
           : tr("Opened %1; Ctrl+Z goes back").arg(path));
  return true;
}

Status Window::save_session(const QString& path) {
  Status written = write_file(path.toStdString(), session_to_json(desk_.sheet()));
  if (written) {
    desk_.saved_as(path.toStdString());
    remember_file(path);
  }
  return written;
}

void Window::remember_file(const QString& path) {
  constexpr int kRemembered = 5;
  QSettings stored = stored_settings();
  QStringList files = stored.value(kRecentFiles).toStringList();
  const QString whole = QFileInfo(path).absoluteFilePath();
  files.removeAll(whole);
  files.prepend(whole);
  stored.setValue(kRecentFiles, QStringList(files.mid(0, kRemembered)));
  show_recent_files();
}

void Window::show_recent_files() {
  QStringList files = stored_settings().value(kRecentFiles).toStringList();
  files.removeIf([](const QString& file) { return !QFileInfo::exists(file); });
  const QString last = last_session_path();
  welcome_->show_recent(files, QFileInfo::exists(last) ? last : QString());
}

/// What never was in a file, for the next window.
void Window::keep_last_session() {
  const bool lost = desk_.asked() && desk_.document().file.empty();
  const std::string path = last_session_path().toStdString();
  if (!lost || !QDir().mkpath(QFileInfo(last_session_path()).absolutePath())) return;
  if (const Status kept = write_file(path, session_to_json(desk_.sheet())); !kept) {
    say(qt_text(kept.error().message()), true);
  }
}

/// The worker gets a plan that nobody changes any more; the window goes on with others.
Status Window::begin_writing(const QString& path, const char* what,
                             Result<std::string> (*text)(const ShownPlan&, const Progress&)) {
  const PlanShown plan = desk_.plan();
  if (!plan || desk_.plan_is_stale()) return nothing_to_export(what);
  const bool begun =
      writer_.write(path, [plan, text](const Progress& progress) { return text(*plan, progress); });
  if (!begun) {
    return input_error(what, writer_.path().toStdString() + " is being written",
                       "one file at a time", "wait for it, or cancel it (Esc)");
  }
  say(tr("Writing %1 …").arg(path));
  search_state();
  refresh_actions();
  return Done{};
}

Status Window::export_plan(const QString& path) {
  return begin_writing(path, "plan file", &plan_file_text);
}

Status Window::export_trace(const QString& path) {
  return begin_writing(path, "trace", &trace_text);
}

void Window::file_written(const QString& path, const Status& status) {
  say(status ? tr("Wrote %1").arg(path) : qt_text(status.error().message()), !status);
}

Status Window::export_table(const QString& path) {
  if (!desk_.space() || desk_.space_is_stale()) return nothing_to_export("table");
  candidates_->show_space(desk_.space());
  return candidates_->save_csv(path);
}

Status Window::export_view(const QString& path) {
  return save_picture(seen_ != nullptr ? *seen_ : *this, path);
}

void Window::ask_open() {
  const QString path = QFileDialog::getOpenFileName(
      this, tr("Open a session, plan file, run report, model or cluster"), {},
      tr("JSON (*.json);;All files (*)"));
  if (!path.isEmpty()) open_file(path);
}

void Window::ask_save(bool anew) {
  QString path = desk_.document().session ? qt_text(desk_.document().file) : QString();
  if (anew || path.isEmpty()) {
    path = QFileDialog::getSaveFileName(this, tr("Save session"),
                                        path.isEmpty() ? QStringLiteral("session.json") : path,
                                        tr("Session (*.json)"));
  }
  if (path.isEmpty()) return;
  const Status saved = save_session(path);
  say(saved ? tr("Saved %1").arg(path) : qt_text(saved.error().message()), !saved);
}

void Window::ask_export(const QString& title, const QString& name, const QString& filter,
                        Status (Window::*write)(const QString&)) {
  const QString path = QFileDialog::getSaveFileName(this, title, name, filter);
  if (path.isEmpty()) return;
  const Status written = (this->*write)(path);
  if (!written) {
    say(qt_text(written.error().message()), true);
  } else if (!writer_.busy() || writer_.path() != path) {
    say(tr("Wrote %1").arg(path));
  }
}

void Window::copy(const std::string& text, const QString& what) {
  QGuiApplication::clipboard()->setText(qt_text(text));
  say(tr("Copied %1").arg(what));
}

void Window::dragEnterEvent(QDragEnterEvent* event) {
  if (event->mimeData()->hasUrls()) event->acceptProposedAction();
}

void Window::dropEvent(QDropEvent* event) {
  for (const QUrl& url : event->mimeData()->urls()) {
    if (url.isLocalFile()) open_file(url.toLocalFile());
  }
}

}  // namespace echelon::gui
