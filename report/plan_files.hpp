// From what the planner found to what a plan file holds.
#pragma once

#include <string>

#include "core/plan_file.hpp"
#include "planner/request.hpp"
#include "planner/search.hpp"

namespace echelon {

/// What a plan file remembers of how its request was named.
struct Provenance {
  std::string version;
  std::string cluster;           ///< catalog name or path, as given
  std::string calibration_path;  ///< empty for a shipped calibration
};

[[nodiscard]] PredictedCosts costs_of(const Candidate& candidate);
[[nodiscard]] PlanFile plan_file_of(const PlanRequest& request, const Candidate& candidate,
                                    const Provenance& provenance);

}  // namespace echelon
