#include "gui/run/run_view.hpp"

#include <QFile>
#include <QFileDialog>
#include <QFontDatabase>
#include <QHBoxLayout>
#include <QMessageBox>
#include <QVBoxLayout>
#include <utility>

#include "cli/system/subprocess.hpp"
#include "gui/canvas/theme.hpp"
#include "report/run.hpp"

namespace echelon::gui {
namespace {

constexpr int kMaxLines = 2000;  ///< of the log

/// Exit codes of `plan run`: docs/run.md.
QString exit_message(std::optional<int> code) {
  if (!code) return "plan run was ended by a signal.";
  switch (*code) {
    case 0: return "Completed.";
    case 2: return "Invalid input.";
    case 3: return "The environment lacks a requirement.";
    case 4: return "A rank waited longer than the timeout.";
    case 5: return "Out of memory.";
    case 6: return "Loss or gradients diverged.";
    case 7: return "A process of the run was lost.";
    case 130:
    case 143: return "Stopped.";
    default: return QString("plan run ended with code %1.").arg(*code);
  }
}

}  // namespace

RunView::RunView(QWidget* parent)
    : QWidget(parent),
      program_(QString::fromStdString(cli::own_folder()) + "/plan"),
      form_(new RunForm),
      process_(new RunProcess(this)),
      start_(new QPushButton("Run")),
      stop_(new QPushButton("Stop")),
      open_(new QPushButton("Open report …")),
      progress_(new QProgressBar),
      status_(new QLabel),
      charts_(new RunCharts),
      chart_page_(new EmptyState("No run yet: choose a plan file and press Run, or open a report.",
                                 charts_)),
      log_(new QPlainTextEdit),
      measured_(new MeasuredView),
      tabs_(new QTabWidget),
      settings_(new QScrollArea),
      halves_(new QSplitter) {
  setAccessibleName("Run of a plan");
  set_texts();
  log_->setReadOnly(true);
  log_->setMaximumBlockCount(kMaxLines);
  log_->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
  tabs_->setDocumentMode(true);
  tabs_->addTab(measured_, "Measured and predicted");
  tabs_->addTab(log_, "Log");
  settings_->setWidget(form_);
  settings_->setWidgetResizable(true);
  settings_->setFrameShape(QFrame::NoFrame);
  settings_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  halves_->addWidget(settings_);
  halves_->addWidget(build_results());
  halves_->setSizes({320, 960});
  halves_->setStretchFactor(0, 0);
  halves_->setStretchFactor(1, 1);
  // In small windows the widgets shrink before they are cut off.
  progress_->setMinimumWidth(20);
  settings_->setMinimumWidth(20);
  chart_page_->setMinimumHeight(50);
  tabs_->setMinimumHeight(60);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(halves_);
  connect_widgets();
  set_running(false);
}

void RunView::set_texts() {
  open_->setToolTip("open a report written by plan run --report");
  start_->setToolTip("execute the plan on the CPU cores of this machine (Return in a field)");
  stop_->setToolTip(
      "first click: end after this step, with checkpoint and report; second click: at once");
  status_->setWordWrap(true);
  status_->setTextFormat(Qt::PlainText);
  status_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  status_->setAccessibleName("State of the run");
  progress_->setTextVisible(true);
  progress_->setAccessibleName("Progress of the run");
  log_->setAccessibleName("Log of the run");
  log_->setPlaceholderText("The output of the run appears here.");
}

QWidget* RunView::build_results() {
  auto* bar = new QHBoxLayout;
  bar->addWidget(start_);
  bar->addWidget(stop_);
  bar->addWidget(progress_, 1);
  auto* below = new QHBoxLayout;
  below->addWidget(status_, 1);
  below->addWidget(open_);
  auto* results = new QSplitter(Qt::Vertical);
  results->addWidget(chart_page_);
  results->addWidget(tabs_);
  results->setSizes({400, 500});
  auto* right = new QWidget;
  auto* column = new QVBoxLayout(right);
  column->setContentsMargins(6, 6, 6, 6);
  column->addLayout(bar);
  column->addLayout(below);
  column->addWidget(results, 1);
  return right;
}

void RunView::connect_widgets() {
  connect(start_, &QPushButton::clicked, this, &RunView::start_form);
  connect(form_, &RunForm::start_requested, this, &RunView::start_form);
  connect(form_, &RunForm::changed, this, [this] { set_running(running()); });
  connect(stop_, &QPushButton::clicked, this, &RunView::stop);
  connect(open_, &QPushButton::clicked, this, &RunView::choose_report);
  connect(process_, &RunProcess::event_received, this, &RunView::handle_event);
  connect(process_, &RunProcess::line_received, this, &RunView::append_log);
  connect(process_, &RunProcess::ended, this, &RunView::handle_exit);
  connect(process_, &RunProcess::failed, this, [this](const QString& reason) {
    set_running(false);
    show_status(reason, Paint::bad);
    Q_EMIT ended();
  });
}

/// In a narrow window the settings are a tab instead of a panel.
void RunView::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  constexpr int kMinWidthForBoth = 640;
  const bool in_panel = halves_->indexOf(settings_) >= 0;
  if (width() >= kMinWidthForBoth && !in_panel) {
    halves_->insertWidget(0, settings_);
    halves_->setSizes({320, width() - 320});
    settings_->show();
  } else if (width() < kMinWidthForBoth && in_panel) {
    tabs_->insertTab(0, settings_, "Settings");
    if (!report_ && !running()) tabs_->setCurrentIndex(0);
  }
}

