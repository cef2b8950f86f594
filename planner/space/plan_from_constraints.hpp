// The one plan that constraints describe.
#pragma once

#include "planner/space/request.hpp"

namespace echelon {

/// The one configuration that the constraints describe, defaults filled in, checked.
/// Errors name the flag: degrees that do not divide, contradictions, products that are not the
/// GPUs.
[[nodiscard]] Result<ParallelPlan> plan_from_constraints(const PlanRequest& request);

}  // namespace echelon
