// Runs a plan on this machine and shows what comes of it; shows reports of other runs, too.
#pragma once

#include <QLabel>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QScrollArea>
#include <QSplitter>
#include <QTabWidget>
#include <QTemporaryDir>
#include <QWidget>
#include <optional>

#include "core/run/run_report.hpp"
#include "gui/measured_view.hpp"
#include "gui/run_charts.hpp"
#include "gui/run_form.hpp"
#include "gui/run_process.hpp"

namespace echelon::gui {

class RunView : public QWidget {
  Q_OBJECT

 public:
  explicit RunView(QWidget* parent = nullptr);

  [[nodiscard]] bool running() const { return process_->running(); }
  /// The last report that was shown, and why the last one was not.
  [[nodiscard]] const std::optional<RunReport>& report() const { return report_; }
  [[nodiscard]] QString status() const { return status_->text(); }
  [[nodiscard]] RunForm& form() { return *form_; }
  [[nodiscard]] const RunProcess& process() const { return *process_; }
  /// Asks where the report shown is of a run whose report nobody kept; false: it stays.
  [[nodiscard]] bool may_drop_report();
  /// Another `plan` than the one beside this program.
  void use_program(const QString& path) { program_ = path; }

 public Q_SLOTS:
  /// Fills in a plan without running it.
  void propose(const QString& plan_path);
  /// Runs it with these flags of `plan run`; refused while another runs.
  void start(QString plan_path, QStringList flags);
  void stop();
  /// Shows a report of `plan run --report`; says why where it cannot.
  void open_report(QString path);

 Q_SIGNALS:
  void started();
  /// With or without a report.
  void ended();

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  void start_form();
  void hear(const RunEvent& event);
  void say(const QString& line, bool complaint);
  void over(int code);
  void show_report(RunReport report);
  void tell(const QString& text, Paint paint);
  void choose_report();
  void set_running(bool running);

  QString program_;
  RunForm* form_;
  RunProcess* process_;
  QPushButton* start_;
  QPushButton* stop_;
  QProgressBar* progress_;
  QLabel* status_;
  RunCharts* charts_;
  Placeholder* chart_page_;
  QPlainTextEdit* log_;
  MeasuredView* measured_;
  QTabWidget* tabs_;
  QScrollArea* settings_;
  QSplitter* halves_;
  QTemporaryDir scratch_;  ///< of a report nobody wanted kept
  QString report_path_;
  bool report_is_unsaved_ = false;
  QString last_complaint_;
  std::optional<std::int64_t> first_step_;
  std::optional<RunReport> report_;
};

}  // namespace echelon::gui
