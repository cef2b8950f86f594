// When nothing fits: what the closest plans lack, and the one change that would help.
#pragma once

#include "planner/candidates.hpp"
#include "planner/search.hpp"

namespace echelon {

/// Prices a tuple that does not fit and looks for the single change that makes it fit: in order a
/// pinned choice lifted, more GPUs of the same kind, a GPU with more memory.
[[nodiscard]] NearestInfeasible nearest_infeasible(const PlanRequest& request, const Tuple& tuple);

}  // namespace echelon
