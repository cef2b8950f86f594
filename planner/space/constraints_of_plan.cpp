#include "planner/space/constraints_of_plan.hpp"

namespace echelon {

PlanConstraints pinned_to(const ParallelPlan& plan) {
  PlanConstraints pinned;
  for (const PlanField& field : plan_fields()) pinned.pin(field, plan);
  const bool mixed = plan.recompute == Recompute::mixed;
  if (!mixed && plan.recompute != Recompute::full) {
    pinned.release<&ParallelPlan::recompute_layers>();
  }
  if (!mixed) pinned.release<&ParallelPlan::selective_layers>();
  return pinned;
}

PlanConstraints overlaid(PlanConstraints base, const PlanConstraints& pinned) {
  base.overlay(pinned);
  return base;
}

}  // namespace echelon
