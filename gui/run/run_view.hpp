// Runs a plan on this machine and shows its progress and report; also opens other reports.
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
#include "gui/run/measured_view.hpp"
#include "gui/run/run_charts.hpp"
#include "gui/run/run_form.hpp"
#include "gui/run/run_process.hpp"

namespace echelon::gui {

class RunView : public QWidget {
  Q_OBJECT

 public:
  explicit RunView(QWidget* parent = nullptr);

  [[nodiscard]] bool running() const { return process_->running(); }
  /// The last report shown, and the status line.
  [[nodiscard]] const std::optional<RunReport>& report() const { return report_; }
  [[nodiscard]] QString status() const { return status_->text(); }
  [[nodiscard]] RunForm& form() { return *form_; }
  [[nodiscard]] const RunProcess& process() const { return *process_; }
  /// Asks before an unsaved report is dropped; false: keep it.
  [[nodiscard]] bool confirm_drop_report();
  /// Uses another `plan` than the one next to this program.
  void use_program(const QString& path) { program_ = path; }

 public Q_SLOTS:
  /// Fills in the plan file without running it.
  void set_plan(const QString& plan_path);
  /// Runs it with these flags of `plan run`; refused during another run.
  void start(QString plan_path, QStringList flags);
  void stop();
  /// Shows a report of `plan run --report`, or the error.
  void open_report(QString path);

 Q_SIGNALS:
  void started();
  /// With or without a report.
  void ended();

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  void set_texts();
  [[nodiscard]] QWidget* build_results();
  void connect_widgets();
  void start_form();
  void handle_event(const RunEvent& event);
  void append_log(const QString& line, bool is_error);
  void handle_exit(std::optional<int> code);
  void show_report(RunReport report);
  void show_status(const QString& text, Paint paint);
  void choose_report();
  void set_running(bool running);

  QString program_;
  RunForm* form_;
  RunProcess* process_;
  QPushButton* start_;
  QPushButton* stop_;
  QPushButton* open_;
  QProgressBar* progress_;
  QLabel* status_;
  RunCharts* charts_;
  EmptyState* chart_page_;
  QPlainTextEdit* log_;
  MeasuredView* measured_;
  QTabWidget* tabs_;
  QScrollArea* settings_;
  QSplitter* halves_;
  QTemporaryDir scratch_;  ///< holds a temporary report
  QString report_path_;
  bool report_is_unsaved_ = false;
  QString last_error_;
  std::optional<std::int64_t> first_step_;
  std::optional<RunReport> report_;
};

}  // namespace echelon::gui
