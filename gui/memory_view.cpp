#include "gui/memory_view.hpp"

#include <utility>

namespace echelon::gui {

MemoryView::MemoryView(QWidget* parent) : QWidget(parent) {}

void MemoryView::show_plan(PlanShown plan) {
  plan_ = std::move(plan);
  update();
}

}  // namespace echelon::gui
