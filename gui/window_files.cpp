// Files in and out of the window.
#include <fmt/format.h>

#include <QClipboard>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QGuiApplication>
#include <QMimeData>
#include <QUrl>

#include "cli/this_machine.hpp"
#include "core/files.hpp"
#include "core/model_io.hpp"
#include "core/plan_file.hpp"
#include "gui/candidates_view.hpp"
#include "gui/picture.hpp"
#include "gui/qt_text.hpp"
#include "gui/run_view.hpp"
#include "gui/session_io.hpp"
#include "gui/window.hpp"
#include "planner/close_up.hpp"
#include "report/plan_files.hpp"
#include "report/run.hpp"

namespace echelon::gui {

namespace {

Error nothing_to_export(const char* what) {
  return input_error(what, "there is no plan", "a plan",
                     "choose a model on the left, and a configuration that is legal");
}

}  // namespace

bool Window::open_file(const QString& path) {
  const std::string name = path.toStdString();
  const auto begin = [&](const Result<Sheet>& sheet) {
    if (!sheet) {
      say(qt_text(sheet.error().message()), true);
      return false;
    }
    desk_.open(*sheet);
    say(tr("Opened %1").arg(path));
    return true;
  };
  switch (kind_of(name)) {
    case FileKind::session: session_path_ = path; return begin(read_session(name));
    case FileKind::plan: return begin(sheet_of_plan_file(name));
    case FileKind::run_report:
      raise_view(tr("Run"));
      run_->open_report(path);
      return true;
    case FileKind::other: break;
  }
  if (const Result<ModelSpec> model = load_model(name)) {
    desk_.ask("model", name);
    desk_.seal();
    say(tr("Model of %1").arg(path));
    return true;
  }
  if (cli::load_cluster(name, 0)) {
    desk_.ask("cluster", name);
    desk_.seal();
    say(tr("Cluster of %1").arg(path));
    return true;
  }
  say(tr("%1: not a session, plan file, run report, model or cluster").arg(path), true);
  return false;
}

Status Window::save_session(const QString& path) {
  Status written = write_file(path.toStdString(), session_to_json(desk_.sheet()));
  if (written) session_path_ = path;
  return written;
}

Status Window::export_plan(const QString& path) {
  const PlanShown plan = desk_.plan();
  if (!plan) return nothing_to_export("plan file");
  const Result<PlanFile> file =
      complete_plan_file(plan->asked.request, plan->candidate, plan->asked.provenance);
  if (!file) return file.error();
  return write_file(path.toStdString(), plan_file_to_json(*file));
}

Status Window::export_trace(const QString& path) {
  const PlanShown plan = desk_.plan();
  if (!plan) return nothing_to_export("trace");
  const PlanRequest& request = plan->asked.request;
  constexpr double kMostInTrace = 1e6;  // 250 bytes each; Perfetto opens no more than some
  const double instructions = instructions_of(request, plan->candidate);
  if (instructions > kMostInTrace) {
    return input_error("trace", fmt::format("a step of about {:.2g} instructions", instructions),
                       fmt::format("at most {:.2g}", kMostInTrace),
                       "a larger microbatch or fewer chunks make fewer");
  }
  return write_file(path.toStdString(), step_trace(simulate_plan(request, plan->candidate)));
}

Status Window::export_table(const QString& path) {
  if (!desk_.space()) return nothing_to_export("table");
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
  QString path = session_path_;
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
  say(written ? tr("Wrote %1").arg(path) : qt_text(written.error().message()), !written);
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
