// Plans as runs that configurations of other frameworks state.
#pragma once

#include "interop/configs/run_config.hpp"
#include "planner/space/request.hpp"

namespace echelon::cli {

/// The run of `plan`, an answer to `request`.
[[nodiscard]] RunConfig run_of(const PlanRequest& request, const ParallelPlan& plan);

}  // namespace echelon::cli
