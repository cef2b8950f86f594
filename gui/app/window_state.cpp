// State of the window as shown to the user: stale results, progress, title and status bar.
#include <QFileInfo>
#include <QStatusBar>
#include <utility>

#include "gui/app/welcome.hpp"
#include "gui/app/window.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/stale_overlay.hpp"
#include "gui/views/scaling_view.hpp"
#include "report/format.hpp"

namespace echelon::gui {

/// True without a model, and while the first one is being typed.
bool Window::shows_welcome() const {
  if (!session_.query().request.has("model")) return true;
  return !session_.plan() && session_.request_error() &&
         cli::flag_of(*session_.request_error()) == "model";
}

/// Why the results shown do not belong to the current query; "" if they do.
QString Window::stale_reason() const {
  const bool shown = session_.plan() != nullptr;
  if (session_.request_error()) {
    return shown ? tr("Fix the entry marked on the left. Showing the results of the previous "
                      "settings.")
                 : tr("Fix the entry marked on the left.");
  }
  if (session_.plan_error()) return tr("Invalid configuration. Showing the last valid plan.");
  if (shown && !session_.plan_is_stale()) return {};
  if (session_.search_error()) {
    return shown ? tr("The search failed (see the left). Showing the results of the previous "
                      "settings.")
                 : tr("The search failed: see the left.");
  }
  if (session_.searching()) {
    return shown ? tr("Searching … (results of the previous settings)")
                 : tr("Searching for the best plan …");
  }
  return shown ? tr("Not searched yet (F5 starts the search). Showing the results of the previous "
                    "settings.")
               : tr("Not searched yet (F5 starts the search)");
}

void Window::plan_changed() {
  centre_->setCurrentIndex(shows_welcome() ? 0 : 1);
  const bool wrong = session_.request_error() || session_.plan_error();
  card_->show_plan(session_.plan(), session_.best(), stale_reason(), wrong);
  refresh_views(true, false);
  dim_stale_views();
  refresh_actions();
}

void Window::space_changed() {
  refresh_views(false, true);
  show_counts();
  dim_stale_views();
  update_progress();
}

/// Dims results of an earlier request, so that they do not look current.
void Window::dim_stale_views() {
  const bool stale = session_.space_is_stale();
  const bool first = !session_.space() && session_.searching();
  const QString of_space = first    ? tr("Searching …")
                           : !stale ? QString()
                           : session_.searching()
                               ? tr("Searching … (plans of the previous settings)")
                               : tr("Plans of the previous settings");
  const QString of_plan = shows_welcome() ? QString() : stale_reason();
  for (const ViewEntry& view_entry : views_) {
    if (view_entry.overlay != nullptr)
      view_entry.overlay->show_reason(view_entry.dock != nullptr ? of_plan : of_space);
  }
  const bool waiting = stale || first;
  if (waiting) {
    show_status(session_.searching() ? tr("Searching …") : QString());
  } else if (status_is_search_) {
    show_counts();
  }
  status_is_search_ = waiting;
}

void Window::show_counts() {
  status_is_search_ = false;
  if (!session_.space()) return show_status({});
  const SearchOutcome& report = session_.space()->report;
  if (report.winner() == nullptr && !report.exhaustive) {
    show_status(tr("Stopped before a plan was found"), true);
    return;
  }
  if (report.winner() == nullptr) {
    show_status(tr("Nothing fits; the configuration on the right comes closest"), true);
    return;
  }
  if (!report.winner()->fits) {
    show_status(tr("Nothing is likely to fit; the configuration on the right may"), true);
    return;
  }
  show_status(
      tr("%1 layouts: %2 fit, %3 out of memory, %4 pruned by their bounds, the rest invalid")
          .arg(qt_text(grouped(report.counts.points)), qt_text(grouped(report.counts.fitting)),
               qt_text(grouped(report.counts.too_large)), qt_text(grouped(report.counts.bounded))));
}

void Window::update_progress() {
  const bool busy = session_.searching();
  progress_->setVisible(busy);
  stop_->setVisible(busy);
  if (!busy) progress_->setValue(0);
  write_progress_->setVisible(writer_.busy());
  stop_writing_->setVisible(writer_.busy());
  if (!writer_.busy()) write_progress_->setValue(0);
  // While there is nothing to stop, the views receive the key.
  if (QAction* stop = action(tr("Stop"))) {
    stop->setEnabled(busy || explanation_->busy() || sensitivity_->busy() ||
                     scaling_->searching() || writer_.busy());
  }
}

/// "s.json – Echelon", with a mark for unsaved changes.
void Window::update_title() {
  const Document& document = session_.document();
  const QString file = qt_text(document.file);
  setWindowFilePath(file);
  QString name = QFileInfo(file).fileName();
  if (const cli::Setting* model = session_.query().request.find("model");
      name.isEmpty() && model != nullptr) {
    name = QFileInfo(qt_text(model->value)).fileName();
    if (const cli::Setting* gpus = session_.query().request.find("gpus")) {
      name += tr(" on %1 GPUs").arg(qt_text(gpus->value));
    }
  }
  setWindowTitle(name.isEmpty() ? tr("Echelon") : tr("%1[*] – Echelon").arg(name));
  setWindowModified(session_.modified());
}

bool Window::show_error(const Status& status) {
  if (!status) show_status(qt_text(status.error().message()), true);
  return status.ok();
}

Status Window::plan_is_current(const char* what) const {
  if (!session_.plan()) {
    return input_error(what, "there is no plan", "a plan", "choose a model on the left");
  }
  if (!session_.plan_is_stale()) return Done{};
  const bool wrong = session_.request_error() || session_.plan_error();
  return input_error(what, "the plan shown belongs to the previous settings", "a current plan",
                     wrong                  ? "fix the marked entry"
                     : session_.searching() ? "wait for the search"
                                            : "search again (F5)");
}

Status Window::space_is_current(const char* what) const {
  if (!session_.space()) {
    return input_error(what, "there are no plans", "a finished search",
                       "choose a model on the left");
  }
  if (!session_.space_is_stale()) return Done{};
  return input_error(what, "the plans shown belong to the previous settings", "a finished search",
                     session_.searching() ? "wait for the search" : "search again (F5)");
}

void Window::show_status(const QString& text, bool wrong) {
  QPalette colours = palette();
  if (wrong) colours.setColor(QPalette::WindowText, error_colour(colours));
  message_->setPalette(colours);
  message_->setText(text);
  message_->setToolTip(text);
}

}  // namespace echelon::gui
