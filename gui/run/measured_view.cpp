#include "gui/run/measured_view.hpp"

#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "report/format.hpp"
#include "report/run.hpp"

namespace echelon::gui {
namespace {

/// "+3.1 %": error of a prediction versus the measurement, as in the text report.
template <class Part>
void set_error(ComparisonTable::Row& row, Part measured, Part predicted) {
  constexpr double kGood = 0.1;
  if (measured == Part{} || predicted == Part{}) return;
  const double error = predicted / measured - 1;
  row.change = QString::fromStdString(signed_percent(error));
  row.paint = std::abs(error) <= kGood ? Paint::good : Paint::warning;
}

QString in_words(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

QString in_mib(Bytes bytes) { return QString::number(bytes.in(1_MiB), 'f', 2) + " MiB"; }

}  // namespace

MeasuredView::MeasuredView(QWidget* parent)
    : QWidget(parent),
      summary_(new QLabel),
      table_(new ComparisonTable("measured", "predicted", "prediction error",
                                 "Measured versus predicted")),
      advice_(new QLabel),
      page_(nullptr) {
  setAccessibleName("Measured versus predicted");
  auto* content = new QWidget;
  auto* inner = new QVBoxLayout(content);
  inner->setContentsMargins(6, 6, 6, 6);
  for (QLabel* label : {summary_, advice_}) {
    label->setWordWrap(true);
    label->setTextFormat(Qt::PlainText);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
  }
  inner->addWidget(summary_);
  inner->addWidget(table_, 1);
  inner->addWidget(advice_);
  page_ =
      new EmptyState("No run yet: measured and predicted values appear here after a run.", content);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(page_);
}

void MeasuredView::show_nothing(const QString& message) { page_->show_message(message); }

void MeasuredView::show_report(const RunReport& report) {
  table_->clear();
  summary_->setText(QString::fromStdString(run_summary(report)).trimmed());
  QStringList advice;
  for (const std::string& sentence : report.advice)
    advice << QString::fromStdString(sentence) + ".";
  if (report.schedule_hash != report.executed_hash && report.end == RunReport::End::completed)
    advice << "The executed program differs from the plan's.";
  if (report.process_peak > Bytes{}) {
    advice << "Peak memory of the process: " +
                  QString::fromStdString(with_gib(report.process_peak)) + ".";
  }
  advice_->setText(advice.join('\n'));
  advice_->setVisible(!advice.isEmpty());
  if (!report.measured) {
    return page_->show_message(
        summary_->text() + ". No step was measured: the first two steps of a run are excluded.");
  }
  show_time(report.measured->time, report.plan.predicted.time);
  show_memory(*report.measured, report.plan.predicted);
  page_->show_content();
}

void MeasuredView::show_time(const CostBreakdown& measured, const CostBreakdown& predicted) {
  const Seconds longest = std::max(measured.total(), predicted.total());
  QVector<ComparisonTable::Row> rows;
  for (const TimeDelta& part : part_deltas(measured, predicted)) {
    ComparisonTable::Row row{.name = in_words(part.name),
                             .a = QString::fromStdString(duration(part.a)),
                             .b = QString::fromStdString(duration(part.b)),
                             .change = {},
                             .size_a = part.a / longest,
                             .size_b = part.b / longest,
                             .sum = part.name == "step",
                             .tip = {}};
    set_error(row, part.a, part.b);
    rows.push_back(row);
  }
  table_->add_section("Time of one step",
                      "the median measured step, averaged over the stages and their ranks; waiting "
                      "counts as the part that is waited for (docs/run.md)",
                      rows);
}

void MeasuredView::show_memory(const Prediction& measured, const Prediction& predicted) {
  Bytes largest = 1_B;
  for (const Prediction* costs : {&measured, &predicted}) {
    for (const MemoryBreakdown& stage : costs->stages) largest = std::max(largest, stage.total());
  }
  for (std::size_t stage = 0; stage < measured.stages.size(); ++stage) {
    QVector<ComparisonTable::Row> rows;
    for (const MemoryDelta& part : part_deltas(measured.stages[stage], predicted.stages[stage])) {
      ComparisonTable::Row row{.name = in_words(part.name),
                               .a = in_mib(part.a),
                               .b = in_mib(part.b),
                               .change = {},
                               .size_a = part.a / largest,
                               .size_b = part.b / largest,
                               .sum = part.name == "total",
                               .tip = {}};
      set_error(row, part.a, part.b);
      rows.push_back(row);
    }
    table_->add_section(QString("Memory of a rank of stage %1").arg(stage),
                        "counted per allocated block, before the first step (docs/run.md)", rows);
  }
}

}  // namespace echelon::gui
