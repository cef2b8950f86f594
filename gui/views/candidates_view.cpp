#include "gui/views/candidates_view.hpp"

#include <QAction>
#include <QClipboard>
#include <QFileDialog>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QKeyEvent>
#include <QMessageBox>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>
#include <set>
#include <utility>

#include "core/base/files.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"
#include "report/csv/plans_csv.hpp"
#include "report/format.hpp"
#include "report/trade_offs.hpp"

namespace echelon::gui {

CandidatesView::CandidatesView(QWidget* parent)
    : QWidget(parent),
      model_(new CandidatesModel(this)),
      shown_(new FilteredCandidates(*model_, this)),
      filter_(new QLineEdit),
      count_(new QLabel),
      reason_(new QLabel),
      fastest_(new QLabel),
      table_(new QTableView),
      page_(new EmptyState("No plans yet: choose a model and a cluster on the left.", table_)) {
  setAccessibleName("Plans of the search");
  filter_->setPlaceholderText("filter: tp=8 step<2s fits");
  filter_->setClearButtonEnabled(true);
  filter_->setAccessibleName("Filter of plans");
  filter_->setToolTip(
      "conditions separated by blanks; all must hold\n"
      "degrees: tp=8 dp>=16 zero!=3\n"
      "metrics: step<2s memory<=70GiB fits>=90% mfu>40% tokens>400k headroom cost token-cost\n"
      "gpu-hours\n"
      "choices: recompute=none schedule=1f1b sp=yes; fits, front, tied\n"
      "other words must occur in the description of the plan");
  count_->setObjectName("count");
  reason_->setObjectName("reason");
  reason_->setTextFormat(Qt::PlainText);
  reason_->setWordWrap(true);
  reason_->hide();

  fastest_->setObjectName("fastest");
  fastest_->setWordWrap(true);
  fastest_->setTextFormat(Qt::RichText);
  fastest_->hide();
  connect(fastest_, &QLabel::linkActivated, this, [this] {
    if (model_->space() && model_->space()->report.fastest) {
      Q_EMIT chosen(*model_->space()->report.fastest);
    }
  });

  set_up_table();
  auto* button = new QToolButton;
  button->setText("CSV …");
  button->setToolTip("save the filtered plans as CSV");
  button->setAccessibleName("Save as CSV");
  connect(button, &QToolButton::clicked, this, &CandidatesView::export_csv);

  auto* bar = new QHBoxLayout;
  bar->addWidget(filter_, 1);
  bar->addWidget(count_);
  bar->addWidget(button);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addLayout(bar);
  layout->addWidget(reason_);
  layout->addWidget(fastest_);
  layout->addWidget(page_, 1);

  connect(filter_, &QLineEdit::textChanged, this, &CandidatesView::filter_changed);
  connect(filter_, &QLineEdit::returnPressed, table_, [this] { table_->setFocus(); });
  connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
          [this](const QModelIndex& now) { row_chosen(now); });
}

void CandidatesView::set_up_table() {
  table_->setModel(shown_);
  table_->setAccessibleName("Table of plans");
  table_->setSortingEnabled(true);
  table_->setAlternatingRowColors(true);
  table_->setShowGrid(false);
  table_->setSelectionBehavior(QAbstractItemView::SelectRows);
  table_->setWordWrap(false);
  table_->verticalHeader()->hide();
  table_->verticalHeader()->setSectionResizeMode(QHeaderView::Fixed);
  table_->verticalHeader()->setDefaultSectionSize(table_->fontMetrics().height() + 6);
  table_->horizontalHeader()->setSectionsMovable(true);
  for (int column = 0; column < model_->columnCount(); ++column) {  // cost columns last
    if (CandidatesModel::follows_from_step(column)) {
      table_->horizontalHeader()->moveSection(table_->horizontalHeader()->visualIndex(column),
                                              model_->columnCount() - 1);
    }
  }
  table_->horizontalHeader()->setHighlightSections(false);
  table_->setTabKeyNavigation(false);
  table_->sortByColumn(0, Qt::AscendingOrder);
  auto* copy = new QAction("Copy rows\t" + QKeySequence(QKeySequence::Copy).toString(), table_);
  table_->installEventFilter(this);  // the table would copy a single cell
  connect(copy, &QAction::triggered, this, &CandidatesView::copy_rows);
  auto* save = new QAction("Save the filtered plans as CSV …", this);
  connect(save, &QAction::triggered, this, &CandidatesView::export_csv);
  table_->addActions({copy, save});
  table_->setContextMenuPolicy(Qt::ActionsContextMenu);
}

void CandidatesView::show_space(SpaceResultPtr space) {
  marking_ = true;
  model_->show_space(std::move(space));
  marking_ = false;
  if (model_->rowCount() > 0) {
    fit_columns();
    page_->show_content();
  } else if (model_->space()) {
    page_->show_message("Nothing fits: the Rejected tab shows the reasons.");
  } else {
    page_->show_message("No plans yet: choose a model and a cluster on the left.");
  }
  count_rows();
  show_fastest();
}

/// What the winner gives up, and a link that loads the plan it gives it up to.
void CandidatesView::show_fastest() {
  const SpaceResultPtr& space = model_->space();
  fastest_->setVisible(space && space->report.fastest.has_value());
  if (fastest_->isHidden()) return;
  const Candidate& fastest = *space->report.fastest;
  const Candidate& winner = *space->report.winner();
  fastest_->setText(tr("<a href=\"#\">Fastest plan</a> %1: %2 a step to the winner, but it %3.")
                        .arg(qt_text(described(fastest.plan, {})).toHtmlEscaped(),
                             qt_text(signed_percent(
                                 fastest.prediction.time.step / winner.prediction.time.step - 1)),
                             qt_text(drawbacks(fastest, winner))));
}

