// PlanRequest: everything a user asks for, resolved to values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "planner/space/constraints.hpp"
#include "planner/space/objectives.hpp"
#include "topologies/topology.hpp"

namespace echelon {

struct PlanRequest {
  ModelSpec model;
  TrainingJob job;
  ClusterTopology cluster;
  Framework framework;
  Calibration calibration;
  PlanConstraints constraints{};
  Bytes keep_free = 2_GiB;            ///< memory left to others
  std::optional<Bytes> max_memory{};  ///< --max-memory: capacity to plan for instead of the GPU's
  int top = 5;
  bool exhaustive = false;  ///< price every point instead of bounding
  /// Only the listed plans matter: the search then looks for no Pareto front and counts only the
  /// points it had to look at. Not with Objective::memory_headroom, which needs the front.
  bool without_front = false;
  /// Slower plans are of no interest and may be missing from the answer, near misses as well.
  std::optional<Seconds> no_slower_than{};
  Objective objective = Objective::step_time;
  std::optional<int>
      max_gpus{};  ///< search every GPU count up to it (optimize() in planner/search)
  TrainingEconomics economics{};
  std::vector<std::string> assumptions{};  ///< what was filled in by default, in words

  [[nodiscard]] Bytes usable_memory() const {
    return max_memory ? *max_memory : std::max(Bytes{}, cluster.gpu().memory - kept_free());
  }
  /// What a plan must leave of the GPU's memory: to others, or because runs that came closer to the
  /// limit ended out of memory.
  [[nodiscard]] Bytes kept_free() const { return std::max(keep_free, calibration.fits_margin); }
};

}  // namespace echelon
