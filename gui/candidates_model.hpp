// The plans of a search as a table: a row each, sorted by what the numbers are, not how they read.
#pragma once

#include <QAbstractTableModel>
#include <QSortFilterProxyModel>
#include <optional>
#include <vector>

#include "cli/plan_filter.hpp"
#include "gui/shown.hpp"
#include "planner/economics.hpp"
#include "planner/space.hpp"

namespace echelon::gui {

class CandidatesModel : public QAbstractTableModel {
  Q_OBJECT

 public:
  /// The number a cell stands for (text for words); invalid where it is unknown.
  static constexpr int kValueRole = Qt::UserRole;

  explicit CandidatesModel(QObject* parent = nullptr) : QAbstractTableModel(parent) {}
  void show_space(SpaceShown space);
  /// The plan shown elsewhere stands out.
  void mark(const ParallelPlan& plan);

  [[nodiscard]] const SpaceShown& space() const { return space_; }
  [[nodiscard]] const RankedPlan& plan_at(int row) const { return rows_[size_of(row)].plan; }
  [[nodiscard]] const Economics& money_at(int row) const { return rows_[size_of(row)].money; }
  [[nodiscard]] std::optional<int> row_of(const ParallelPlan& plan) const;
  /// Whether it tells money, GPU time or GPUs: no difference between plans on as many GPUs that the
  /// step does not tell.
  [[nodiscard]] static bool follows_from_step(int column);
  /// Nothing known in any row, or a degree that is 1 in all of them.
  [[nodiscard]] bool says_nothing(int column) const;

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

  SpaceShown space_;
  std::vector<Row> rows_;
  std::optional<ParallelPlan> marked_;
};

/// Sorts by value, unknown ones last in either order, and keeps what a filter keeps.
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
