// Peak memory of each pipeline stage, by category, against what a GPU has.
#pragma once

#include <QWidget>

#include "gui/shown.hpp"

namespace echelon::gui {

class MemoryView : public QWidget {
  Q_OBJECT

 public:
  explicit MemoryView(QWidget* parent = nullptr);
  void show_plan(PlanShown plan);

 private:
  PlanShown plan_;
};

}  // namespace echelon::gui
