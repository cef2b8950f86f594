// Which layers each stage of a plan holds and recomputes.
#pragma once

#include <vector>

#include "core/base/units.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// Layers and recomputed layers per stage, and the step time the closed forms give them.
struct LayerPartition {
  std::vector<int> layers;
  std::vector<int> recomputed;
  std::vector<int> selective;
  Seconds step;
};

/// The plan with its layers so.
void apply_partition(const LayerPartition& partition, ParallelPlan& plan);

}  // namespace echelon
