// Two plans side by side: what differs, and what that does to time, memory and cost.
#pragma once

#include <QLabel>
#include <QWidget>

#include "gui/beside_view.hpp"
#include "gui/placeholder.hpp"
#include "gui/shown.hpp"

namespace echelon::gui {

class CompareView : public QWidget {
  Q_OBJECT

 public:
  explicit CompareView(QWidget* parent = nullptr);
  [[nodiscard]] const BesideView& table() const { return *table_; }
  [[nodiscard]] QString verdict() const { return verdict_->text(); }

 public Q_SLOTS:
  /// A and B; either may be null: nothing to compare then.
  void show_pair(PlanShown a, PlanShown b);

 private:
  void show_figures(const ShownPlan& a, const ShownPlan& b);

  QLabel* verdict_;
  QLabel* a_;
  QLabel* b_;
  BesideView* table_;
  Placeholder* page_;
};

}  // namespace echelon::gui
