// What a run measured beside what was predicted: the step, part by part, and memory by stage.
#pragma once

#include <QLabel>
#include <QWidget>

#include "core/run/run_report.hpp"
#include "gui/beside_view.hpp"
#include "gui/placeholder.hpp"

namespace echelon::gui {

class MeasuredView : public QWidget {
  Q_OBJECT

 public:
  explicit MeasuredView(QWidget* parent = nullptr);
  void show_report(const RunReport& report);
  void show_nothing(const QString& sentence);
  [[nodiscard]] const BesideView& table() const { return *table_; }
  [[nodiscard]] QString summary() const { return summary_->text(); }

 private:
  QLabel* summary_;
  BesideView* table_;
  QLabel* advice_;
  Placeholder* page_;
};

}  // namespace echelon::gui