void RunView::set_running(bool running) {
  start_->setEnabled(!running && !form_->plan().isEmpty());
  stop_->setEnabled(running);
  stop_->setText(running && process_->stop_requests() > 0 ? "Stop at once" : "Stop");
}

void RunView::set_plan(const QString& plan_path) { form_->set_plan(plan_path); }

void RunView::start(QString plan_path, QStringList flags) {
  if (running()) return show_status("A run is in progress: stop it first.", Paint::warning);
  form_->set_plan(plan_path);
  form_->set_flags(flags);
  start_form();
}

void RunView::start_form() {
  if (running() || form_->plan().isEmpty()) return;
  form_->clear_marks();
  QStringList words = QStringList{"run", form_->plan()} + form_->flags();
  const QString kept = form_->field("report")->text().trimmed();
  report_path_ = kept.isEmpty() ? scratch_.filePath("report.json") : kept;
  if (kept.isEmpty()) {
    QFile::remove(report_path_);
    words << "--report" << report_path_;
  }
  words << "--events"
        << "1"
        << "--quiet";
  charts_->clear();
  log_->clear();
  report_.reset();
  last_error_.clear();
  first_step_.reset();
  progress_->setRange(0, 0);  // busy until the first step is complete
  tabs_->setCurrentWidget(log_);
  measured_->show_nothing(
      "The run is in progress: measured and predicted values appear here when it ends.");
  show_status("Pricing the plan for this machine …", Paint::plain);
  process_->start(program_, words);
  set_running(true);
  Q_EMIT started();
}

void RunView::stop() {
  process_->stop();
  set_running(running());
  if (running()) {
    show_status(process_->stop_requests() > 1
                    ? "Ending at once …"
                    : "Ending after this step, with checkpoint and report …",
                Paint::warning);
  }
}

void RunView::handle_event(const RunEvent& event) {
  switch (event.kind) {
    case RunEvent::Kind::started: append_log(QString::fromStdString(event.text), false); break;
    case RunEvent::Kind::step: {
      if (!first_step_) {
        first_step_ = event.step.step;
        progress_->setRange(0, static_cast<int>(event.of - *first_step_));
        chart_page_->show_content();
      }
      progress_->setValue(static_cast<int>(event.step.step + 1 - *first_step_));
      charts_->add(event.step);
      const QString line = QString::fromStdString(step_line(event.step, event.of));
      log_->appendPlainText(line);
      if (process_->stop_requests() == 0) {
        show_status(line, event.step.notes.empty() ? Paint::plain : Paint::warning);
      }
      break;
    }
    case RunEvent::Kind::checkpoint:
      append_log("checkpoint: " + QString::fromStdString(event.text), false);
      break;
    case RunEvent::Kind::note: append_log(QString::fromStdString(event.text), false); break;
    case RunEvent::Kind::ended: append_log(QString::fromStdString(event.text), false); break;
  }
}

