// Settings of one optimizer step, and their defaults.
#pragma once

#include <string>
#include <vector>

#include "cli/flags/settings.hpp"
#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "topologies/topology.hpp"

namespace echelon::cli {

/// Sequence, batch, precision, attention and token budget. Defaults are stated in `assumed`.
[[nodiscard]] Result<TrainingJob> job_of(const Settings& settings, const ModelSpec& model,
                                         const Framework& framework, const ClusterTopology& cluster,
                                         std::vector<std::string>& assumed);

}  // namespace echelon::cli
