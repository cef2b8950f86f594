#include "planner/search/partition.hpp"

#include "planner/search/layer_partitioner.hpp"

namespace echelon {

bool partition_may_fit(const CostModel& cost_model, const ParallelPlan& plan,
                       const ShardingCosts& costs, Bytes usable) {
  return LayerPartitioner(cost_model, plan, costs, usable, std::nullopt).may_fit(std::nullopt);
}

std::optional<LayerPartition> best_partition(const CostModel& cost_model, const ParallelPlan& plan,
                                             const ShardingCosts& costs, Bytes usable,
                                             std::optional<Seconds> bound, bool every_layer) {
  LayerPartitioner partitioner(cost_model, plan, costs, usable, bound);
  const int layers = cost_model.model().layers;
  if (every_layer) {
    const int all = (layers + plan.vpp - 1) / plan.vpp * plan.vpp;
    const LowerBound lower = partitioner.lower_bound(all);
    if (!partitioner.can_win(lower) || !partitioner.may_fit(all)) return std::nullopt;
    return partitioner.solve(all, lower.slowest);
  }
  const LowerBound without = partitioner.lower_bound(0);
  if (!partitioner.can_win(without)) return std::nullopt;
  if (plan.recompute == Recompute::none || cost_model.framework().per_stage_recompute ||
      plan.recompute == Recompute::selective) {
    if (!partitioner.may_fit(std::nullopt)) return std::nullopt;
    return partitioner.solve(std::nullopt, without.slowest);
  }
  // The most that the bound allows: the step rises with every recomputed layer, memory falls.
  int most = 0;
  int too_many = (layers + plan.vpp - 1) / plan.vpp + 1;
  while (too_many - most > 1) {
    const int middle = most + (too_many - most) / 2;
    (partitioner.can_win(partitioner.lower_bound(middle * plan.vpp)) ? most : too_many) = middle;
  }
  const bool some_fit = most > 0 && partitioner.may_fit(most * plan.vpp);
  if (!some_fit && !partitioner.may_fit(0)) return std::nullopt;
  // Of a chunk each and more, more recomputed layers need less memory; none need no buffer for it.
  int low = 0;
  int high = (layers + plan.vpp - 1) / plan.vpp;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (partitioner.may_fit(middle * plan.vpp) ? high : low) = middle;
  }
  std::optional<LayerPartition> best;
  for (int uniform = 0; uniform < layers + plan.vpp; uniform += plan.vpp) {
    if (uniform > 0 && uniform < high * plan.vpp) continue;
    // Where every stage recomputes all it holds, recomputing more is the same.
    if (uniform > plan.vpp && !partitioner.holds_more_than(uniform - plan.vpp)) break;
    const LowerBound lower = partitioner.lower_bound(uniform);
    if (!partitioner.can_win(lower)) break;
    if (!partitioner.may_fit(uniform)) continue;
    if (auto found = partitioner.solve(uniform, lower.slowest)) {
      partitioner.tighten(found->step);
      best = std::move(found);
    }
  }
  return best;
}

}  // namespace echelon
