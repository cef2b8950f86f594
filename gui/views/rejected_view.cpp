#include "gui/views/rejected_view.hpp"

#include <QHeaderView>
#include <QSplitter>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "gui/canvas/bar_delegate.hpp"
#include "gui/canvas/theme.hpp"
#include "report/format.hpp"
#include "report/text/text.hpp"
#include "report/trade_offs.hpp"

namespace echelon::gui {
namespace {

constexpr const char* kNothingSearched =
    "No search yet: the rejected combinations and the reasons appear here.";

QTreeWidget* list_of(const QStringList& titles, const char* name) {
  auto* list = new QTreeWidget;
  list->setHeaderLabels(titles);
  list->setAccessibleName(name);
  list->setRootIsDecorated(false);
  for (const int column : {1, 2})
    list->headerItem()->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  list->setUniformRowHeights(true);
  list->setAlternatingRowColors(true);
  list->setFrameShape(QFrame::NoFrame);
  list->setItemDelegate(new BarDelegate(list));
  list->header()->setMinimumSectionSize(40);
  return list;
}

/// One outcome of a combination.
struct OutcomeRow {
  QString name;
  std::int64_t count = 0;
  QString nearest;
  QString tip;
  int colour = 0;  ///< of series_colour()
};

std::vector<OutcomeRow> outcomes_of(const SearchOutcome& report) {
  const SearchCounts& counts = report.counts;
  std::vector<OutcomeRow> all;
  for (const RejectionCount& each : report.rejected) {
    all.push_back({QString::fromStdString(std::string(name_of(each.reason))), each.count,
                   QString::fromStdString(each.nearest),
                   QString::fromStdString(std::string(describe(each.reason))), 5});
  }
  std::ranges::stable_sort(all, std::greater<>{}, &OutcomeRow::count);
  std::vector<OutcomeRow> first = {
      {"fits", counts.fitting, "",
       "legal, and fits with or without recomputation: priced and ranked", 2},
      {"pruned by its bound", counts.bounded, "",
       "not priced: its lower bounds on time and memory already exclude it from the list and the "
       "Pareto front (docs/search.md)",
       0}};
  all.insert(all.begin(), first.begin(), first.end());
  return all;
}

}  // namespace

RejectedView::RejectedView(QWidget* parent)
    : QWidget(parent),
      proof_(new QLabel),
      reasons_(
          list_of({"outcome", "count", "share", "nearest example"}, "Combinations by outcome")),
      lower_(new QWidget),
      misses_(list_of({"plan that almost fits", "stage", "missing", "fits with"},
                      "Plans that almost fit")),
      page_(nullptr) {
  setAccessibleName("Rejected configurations");
  misses_->setObjectName("misses");
  proof_->setWordWrap(true);
  proof_->setTextFormat(Qt::PlainText);
  QFont bold = font();
  bold.setBold(true);
  auto* title = new QLabel("Plans that almost fit, and the single change that makes each fit");
  title->setFont(bold);
  title->setWordWrap(true);
  auto* below = new QVBoxLayout(lower_);
  below->setContentsMargins(0, 0, 0, 0);
  below->addWidget(title);
  below->addWidget(misses_, 1);
  auto* halves = new QSplitter(Qt::Vertical);
  halves->addWidget(reasons_);
  halves->addWidget(lower_);
  halves->setChildrenCollapsible(false);
  auto* content = new QWidget;
  auto* inner = new QVBoxLayout(content);
  inner->setContentsMargins(6, 6, 6, 6);
  inner->addWidget(proof_);
  inner->addWidget(halves, 1);
  page_ = new EmptyState(kNothingSearched, content);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(page_);
  connect(misses_, &QTreeWidget::itemActivated, this, [this](QTreeWidgetItem* item) {
    const auto row = static_cast<std::size_t>(misses_->indexOfTopLevelItem(item));
    if (space_) Q_EMIT chosen(space_->report.nearest_infeasible[row].candidate);
  });
}

void RejectedView::show_space(SpaceResultPtr space) {
  space_ = std::move(space);
  reasons_->clear();
  misses_->clear();
  if (!space_) return page_->show_message(kNothingSearched);
  const SearchOutcome& report = space_->report;
  proof_->setText(QString::fromStdString(
      report.winner() != nullptr
          ? proof_of(report)
          : "Nothing fits: all " + counted(report.counts.too_large, "legal combination") +
                " need more of one " + space_->resolved.request.cluster.gpu().name + ": " +
                limit_text(space_->resolved.request) + "."));
  const std::vector<OutcomeRow> outcomes = outcomes_of(report);
  std::int64_t most = 1;
  for (const OutcomeRow& outcome : outcomes) most = std::max(most, outcome.count);
  const auto points = static_cast<double>(std::max<std::int64_t>(report.counts.points, 1));
  for (const OutcomeRow& outcome : outcomes) {
    const auto count = static_cast<double>(outcome.count);
    auto* item = new QTreeWidgetItem(
        reasons_, {outcome.name, QString::fromStdString(grouped(outcome.count)),
                   QString::fromStdString(percent(count / points)), outcome.nearest});
    for (const int column : {1, 2})
      item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
    for (const int column : {0, 1, 2}) item->setToolTip(column, outcome.tip);
    item->setToolTip(3, outcome.nearest);
    item->setData(1, BarDelegate::kShareRole, count / static_cast<double>(most));
    item->setData(1, BarDelegate::kColourRole, series_colour(outcome.colour));
  }
  lower_->setVisible(!report.nearest_infeasible.empty());
  for (const NearestInfeasible& miss : report.nearest_infeasible) {
    const QString plan = QString::fromStdString(described(miss.candidate.plan, {}));
    auto* item = new QTreeWidgetItem(
        misses_, {plan, QString::number(miss.stage), QString::fromStdString(with_gib(miss.missing)),
                  QString::fromStdString(fixes_text(miss))});
    for (const int column : {1, 2})
      item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
    item->setToolTip(0, plan);
    item->setToolTip(2, "reserved memory of the stage minus the limit");
    item->setToolTip(3, item->text(3));
  }
  page_->show_content();
  fit_columns();
}

void RejectedView::fit_columns() {
  const QFontMetrics metrics(reasons_->font());
  const auto digits = [&](const char* widest) { return metrics.horizontalAdvance(widest) + 24; };
  const int width = reasons_->viewport()->width();
  reasons_->resizeColumnToContents(0);
  reasons_->setColumnWidth(0, std::min(reasons_->columnWidth(0) + 8, width / 3));
  reasons_->setColumnWidth(1, std::max(digits("0,000,000,000"), width / 5));
  reasons_->setColumnWidth(2, digits("100.0 %"));
  misses_->setColumnWidth(0, width * 3 / 5);
  misses_->setColumnWidth(1, digits("stage"));
  misses_->setColumnWidth(2, digits("000.0 GiB"));
}

void RejectedView::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  fit_columns();
}

}  // namespace echelon::gui
