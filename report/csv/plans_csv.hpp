// Plans as a table for other programs.
#pragma once

#include <span>
#include <string>

#include "planner/search/ranked_plans.hpp"

namespace echelon {

/// RFC 4180 with a header: rank, degrees, choices, then every figure in its base unit at full
/// precision; a cell is empty where its value is unknown. The rows keep the order of `plans`.
[[nodiscard]] std::string plans_csv(const PlanRequest& request, std::span<const RankedPlan> plans);

}  // namespace echelon
