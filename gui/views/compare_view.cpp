#include "gui/views/compare_view.hpp"

#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "gui/canvas/theme.hpp"
#include "planner/economics.hpp"
#include "report/format.hpp"
#include "report/metrics.hpp"
#include "report/plan_files.hpp"

namespace echelon::gui {
namespace {

constexpr const char* kNothingToCompare =
    "Pin a plan (K), then choose another one: both appear here side by side.";

Paint paint_of_change(double change, bool less_is_better) {
  constexpr double kSame = 1e-4;
  if (std::abs(change) < kSame) return Paint::dim;
  return (change < 0) == less_is_better ? Paint::good : Paint::bad;
}

QString plain(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

}  // namespace

CompareView::CompareView(QWidget* parent)
    : QWidget(parent),
      summary_(new QLabel),
      a_(new QLabel),
      b_(new QLabel),
      table_(new ComparisonTable("A", "B", "B - A", "Two plans side by side")),
      page_(nullptr) {
  setAccessibleName("Comparison of two plans");
  auto* content = new QWidget;
  auto* inner = new QVBoxLayout(content);
  inner->setContentsMargins(6, 6, 6, 6);
  inner->setSpacing(4);
  QFont bold = font();
  bold.setBold(true);
  summary_->setFont(bold);
  for (QLabel* label : {summary_, a_, b_}) {
    label->setWordWrap(true);
    label->setTextFormat(Qt::PlainText);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    inner->addWidget(label);
  }
  inner->addWidget(table_, 1);
  page_ = new EmptyState(kNothingToCompare, content);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(page_);
}

void CompareView::show_pair(PlanResultPtr a, PlanResultPtr b) {
  table_->clear();
  if (!a || !b) return page_->show_message(kNothingToCompare);
  const PlanFile x = plan_file_of(a->resolved.request, a->candidate, a->resolved.provenance);
  const PlanFile y = plan_file_of(b->resolved.request, b->candidate, b->resolved.provenance);
  QString summary = QString::fromStdString(faster_of(x, y));
  for (const auto& [letter, side] : {std::pair{"A", &x}, std::pair{"B", &y}}) {
    if (!side->predicted.fits)
      summary += QString(" %1 does not fit into the memory of its GPUs.").arg(letter);
  }
  summary_->setText(summary);
  a_->setText("A  " + QString::fromStdString(described(x.plan, {})));
  b_->setText("B  " + QString::fromStdString(described(y.plan, {})));

  show_differences(x, y);
  show_figures(*a, *b);
  show_time(x.predicted, y.predicted);
  show_memory(x.predicted, y.predicted);
  page_->show_content();
}

void CompareView::show_differences(const PlanFile& x, const PlanFile& y) {
  QVector<ComparisonTable::Row> differences;
  for (const FieldDelta& row : field_deltas(x, y)) {
    differences.push_back({.name = plain(row.name),
                           .a = QString::fromStdString(row.a),
                           .b = QString::fromStdString(row.b),
                           .change = {},
                           .tip = {}});
  }
  table_->add_section(differences.isEmpty() ? "The plans are the same" : "What differs",
                      "settings and plan values that differ between A and B", differences);
}

void CompareView::show_time(const Prediction& x, const Prediction& y) {
  const Seconds longest = std::max(x.time.total(), y.time.total());
  QVector<ComparisonTable::Row> times;
  for (const TimeDelta& row : part_deltas(x.time, y.time)) {
    times.push_back({.name = plain(row.name),
                     .a = QString::fromStdString(duration(row.a)),
                     .b = QString::fromStdString(duration(row.b)),
                     .change = QString::fromStdString(signed_duration(row.b - row.a)),
                     .paint = paint_of_change((row.b - row.a) / longest, true),
                     .size_a = row.a / longest,
                     .size_b = row.b / longest,
                     .sum = row.name == "step",
                     .tip = {}});
  }
  table_->add_section(
      "Time of one step",
      "parts of the step, averaged over the stages; only exposed communication counts "
      "(docs/formulas.md)",
      times);
}

void CompareView::show_memory(const Prediction& x, const Prediction& y) {
  const Bytes largest = std::max(x.peak_reserved, y.peak_reserved);
  QVector<ComparisonTable::Row> memory;
  for (const MemoryDelta& row : fullest_stage_deltas(x, y)) {
    const Bytes change = row.b - row.a;
    memory.push_back(
        {.name = plain(row.name),
         .a = QString::fromStdString(with_gib(row.a)),
         .b = QString::fromStdString(with_gib(row.b)),
         .change = (change > Bytes{} ? "+" : "") + QString::fromStdString(with_gib(change)),
         .paint = paint_of_change(change / largest, true),
         .size_a = row.a / largest,
         .size_b = row.b / largest,
         .sum = row.name == "total",
         .tip = {}});
  }
  table_->add_section("Memory of the fullest GPU",
                      "of the stage with the highest peak; reserved: including the cache of the "
                      "allocator (docs/formulas.md)",
                      memory);
}

void CompareView::show_figures(const PlanResult& a, const PlanResult& b) {
  QVector<ComparisonTable::Row> rows;
  for (const MetricInfo& facts : metrics()) {
    const auto value = [&](const PlanResult& side) {
      const PlanRequest& request = side.resolved.request;
      return value_of(facts.figure, request, side.candidate,
                      economics_of(request, side.candidate.prediction.time));
    };
    const auto x = value(a);
    const auto y = value(b);
    if (!x && !y) continue;
    const auto words = [&](const std::optional<double>& known) {
      return known ? QString::fromStdString(format(facts.figure, *known)) : QString("unknown");
    };
    ComparisonTable::Row row{.name = plain(facts.title),
                             .a = words(x),
                             .b = words(y),
                             .change = {},
                             .tip = plain(facts.title) + " = " + plain(facts.formula)};
    if (x && y && *x != 0) {
      const double change = (*y - *x) / std::abs(*x);
      const double larger = std::max(std::abs(*x), std::abs(*y));
      row.change = QString::fromStdString(signed_percent(change));
      row.paint = facts.figure == Metric::gpus ? Paint::plain
                                               : paint_of_change(change, facts.less_is_better);
      row.size_a = std::abs(*x) / larger;
      row.size_b = std::abs(*y) / larger;
    }
    rows.push_back(row);
  }
  table_->add_section("Metrics", "time, memory, efficiency and cost", rows);
}

}  // namespace echelon::gui
