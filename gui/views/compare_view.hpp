// Two plans side by side: their differences and the effect on time, memory and cost.
#pragma once

#include <QLabel>
#include <QWidget>

#include "core/plan/plan_file.hpp"
#include "gui/canvas/empty_state.hpp"
#include "gui/session/results.hpp"
#include "gui/views/comparison_table.hpp"

namespace echelon::gui {

class CompareView : public QWidget {
  Q_OBJECT

 public:
  explicit CompareView(QWidget* parent = nullptr);
  [[nodiscard]] const ComparisonTable& table() const { return *table_; }
  [[nodiscard]] QString summary() const { return summary_->text(); }

 public Q_SLOTS:
  /// Shows A and B; an empty state if either is null.
  void show_pair(PlanResultPtr a, PlanResultPtr b);

 private:
  void show_differences(const PlanFile& x, const PlanFile& y);
  void show_time(const Prediction& x, const Prediction& y);
  void show_memory(const Prediction& x, const Prediction& y);
  void show_figures(const PlanResult& a, const PlanResult& b);

  QLabel* summary_;
  QLabel* a_;
  QLabel* b_;
  ComparisonTable* table_;
  EmptyState* page_;
};

}  // namespace echelon::gui
