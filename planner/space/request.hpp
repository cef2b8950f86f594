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
  Bytes keep_free{};                  ///< memory left to others
  std::optional<Bytes> max_memory{};  ///< --max-memory: capacity to plan for instead of the GPU's
  int top = 5;
  Preference preference = Preference::balanced;
  bool exhaustive = false;  ///< price every point instead of bounding
  bool module_sets = true;  ///< sets of recomputed modules are searched, where none is pinned
  /// Look for the whole Pareto front of (time, memory), whose plans mostly cannot win; else the
  /// front is that of the plans simulated. Objective::memory_headroom looks for it always.
  bool whole_front = false;
  /// Plans that fit with a smaller probability are refused: planner/space/score.hpp.
  double least_probability = 0.5;
  /// Plans with a larger expected step (planner/space/score.hpp) are of no interest and may be
  /// missing from the answer, near misses as well.
  std::optional<Seconds> no_worse_than{};
  Objective objective = Objective::step_time;
  std::optional<int>
      max_gpus{};  ///< search every GPU count up to it (optimize() in planner/search)
  /// Search with each of these recipes of states (optimize()); empty: with the job's own.
  std::vector<PrecisionRecipe> recipes{};
  TrainingEconomics economics{};
  std::vector<std::string> assumptions{};  ///< what was filled in by default, in words
  /// What saves memory in the job that is asked about and has no price: "the offload of
  /// parameters". That a plan does not fit holds without it.
  std::vector<std::string> unpriced_savings{};

  /// What a plan may reserve to fit with `least_probability`; --max-memory, where it is given.
  [[nodiscard]] Bytes usable_memory() const;
  /// Of a GPU, for one job: without what is left to others; --max-memory, where it is given.
  [[nodiscard]] Bytes capacity() const {
    return max_memory ? *max_memory : std::max(Bytes{}, cluster.gpu().memory - keep_free);
  }
};

}  // namespace echelon
