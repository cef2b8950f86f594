#include "gui/views/candidates_model.hpp"

#include <QApplication>
#include <QColor>
#include <QFont>
#include <QPalette>
#include <limits>
#include <utility>

#include "gui/canvas/theme.hpp"
#include "report/format.hpp"
#include "report/metrics.hpp"

namespace echelon::gui {
namespace {

// Columns: rank, step, how much slower than the winner, the other figures, degrees, choices.
constexpr int kRank = 0;
constexpr int kStep = 1;
constexpr int kSlower = 2;
int first_degree() { return kSlower + static_cast<int>(metrics().size()); }
int first_choice() { return first_degree() + static_cast<int>(degrees().size()); }
enum Choices { kSequenceParallel, kRecompute, kSchedule, kChoices };

/// The metric of a column; null for others.
const MetricInfo* figure_of(int column) {
  if (column == kStep) return &metrics()[0];
  if (column <= kSlower || column >= first_degree()) return nullptr;
  return &metrics()[static_cast<std::size_t>(column - kSlower)];
}
const Degree* degree_of(int column) {
  if (column < first_degree() || column >= first_choice()) return nullptr;
  return &degrees()[static_cast<std::size_t>(column - first_degree())];
}
QString in_qt(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

QString header_text(int column) {
  if (column == kRank) return "rank";
  if (column == kSlower) return "slower";
  if (const MetricInfo* figure = figure_of(column)) return in_qt(figure->title);
  if (const Degree* degree = degree_of(column)) return in_qt(degree->name);
  static const char* const kNames[] = {"sp", "recompute", "schedule"};
  return kNames[column - first_choice()];
}

QString header_tip(int column) {
  if (column == kRank) {
    return "rank by the objective of the search; ★ winner, ≈ within the prediction error of the "
           "winner, ◆ on the Pareto front (no other plan is both faster and smaller), » the "
           "shortest step; plans that are not the best of their family have no rank";
  }
  if (column == kSlower) return "step / step of the winner - 1";
  if (const MetricInfo* figure = figure_of(column)) {
    return in_qt(figure->title) + " = " + in_qt(figure->formula) +
           "\nfilter: " + in_qt(figure->key) + "<…";
  }
  if (const Degree* degree = degree_of(column)) {
    return in_qt(degree->meaning) + "\nfilter: " + in_qt(degree->name) + "=…";
  }
  static const char* const kTips[] = {
      "sequence parallelism: norms and dropout are split over the tensor-parallel ranks\nfilter: "
      "sp=yes",
      "activation recomputation: none, full layers, or only the attention core (selective), with "
      "the number of layers per stage\nfilter: recompute=none",
      "order of forward and backward passes in a pipeline\nfilter: schedule=1f1b"};
  return kTips[column - first_choice()];
}

}  // namespace

void CandidatesModel::show_space(SpaceResultPtr space) {
  beginResetModel();
  space_ = std::move(space);
  rows_.clear();
  if (space_) {
    const PlanRequest& request = space_->resolved.request;
    for (const RankedPlan& plan : plans_of(request, space_->report)) {
      rows_.push_back({plan, economics_of(request, plan.candidate->prediction.time)});
    }
  }
  endResetModel();
}

void CandidatesModel::mark(const ParallelPlan& plan) {
  const std::optional<ParallelPlan> before = std::exchange(marked_, plan);
  for (const std::optional<ParallelPlan>& changed : {before, marked_}) {
    const std::optional<int> row = changed ? row_of(*changed) : std::nullopt;
    if (row) Q_EMIT dataChanged(index(*row, 0), index(*row, columnCount() - 1), {Qt::FontRole});
  }
}

std::optional<int> CandidatesModel::row_of(const ParallelPlan& plan) const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].plan.candidate->plan == plan) return static_cast<int>(i);
  }
  return std::nullopt;
}

bool CandidatesModel::follows_from_step(int column) {
  const MetricInfo* figure = figure_of(column);
  return figure != nullptr && figure->figure >= Metric::usd_per_step &&
         figure->figure != Metric::kwh_per_step;
}

bool CandidatesModel::is_trivial(int column) const {
  const Degree* degree = degree_of(column);
  for (const Row& row : rows_) {
    if (degree != nullptr ? row.plan.candidate->plan.*degree->field != 1
                          : value(row, column).isValid()) {
      return false;
    }
  }
  return true;
}

int CandidatesModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}
int CandidatesModel::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : first_choice() + kChoices;
}

