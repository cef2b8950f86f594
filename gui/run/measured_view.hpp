// Measured versus predicted: the parts of the step, and memory per stage.
#pragma once

#include <QLabel>
#include <QWidget>

#include "core/run/run_report.hpp"
#include "gui/canvas/empty_state.hpp"
#include "gui/views/comparison_table.hpp"

namespace echelon::gui {

class MeasuredView : public QWidget {
  Q_OBJECT

 public:
  explicit MeasuredView(QWidget* parent = nullptr);
  void show_report(const RunReport& report);
  void show_nothing(const QString& message);
  [[nodiscard]] const ComparisonTable& table() const { return *table_; }
  [[nodiscard]] QString summary() const { return summary_->text(); }

 private:
  void show_time(const CostBreakdown& measured, const CostBreakdown& predicted);
  void show_memory(const Prediction& measured, const Prediction& predicted);

  QLabel* summary_;
  ComparisonTable* table_;
  QLabel* advice_;
  EmptyState* page_;
};

}  // namespace echelon::gui
