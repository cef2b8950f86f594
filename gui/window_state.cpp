// What the window says of its state: whose figures are shown, how far a search is, which file this
// is.
#include <QFileInfo>
#include <QStatusBar>
#include <utility>

#include "gui/qt_text.hpp"
#include "gui/veil.hpp"
#include "gui/welcome.hpp"
#include "gui/window.hpp"
#include "report/format.hpp"

namespace echelon::gui {

/// Nothing is asked yet, or the first model is being typed.
bool Window::welcomes() const {
  if (!desk_.sheet().question.has("model")) return true;
  return !desk_.plan() && desk_.question_error() &&
         cli::flag_of(*desk_.question_error()) == "model";
}

/// Why the figures shown are not those of what is asked, or "".
QString Window::doubt() const {
  const bool shown = desk_.plan() != nullptr;
  if (desk_.question_error()) {
    return shown
               ? tr("These are the figures of the previous question: the entry on the left is not "
                    "complete, or wrong.")
               : tr("The entry on the left is not complete, or wrong.");
  }
  if (desk_.plan_error()) return tr("Invalid configuration. Showing the last valid plan.");
  if (shown && !desk_.plan_is_stale()) return {};
  if (desk_.search_error()) {
    return shown ? tr("There is no answer, see the left: these are the figures of the previous "
                      "question.")
                 : tr("There is no answer: see the left.");
  }
  if (desk_.searching()) {
    return shown ? tr("Searching … (figures of the previous question)")
                 : tr("Searching for the best plan …");
  }
  return shown ? tr("No answer: these are the figures of the previous question (F5 searches)")
               : tr("No answer yet: F5 searches");
}

void Window::plan_changed() {
  centre_->setCurrentIndex(welcomes() ? 0 : 1);
  const bool wrong = desk_.question_error() || desk_.plan_error();
  card_->show_plan(desk_.plan(), desk_.best(), doubt(), wrong);
  bring_up_to_date(true, false);
  dim_stale_views();
  refresh_actions();
}

void Window::space_changed() {
  bring_up_to_date(false, true);
  tell_counts();
  dim_stale_views();
  search_state();
}

/// Nothing of an earlier question looks like an answer to this one.
void Window::dim_stale_views() {
  const bool stale = desk_.space_is_stale();
  const bool first = !desk_.space() && desk_.searching();
  const QString of_space = first               ? tr("Searching …")
                           : !stale            ? QString()
                           : desk_.searching() ? tr("Searching … (plans of the previous question)")
                                               : tr("Plans of the previous question");
  const QString of_plan = welcomes() ? QString() : doubt();
  for (const Hosted& hosted : views_) {
    if (hosted.veil != nullptr) hosted.veil->tell(hosted.dock != nullptr ? of_plan : of_space);
  }
  const bool waiting = stale || first;
  if (waiting) {
    say(desk_.searching() ? tr("Searching …") : QString());
  } else if (searching_told_) {
    tell_counts();
  }
  searching_told_ = waiting;
}

void Window::tell_counts() {
  searching_told_ = false;
  if (!desk_.space()) return say({});
  const SearchOutcome& report = desk_.space()->report;
  if (report.winner() == nullptr) {
    say(tr("Nothing fits: the configuration on the right comes closest"), true);
    return;
  }
  say(tr("%1 layouts: %2 fit, %3 out of memory, %4 too slow by their bounds, the rest invalid")
          .arg(qt_text(grouped(report.counts.tuples)), qt_text(grouped(report.counts.fitting)),
               qt_text(grouped(report.counts.too_large)), qt_text(grouped(report.counts.bounded))));
}

void Window::search_state() {
  const bool busy = desk_.searching();
  progress_->setVisible(busy);
  stop_->setVisible(busy);
  if (!busy) progress_->setValue(0);
  write_progress_->setVisible(writer_.busy());
  stop_writing_->setVisible(writer_.busy());
  if (!writer_.busy()) write_progress_->setValue(0);
  // A key that stops nothing is left to the views.
  if (QAction* stop = action(tr("Stop"))) {
    stop->setEnabled(busy || explanation_->busy() || sensitivity_->busy() || writer_.busy());
  }
}

/// "s.json – Echelon", with a mark when it was changed since.
void Window::name_window() {
  const Document& document = desk_.document();
  const QString file = qt_text(document.file);
  setWindowFilePath(file);
  QString name = QFileInfo(file).fileName();
  if (const cli::Setting* model = desk_.sheet().question.find("model");
      name.isEmpty() && model != nullptr) {
    name = QFileInfo(qt_text(model->value)).fileName();
    if (const cli::Setting* gpus = desk_.sheet().question.find("gpus")) {
      name += tr(" on %1 GPUs").arg(qt_text(gpus->value));
    }
  }
  setWindowTitle(name.isEmpty() ? tr("Echelon") : tr("%1[*] – Echelon").arg(name));
  setWindowModified(desk_.modified());
}

void Window::say(const QString& text, bool wrong) {
  QPalette colours = palette();
  if (wrong) colours.setColor(QPalette::WindowText, error_colour(colours));
  message_->setPalette(colours);
  message_->setText(text);
  message_->setToolTip(text);
}

}  // namespace echelon::gui