void RunView::append_log(const QString& line, bool is_error) {
  log_->appendPlainText(line);
  if (!is_error) return;
  last_error_ = line.startsWith("plan: ") ? line.mid(6) : line;
  form_->mark_error(last_error_);
}

void RunView::handle_exit(std::optional<int> code) {
  charts_->draw();
  set_running(false);
  progress_->setRange(0, std::max(progress_->maximum(), 1));
  const QString why = last_error_.isEmpty() ? exit_message(code) : last_error_;
  if (QFile::exists(report_path_) && first_step_) {
    Result<RunReport> report = read_run_report(report_path_.toStdString());
    if (report) {
      show_status(why, report->end == RunReport::End::completed     ? Paint::good
                       : report->end == RunReport::End::interrupted ? Paint::warning
                                                                    : Paint::bad);
      report_is_unsaved_ = report_path_.startsWith(scratch_.path());
      show_report(*std::move(report));
    } else {
      show_status(QString::fromStdString(report.error().message()), Paint::bad);
    }
  } else {
    measured_->show_nothing("No report: " + why);
    show_status(why, code == 0 ? Paint::plain : Paint::bad);
    tabs_->setCurrentWidget(log_);
  }
  Q_EMIT ended();
}

void RunView::show_report(RunReport report) {
  measured_->show_report(report);
  tabs_->setCurrentWidget(measured_);
  report_ = std::move(report);
}

void RunView::open_report(QString path) {
  if (running()) return show_status("A run is in progress: stop it first.", Paint::warning);
  Result<RunReport> report = read_run_report(path.toStdString());
  if (!report) return show_status(QString::fromStdString(report.error().message()), Paint::bad);
  charts_->clear();
  log_->clear();
  for (const RunStep& step : report->steps) {
    charts_->add(step);
    for (const std::string& note : step.notes) {
      log_->appendPlainText(
          QString("step %1: %2").arg(step.step).arg(QString::fromStdString(note)));
    }
  }
  charts_->draw();
  if (!report->steps.empty()) chart_page_->show_content();
  progress_->setRange(0, 1);
  progress_->setValue(report->end == RunReport::End::completed ? 1 : 0);
  show_status("Report " + path, Paint::plain);
  report_is_unsaved_ = false;
  show_report(*std::move(report));
}

bool RunView::confirm_drop_report() {
  if (!report_is_unsaved_) return true;
  QMessageBox box(QMessageBox::Question, "Save the report?",
                  "The report of the last run is not saved.",
                  QMessageBox::Save | QMessageBox::Discard | QMessageBox::Cancel, this);
  const int answer = box.exec();
  if (answer == QMessageBox::Discard) return true;
  if (answer != QMessageBox::Save) return false;
  const QString path =
      QFileDialog::getSaveFileName(this, "Save report", "report.json", "Run reports (*.json)");
  if (path.isEmpty()) return false;
  QFile::remove(path);  // the dialog has asked already
  if (!QFile::copy(report_path_, path)) {
    show_status(path + " cannot be written", Paint::bad);
    return false;
  }
  report_is_unsaved_ = false;
  return true;
}

void RunView::choose_report() {
  if (!confirm_drop_report()) return;
  const QString path =
      QFileDialog::getOpenFileName(this, "Open a run report", {}, "Run reports (*.json)");
  if (!path.isEmpty()) open_report(path);
}

void RunView::show_status(const QString& text, Paint paint) {
  QPalette colours = palette();
  if (paint == Paint::good) colours.setColor(QPalette::WindowText, good_colour(palette()));
  if (paint == Paint::warning) colours.setColor(QPalette::WindowText, warning_colour(palette()));
  if (paint == Paint::bad) colours.setColor(QPalette::WindowText, error_colour(palette()));
  status_->setPalette(colours);
  status_->setText(text);
}

}  // namespace echelon::gui
