// What one change to a given plan is worth.
#pragma once

#include <string_view>
#include <vector>

#include "planner/search/optimize.hpp"

namespace echelon {

/// The best plan that differs from a given one in one respect.
struct OneChange {
  std::string_view what;  ///< "microbatch", "recomputation", "tp, cp, pp and dp"
  Candidate plan;
};

/// For each respect (fields that change together), the fastest plan that fits with all other fields
/// of `plan` kept; the shortest step first. Those that gain nothing are left out. `request` pins
/// nothing. What is left when `progress` returns false is not searched.
[[nodiscard]] std::vector<OneChange> one_change_plans(const PlanRequest& request,
                                                      const Candidate& plan,
                                                      const Progress& progress = {});

}  // namespace echelon
