// Advice for a run that lacks memory.
#pragma once

#include <string>

#include "planner/space/request.hpp"

namespace echelon::cli {

/// The cheapest change of the plan after which a rank needs at most `available`: one value where
/// that is enough, else two; among those the fastest. "--zero 3 instead of 0 needs 4.1 GiB a rank
/// and takes 1.2 s a step"; general advice if nothing fits on this number of ranks.
[[nodiscard]] std::string cheapest_relief(const PlanRequest& request, const ParallelPlan& plan,
                                          Bytes available);

/// "--zero 3 instead of 0, --no-sequence-parallel": flags that turn `from` into `to`.
[[nodiscard]] std::string changed_flags(const ParallelPlan& from, const ParallelPlan& to);

}  // namespace echelon::cli
