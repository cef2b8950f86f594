// Plan files from results of the planner.
#pragma once

#include <string>

#include "core/plan/plan_file.hpp"
#include "planner/search/search.hpp"
#include "planner/space/request.hpp"

namespace echelon {

/// The names in a request that a plan file stores.
struct Provenance {
  std::string version;
  std::string cluster;           ///< catalog name or path, as given
  std::string calibration_path;  ///< empty for a shipped calibration
};

[[nodiscard]] Prediction prediction_of(const Candidate& candidate);
/// The content for reports of a candidate: no assumptions, hashes or program.
[[nodiscard]] PlanFile plan_file_of(const PlanRequest& request, const Candidate& candidate,
                                    const Provenance& provenance);
/// The whole content of a file, including the lowered program. Error: a step with too many
/// instructions.
[[nodiscard]] Result<PlanFile> complete_plan_file(const PlanRequest& request,
                                                  const Candidate& candidate,
                                                  const Provenance& provenance);

/// Names of the inputs of the prediction; a plan file is stale if they differ.
[[nodiscard]] std::string hash_of(const ClusterTopology& cluster);
[[nodiscard]] std::string hash_of(const Calibration& calibration);

}  // namespace echelon
