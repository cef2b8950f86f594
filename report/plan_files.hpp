// From what the planner found to what a plan file holds.
#pragma once

#include <string>

#include "core/plan/plan_file.hpp"
#include "planner/search/search.hpp"
#include "planner/space/request.hpp"

namespace echelon {

/// What a plan file remembers of how its request was named.
struct Provenance {
  std::string version;
  std::string cluster;           ///< catalog name or path, as given
  std::string calibration_path;  ///< empty for a shipped calibration
};

[[nodiscard]] Prediction prediction_of(const Candidate& candidate);
/// What reports show of a candidate: no assumptions, hashes or program.
[[nodiscard]] PlanFile plan_file_of(const PlanRequest& request, const Candidate& candidate,
                                    const Provenance& provenance);
/// All that is written into a file, the lowered program included. Error: a step of too many
/// instructions.
[[nodiscard]] Result<PlanFile> complete_plan_file(const PlanRequest& request,
                                                  const Candidate& candidate,
                                                  const Provenance& provenance);

/// Names of what the prediction was made from; a plan file is stale when they differ.
[[nodiscard]] std::string hash_of(const ClusterTopology& cluster);
[[nodiscard]] std::string hash_of(const Calibration& calibration);

}  // namespace echelon
