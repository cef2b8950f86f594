#include "planner/search/layer_partition.hpp"

#include <algorithm>

namespace echelon {

void apply_partition(const LayerPartition& partition, ParallelPlan& plan) {
  plan.layers_per_stage = partition.layers;
  plan.recompute_layers = partition.recomputed;
  if (plan.recompute != Recompute::mixed) return;
  plan.selective_layers = partition.selective;
  const auto none = [](const std::vector<int>& layers) {
    return std::all_of(layers.begin(), layers.end(), [](int k) { return k == 0; });
  };
  if (!none(plan.selective_layers)) return;
  plan.selective_layers.clear();
  plan.recompute = none(plan.recompute_layers) ? Recompute::none : Recompute::full;
}

}  // namespace echelon
