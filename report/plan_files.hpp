// From what the planner found to what a plan file holds, and to what a plan costs in money and
// days.
#pragma once

#include <optional>
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

/// Money and days. Unknown where the price or the token budget is.
struct Economics {
  std::optional<Dollars> per_step;
  std::optional<Dollars> for_budget;
  std::optional<Seconds> time_for_budget;
};
[[nodiscard]] Economics economics_of(const TrainingJob& job, int gpus,
                                     std::optional<Dollars> price_per_gpu_hour, Seconds step);

}  // namespace echelon
