// When nothing fits: what the closest plans lack, and the one change that would help.
#pragma once

#include "planner/search/search_outcome.hpp"
#include "planner/space/candidates.hpp"

namespace echelon {

/// Prices a point that does not fit and looks for the single change that makes it fit: in order a
/// pinned choice lifted, more GPUs of the same kind, a GPU with more memory.
[[nodiscard]] NearestInfeasible nearest_infeasible(const PlanRequest& request,
                                                   const SearchPoint& point);

}  // namespace echelon
