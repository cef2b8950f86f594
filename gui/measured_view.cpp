#include "gui/measured_view.hpp"

#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "report/format.hpp"
#include "report/run.hpp"

namespace echelon::gui {
namespace {

/// "+3.1 %" of a prediction against what was measured, as the report in text says it.
template <class Part>
void tell_error(BesideView::Row& row, Part measured, Part predicted) {
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
      table_(new BesideView("measured", "predicted", "error of the prediction",
                            "Measured beside predicted")),
      advice_(new QLabel),
      page_(nullptr) {
  setAccessibleName("Measured beside predicted");
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
  page_ = new Placeholder("No run yet: measured stands beside predicted here when one has ended.",
                          content);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(page_);
}

void MeasuredView::show_nothing(const QString& sentence) { page_->show_sentence(sentence); }

void MeasuredView::show_report(const RunReport& report) {
  table_->clear();
  summary_->setText(QString::fromStdString(run_summary(report)).trimmed());
  QStringList advice;
  for (const std::string& sentence : report.advice)
    advice << QString::fromStdString(sentence) + ".";
  if (report.schedule_hash != report.executed_hash && report.end == RunReport::End::completed)
    advice << "What was executed is NOT the plan's program.";
  if (report.process_peak > Bytes{}) {
    advice << "The operating system saw at most " +
                  QString::fromStdString(with_gib(report.process_peak)) + " in all.";
  }
  advice_->setText(advice.join('\n'));
  advice_->setVisible(!advice.isEmpty());
  if (!report.measured) {
    return page_->show_sentence(summary_->text() +
                                ". No step was measured: the first two of a run are not.");
  }
  const Prediction& measured = *report.measured;
  const Prediction& predicted = report.plan.predicted;
  const Seconds longest = std::max(measured.time.total(), predicted.time.total());
  QVector<BesideView::Row> times;
  for (const TimeDelta& part : part_deltas(measured.time, predicted.time)) {
    BesideView::Row row{.name = in_words(part.name),
                        .a = QString::fromStdString(duration(part.a)),
                        .b = QString::fromStdString(duration(part.b)),
                        .change = {},
                        .size_a = part.a / longest,
                        .size_b = part.b / longest,
                        .sum = part.name == "step",
                        .tip = {}};
    tell_error(row, part.a, part.b);
    times.push_back(row);
  }
  table_->add_section(
      "Time of one step",
      "the median measured step, mean over the stages and the ranks of each; waiting "
      "counts for what is waited for (docs/run.md)",
      times);
  Bytes largest = 1_B;
  for (const Prediction* costs : {&measured, &predicted}) {
    for (const MemoryBreakdown& stage : costs->stages) largest = std::max(largest, stage.total());
  }
  for (std::size_t stage = 0; stage < measured.stages.size(); ++stage) {
    QVector<BesideView::Row> memory;
    for (const MemoryDelta& part : part_deltas(measured.stages[stage], predicted.stages[stage])) {
      BesideView::Row row{.name = in_words(part.name),
                          .a = in_mib(part.a),
                          .b = in_mib(part.b),
                          .change = {},
                          .size_a = part.a / largest,
                          .size_b = part.b / largest,
                          .sum = part.name == "total",
                          .tip = {}};
      tell_error(row, part.a, part.b);
      memory.push_back(row);
    }
    table_->add_section(QString("Memory of a rank of stage %1").arg(stage),
                        "counted block by block as it is allocated, before the first step "
                        "(docs/run.md)",
                        memory);
  }
  page_->show_content();
}

}  // namespace echelon::gui