/// Column widths from the header and the first rows, because all rows would take longer than
/// drawing.
void CandidatesView::fit_columns() {
  constexpr int kSampleRows = 30;
  QFont bold = table_->font();  // the marked row's
  bold.setBold(true);
  const QFontMetrics metrics(bold);
  for (int column = 0; column < model_->columnCount(); ++column) {
    table_->setColumnHidden(column, model_->is_trivial(column));
    int width = metrics.horizontalAdvance(
        model_->headerData(column, Qt::Horizontal, Qt::DisplayRole).toString());
    width += 20;  // the arrow of the sorted column
    for (int row = 0; row < std::min(kSampleRows, model_->rowCount()); ++row) {
      const QString text = model_->index(row, column).data().toString();
      width = std::max(width, metrics.horizontalAdvance(text) + 14);
    }
    table_->setColumnWidth(column, width);
  }
}

void CandidatesView::mark(const Candidate& candidate) {
  const ParallelPlan& plan = candidate.plan;
  model_->mark(plan);
  const std::optional<int> row = model_->row_of(plan);
  const QModelIndex index = row ? shown_->mapFromSource(model_->index(*row, 0)) : QModelIndex();
  marking_ = true;
  if (index.isValid()) {
    table_->setCurrentIndex(index);
    table_->scrollTo(index);
  } else {
    table_->selectionModel()->clear();
  }
  marking_ = false;
}

void CandidatesView::row_chosen(const QModelIndex& index) {
  if (marking_ || !index.isValid()) return;
  Q_EMIT chosen(*model_->plan_at(shown_->mapToSource(index).row()).candidate);
}

void CandidatesView::filter_changed(const QString& text) {
  Result<cli::PlanFilter> filter = cli::PlanFilter::parse(text.toStdString(), "filter");
  const bool wrong = !filter;
  QPalette palette = filter_->palette();
  palette.setColor(QPalette::Text,
                   wrong ? error_colour(this->palette()) : this->palette().color(QPalette::Text));
  filter_->setPalette(palette);
  reason_->setVisible(wrong);
  if (!filter) {
    QPalette colours = reason_->palette();
    colours.setColor(QPalette::WindowText, error_colour(this->palette()));
    reason_->setPalette(colours);
    reason_->setText(QString::fromStdString(filter.error().message()));
    return;  // the last valid filter stays
  }
  marking_ = true;  // the current row may be filtered out
  shown_->set_filter(*std::move(filter));
  marking_ = false;
  count_rows();
}

void CandidatesView::count_rows() {
  const int all = model_->rowCount();
  const int kept = shown_->rowCount();
  QString text = all == 0 ? "" : QString::fromStdString(counted(all, "plan"));
  if (kept != all) text = QString("%1 of %2").arg(kept).arg(text);
  count_->setText(text);
}

QString CandidatesView::selected_rows() const {
  std::set<int> rows;
  for (const QModelIndex& index : table_->selectionModel()->selectedRows())
    rows.insert(index.row());
  const QHeaderView& header = *table_->horizontalHeader();
  QString text;
  const auto line = [&](const auto& cell) {
    QStringList cells;
    for (int visual = 0; visual < header.count(); ++visual) {
      const int column = header.logicalIndex(visual);
      if (!header.isSectionHidden(column)) cells << cell(column);
    }
    text += cells.join('\t') + '\n';
  };
  if (rows.empty()) return text;
  line([&](int column) { return shown_->headerData(column, Qt::Horizontal).toString(); });
  for (const int row : rows) {
    line([&](int column) { return shown_->index(row, column).data().toString(); });
  }
  return text;
}

void CandidatesView::copy_rows() const {
  const QString text = selected_rows();
  if (!text.isEmpty()) QGuiApplication::clipboard()->setText(text);
}

std::string CandidatesView::csv() const {
  if (!model_->space()) return {};
  std::vector<RankedPlan> plans;
  for (int row = 0; row < shown_->rowCount(); ++row) {
    plans.push_back(model_->plan_at(shown_->mapToSource(shown_->index(row, 0)).row()));
  }
  return plans_csv(model_->space()->resolved.request, plans);
}

Status CandidatesView::save_csv(const QString& path) const {
  return write_file(path.toStdString(), csv());
}

void CandidatesView::export_csv() {
  const QString path =
      QFileDialog::getSaveFileName(this, "Save plans", "plans.csv", "Tables (*.csv)");
  if (path.isEmpty()) return;
  if (const Status saved = save_csv(path); !saved) {
    QMessageBox::warning(this, "Save plans", QString::fromStdString(saved.error().message()));
  }
}

bool CandidatesView::eventFilter(QObject* watched, QEvent* event) {
  if (watched == table_ && event->type() == QEvent::KeyPress &&
      static_cast<QKeyEvent*>(event)->matches(QKeySequence::Copy)) {
    copy_rows();
    return true;
  }
  return QWidget::eventFilter(watched, event);
}

void CandidatesView::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() == QEvent::PaletteChange) filter_changed(filter_->text());
}

}  // namespace echelon::gui