QVariant CandidatesModel::value(const Row& row, int column) const {
  const Candidate& candidate = *row.plan.candidate;
  if (column == kRank) return row.plan.rank ? QVariant(*row.plan.rank) : QVariant();
  if (column == kSlower) {
    const Candidate* winner = space_->report.winner();
    if (winner == nullptr) return {};
    return candidate.prediction.time.step / winner->prediction.time.step - 1;
  }
  if (const MetricInfo* figure = figure_of(column)) {
    const auto known = value_of(figure->figure, space_->resolved.request, candidate, row.money);
    return known ? QVariant(*known) : QVariant();
  }
  if (const Degree* degree = degree_of(column)) return candidate.plan.*degree->field;
  return text(row, column);
}

QString CandidatesModel::text(const Row& row, int column) const {
  const ParallelPlan& plan = row.plan.candidate->plan;
  if (column == first_choice() + kSequenceParallel) return plan.sequence_parallel ? "yes" : "no";
  if (column == first_choice() + kRecompute) return QString::fromStdString(recompute_text(plan));
  if (column == first_choice() + kSchedule) {
    return plan.pp > 1 ? in_qt(name_of(plan.schedule)) : QString("–");
  }
  const QVariant known = value(row, column);
  if (column == kRank) {
    QString words = known.isValid() ? known.toString() : QString("–");
    if (row.plan.rank == 1) {
      words += " ★";
    } else if (row.plan.tied) {
      words += " ≈";
    }
    if (row.plan.on_front) words += " ◆";
    return row.plan.fastest ? words + " »" : words;
  }
  if (!known.isValid()) return "–";
  if (column == kSlower) return QString::fromStdString(signed_percent(known.toDouble()));
  if (const MetricInfo* figure = figure_of(column)) {
    return QString::fromStdString(format(figure->figure, known.toDouble()));
  }
  return known.toString();
}

QVariant CandidatesModel::data(const QModelIndex& index, int role) const {
  if (!checkIndex(index, CheckIndexOption::IndexIsValid | CheckIndexOption::ParentIsInvalid)) {
    return {};
  }
  const Row& row = rows_[size_of(index.row())];
  const bool words = index.column() >= first_choice();
  switch (role) {
    case Qt::DisplayRole: return text(row, index.column());
    case kValueRole: return value(row, index.column());
    case Qt::TextAlignmentRole:
      return QVariant::fromValue<int>(Qt::AlignVCenter | (words ? Qt::AlignLeft : Qt::AlignRight));
    case Qt::ToolTipRole: return QString::fromStdString(described(row.plan.candidate->plan, {}));
    case Qt::ForegroundRole:
      if (!row.plan.candidate->fits) return error_colour(QApplication::palette());
      return {};
    case Qt::FontRole:
      if (marked_ && *marked_ == row.plan.candidate->plan) {
        QFont bold;
        bold.setBold(true);
        return bold;
      }
      return {};
    default: return {};
  }
}

QVariant CandidatesModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation != Qt::Horizontal || section < 0 || section >= columnCount()) return {};
  if (role == Qt::DisplayRole) return header_text(section);
  if (role == Qt::ToolTipRole) return header_tip(section);
  return {};
}

FilteredCandidates::FilteredCandidates(CandidatesModel& model, QObject* parent)
    : QSortFilterProxyModel(parent), model_(model) {
  setSourceModel(&model);
  setSortRole(CandidatesModel::kValueRole);
}

void FilteredCandidates::set_filter(cli::PlanFilter filter) {
  filter_ = std::move(filter);
  invalidateFilter();
}

bool FilteredCandidates::filterAcceptsRow(int row, const QModelIndex& parent) const {
  if (parent.isValid() || !model_.space()) return false;
  return filter_.keeps(model_.plan_at(row), model_.space()->resolved.request, model_.money_at(row));
}

bool FilteredCandidates::lessThan(const QModelIndex& left, const QModelIndex& right) const {
  const QVariant a = left.data(CandidatesModel::kValueRole);
  const QVariant b = right.data(CandidatesModel::kValueRole);
  if (!a.isValid() || !b.isValid()) {  // unknown last, also in descending order
    if (a.isValid() == b.isValid()) return false;
    return a.isValid() == (sortOrder() == Qt::AscendingOrder);
  }
  if (a.typeId() == QMetaType::QString) return a.toString() < b.toString();
  return a.toDouble() < b.toDouble();  // equal values keep the order of the search
}

}  // namespace echelon::gui
