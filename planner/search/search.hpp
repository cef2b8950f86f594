// The search: every legal point of the space bounded, priced where it can matter, and ranked.
#pragma once

#include "planner/search/progress.hpp"
#include "planner/search/search_outcome.hpp"

namespace echelon {

/// Searches all points the constraints leave open (docs/search.md). Deterministic; ties broken by
/// memory, then by the point itself. Best bound first; `request.exhaustive` prices every point,
/// with the same result. Error when the constraints contradict each other or leave no legal point
/// (each reason named). Minimizes the step time on one number of GPUs: choose() in optimize.hpp
/// searches for any objective and over several numbers of GPUs.
[[nodiscard]] Result<SearchOutcome> search(const PlanRequest& request,
                                           const Progress& progress = {});

}  // namespace echelon
