// The plans a search listed or put on its front, and its fastest, each once, and how each stands to
// the winner.
#pragma once

#include <optional>
#include <vector>

#include "planner/search/search.hpp"

namespace echelon {

struct RankedPlan {
  const Candidate* candidate = nullptr;  ///< in the report
  /// 1 for the winner; nothing for plans of the front that are not among the best listed ones:
  /// others, which were not kept, may be between.
  std::optional<int> rank{};
  bool on_front = false;
  bool fastest = false;  ///< it has the shortest step
  bool tied = false;     ///< too close to the winner to call (planner/search/optimize.hpp)
};

/// Listed plans best first, then the fastest plan and the rest of the front, fastest first. Valid
/// as long as `report`.
[[nodiscard]] std::vector<RankedPlan> plans_of(const PlanRequest& request,
                                               const SearchOutcome& report);

}  // namespace echelon
