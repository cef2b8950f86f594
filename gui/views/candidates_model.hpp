// Table model of the plans of a search, sorted by value instead of by text.
#pragma once

#include <QAbstractTableModel>
#include <QSortFilterProxyModel>
#include <optional>
#include <vector>

#include "cli/flags/plan_filter.hpp"
#include "gui/session/results.hpp"
#include "planner/economics.hpp"
#include "planner/search/ranked_plans.hpp"

namespace echelon::gui {

class CandidatesModel : public QAbstractTableModel {
  Q_OBJECT

 public:
  /// The value of a cell: a number, or text for words; invalid if unknown.
  static constexpr int kValueRole = Qt::UserRole;

  explicit CandidatesModel(QObject* parent = nullptr) : QAbstractTableModel(parent) {}
  void show_space(SpaceResultPtr space);
  /// Highlights the current plan.
  void mark(const ParallelPlan& plan);

  [[nodiscard]] const SpaceResultPtr& space() const { return space_; }
  [[nodiscard]] const RankedPlan& plan_at(int row) const { return rows_[size_of(row)].plan; }
  [[nodiscard]] const Economics& money_at(int row) const { return rows_[size_of(row)].money; }
  [[nodiscard]] std::optional<int> row_of(const ParallelPlan& plan) const;
  /// True for cost, GPU time and GPUs, which follow from the step time for a given number of GPUs.
  [[nodiscard]] static bool follows_from_step(int column);
  /// True if no row has a value, or the degree is 1 in all rows.
  [[nodiscard]] bool is_trivial(int column) const;

  [[nodiscard]] int rowCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] int columnCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] QVariant data(const QModelIndex& index, int role) const override;
  [[nodiscard]] QVariant headerData(int section, Qt::Orientation orientation,
                                    int role) const override;

 private:
  struct Row {
    RankedPlan plan;
    Economics money;
  };
  static std::size_t size_of(int row) { return static_cast<std::size_t>(row); }
  [[nodiscard]] QVariant value(const Row& row, int column) const;
  [[nodiscard]] QString text(const Row& row, int column) const;

  SpaceResultPtr space_;
  std::vector<Row> rows_;
  std::optional<ParallelPlan> marked_;
};

/// Sorts by value, with unknown values last in both orders, and applies a filter.
class FilteredCandidates : public QSortFilterProxyModel {
  Q_OBJECT

 public:
  explicit FilteredCandidates(CandidatesModel& model, QObject* parent = nullptr);
  void set_filter(cli::PlanFilter filter);

 protected:
  [[nodiscard]] bool filterAcceptsRow(int row, const QModelIndex& parent) const override;
  [[nodiscard]] bool lessThan(const QModelIndex& left, const QModelIndex& right) const override;

 private:
  CandidatesModel& model_;
  cli::PlanFilter filter_;
};

}  // namespace echelon::gui
