// A plan as constraints: what pins exactly it.
#pragma once

#include "planner/space/request.hpp"

namespace echelon {

/// Every axis pinned to `plan`.
[[nodiscard]] PlanConstraints pinned_to(const ParallelPlan& plan);
/// `base` with what `pinned` pins in its place.
[[nodiscard]] PlanConstraints overlaid(PlanConstraints base, const PlanConstraints& pinned);

}  // namespace echelon
