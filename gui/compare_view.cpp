#include "gui/compare_view.hpp"

#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "gui/theme.hpp"
#include "planner/economics.hpp"
#include "report/format.hpp"
#include "report/metrics.hpp"
#include "report/plan_files.hpp"

namespace echelon::gui {
namespace {

constexpr const char* kNothingToCompare =
    "Pin two plans to compare them: pin one, choose another, and both stand here side by side.";

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
      verdict_(new QLabel),
      a_(new QLabel),
      b_(new QLabel),
      table_(new BesideView("A", "B", "B - A", "Two plans side by side")),
      page_(nullptr) {
  setAccessibleName("Comparison of two plans");
  auto* content = new QWidget;
  auto* inner = new QVBoxLayout(content);
  inner->setContentsMargins(6, 6, 6, 6);
  inner->setSpacing(4);
  QFont bold = font();
  bold.setBold(true);
  verdict_->setFont(bold);
  for (QLabel* label : {verdict_, a_, b_}) {
    label->setWordWrap(true);
    label->setTextFormat(Qt::PlainText);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    inner->addWidget(label);
  }
  inner->addWidget(table_, 1);
  page_ = new Placeholder(kNothingToCompare, content);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(page_);
}

void CompareView::show_pair(PlanShown a, PlanShown b) {
  table_->clear();
  if (!a || !b) return page_->show_sentence(kNothingToCompare);
  const PlanFile x = plan_file_of(a->asked.request, a->candidate, a->asked.provenance);
  const PlanFile y = plan_file_of(b->asked.request, b->candidate, b->asked.provenance);
  QString verdict = QString::fromStdString(faster_of(x, y));
  for (const auto& [letter, side] : {std::pair{"A", &x}, std::pair{"B", &y}}) {
    if (!side->predicted.fits)
      verdict += QString(" %1 does not fit into the memory of its GPUs.").arg(letter);
  }
  verdict_->setText(verdict);
  a_->setText("A  " + QString::fromStdString(described(x.plan, {})));
  b_->setText("B  " + QString::fromStdString(described(y.plan, {})));

  QVector<BesideView::Row> differences;
  for (const FieldDelta& row : field_deltas(x, y)) {
    differences.push_back({.name = plain(row.name),
                           .a = QString::fromStdString(row.a),
                           .b = QString::fromStdString(row.b),
                           .change = {},
                           .tip = {}});
  }
  table_->add_section(differences.isEmpty() ? "The plans are the same" : "What differs",
                      "what was asked and chosen, where A and B are not alike", differences);
  show_figures(*a, *b);

  const Seconds longest = std::max(x.predicted.time.total(), y.predicted.time.total());
  QVector<BesideView::Row> times;
  for (const TimeDelta& row : part_deltas(x.predicted.time, y.predicted.time)) {
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
  table_->add_section("Time of one step",
                      "parts of a step, means of the stages; communication counts as far "
                      "as compute waits for it (docs/formulas.md)",
                      times);

  const Bytes largest = std::max(x.predicted.peak_reserved, y.predicted.peak_reserved);
  QVector<BesideView::Row> memory;
  for (const MemoryDelta& row : fullest_stage_deltas(x.predicted, y.predicted)) {
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
                      "of the stage that needs most; reserved: with what the caching allocator "
                      "holds beyond (docs/formulas.md)",
                      memory);
  page_->show_content();
}

void CompareView::show_figures(const ShownPlan& a, const ShownPlan& b) {
  QVector<BesideView::Row> rows;
  for (const MetricInfo& facts : metrics()) {
    const auto value = [&](const ShownPlan& side) {
      const PlanRequest& request = side.asked.request;
      return value_of(facts.figure, request, side.candidate,
                      economics_of(request, side.candidate.prediction.time.step));
    };
    const auto x = value(a);
    const auto y = value(b);
    if (!x && !y) continue;
    const auto words = [&](const std::optional<double>& known) {
      return known ? QString::fromStdString(format(facts.figure, *known)) : QString("unknown");
    };
    BesideView::Row row{.name = plain(facts.title),
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
  table_->add_section("Figures", "what plans are weighed by", rows);
}

}  // namespace echelon::gui
