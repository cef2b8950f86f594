// Opening, saving and exporting files.
#include <QClipboard>
#include <QDir>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QGuiApplication>
#include <QMimeData>
#include <QUrl>

#include "cli/flags/this_machine.hpp"
#include "core/base/files.hpp"
#include "core/model/model_io.hpp"
#include "gui/app/session_io.hpp"
#include "gui/app/stored_settings.hpp"
#include "gui/app/welcome.hpp"
#include "gui/app/window.hpp"
#include "gui/canvas/image_export.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/run/run_view.hpp"
#include "gui/views/candidates_view.hpp"

namespace echelon::gui {

namespace {

constexpr const char* kRecentFiles = "recent_files";

/// Next to the stored settings.
QString last_session_path() {
  return QFileInfo(stored_settings().fileName()).absolutePath() +
         QStringLiteral("/last-session.json");
}

}  // namespace

bool Window::open_file(const QString& path) {
  const std::string name = path.toStdString();
  if (const Status valid = check_json(name); !valid) {
    show_status(qt_text(valid.error().message()), true);
    return false;
  }
  switch (kind_of(name)) {
    case FileKind::session: {
      const Result<Session> session = read_session(name);
      if (!session) return begin_with(path, session.error(), true);
      const bool begun = begin_with(path, session->query, true);
      restore_pinned(session->pinned);
      return begun;
    }
    case FileKind::plan: return begin_with(path, query_of_plan_file(name), false);
    case FileKind::run_report:
      raise_view(tr("Run"));
      if (!run_->confirm_drop_report()) return false;
      run_->open_report(path);
      remember_file(path);
      return true;
    case FileKind::other: break;
  }
  if (const Result<ModelSpec> model = load_model(name)) {
    session_.set_request_flag("model", name);
    session_.end_edit();
    remember_file(path);
    show_status(tr("Loaded the model %1").arg(path));
    return true;
  }
  if (cli::load_cluster(name, 0)) {
    session_.set_request_flag("cluster", name);
    session_.end_edit();
    remember_file(path);
    show_status(tr("Loaded the cluster %1").arg(path));
    return true;
  }
  show_status(tr("%1: not a session, plan file, run report, model or cluster").arg(path), true);
  return false;
}

bool Window::begin_with(const QString& path, const Result<Query>& query, bool is_session) {
  if (!query) {
    show_status(qt_text(query.error().message()), true);
    return false;
  }
  const bool restored = path == last_session_path();
  session_.load(*query, restored ? std::string() : path.toStdString(), is_session && !restored);
  if (!restored) remember_file(path);
  show_status(restored ? tr("Restored the last session (Ctrl+Z to undo)")
                       : tr("Opened %1 (Ctrl+Z to undo)").arg(path));
  return true;
}

Status Window::save_session(const QString& path) {
  Status written =
      write_file(path.toStdString(), session_to_json({session_.query(), pinned_query_}));
  if (written) {
    session_.mark_saved(path.toStdString());
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

/// Stores a session without a file for the next start.
void Window::save_last_session() {
  const bool unsaved = session_.resolved() && session_.document().file.empty();
  const std::string path = last_session_path().toStdString();
  if (!unsaved || !QDir().mkpath(QFileInfo(last_session_path()).absolutePath())) return;
  const std::string text = session_to_json({session_.query(), pinned_query_});
  if (const Status written = write_file(path, text); !written) {
    show_status(qt_text(written.error().message()), true);
  }
}

/// The worker gets an immutable plan; the window can change its own meanwhile.
Status Window::begin_writing(const QString& path, const char* what,
                             Result<std::string> (*text)(const PlanResult&, const Progress&)) {
  if (const Status current = plan_is_current(what); !current) return current;
  const PlanResultPtr plan = session_.plan();
  const bool begun =
      writer_.write(path, [plan, text](const Progress& progress) { return text(*plan, progress); });
  if (!begun) {
    return input_error(what, writer_.path().toStdString() + " is being written",
                       "one file at a time", "wait until it is written, or cancel it (Esc)");
  }
  show_status(tr("Writing %1 …").arg(path));
  update_progress();
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
  show_status(status ? tr("Wrote %1").arg(path) : qt_text(status.error().message()), !status);
}

Status Window::export_table(const QString& path) {
  if (const Status current = space_is_current("table"); !current) return current;
  candidates_->show_space(session_.space());
  return candidates_->save_csv(path);
}

Status Window::export_view(const QString& path) {
  return export_image(focused_view_ != nullptr ? *focused_view_ : *this, path);
}

void Window::choose_and_open() {
  const QString path = QFileDialog::getOpenFileName(
      this, tr("Open a session, plan file, run report, model or cluster"), {},
      tr("JSON (*.json);;All files (*)"));
  if (!path.isEmpty()) open_file(path);
}

void Window::choose_and_save(bool new_file) {
  QString path = session_.document().is_session ? qt_text(session_.document().file) : QString();
  if (new_file || path.isEmpty()) {
    path = QFileDialog::getSaveFileName(this, tr("Save session"),
                                        path.isEmpty() ? QStringLiteral("session.json") : path,
                                        tr("Session (*.json)"));
  }
  if (path.isEmpty()) return;
  const Status saved = save_session(path);
  show_status(saved ? tr("Saved %1").arg(path) : qt_text(saved.error().message()), !saved);
}

void Window::choose_and_export(const QString& title, const QString& name, const QString& filter,
                               Status (Window::*write)(const QString&)) {
  const QString path = QFileDialog::getSaveFileName(this, title, name, filter);
  if (path.isEmpty()) return;
  const Status written = (this->*write)(path);
  if (!written) {
    show_status(qt_text(written.error().message()), true);
  } else if (!writer_.busy() || writer_.path() != path) {
    show_status(tr("Wrote %1").arg(path));
  }
}

void Window::copy(const std::string& text, const QString& what) {
  QGuiApplication::clipboard()->setText(qt_text(text));
  show_status(tr("Copied %1").arg(what));
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
