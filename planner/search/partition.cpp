#include "planner/search/partition.hpp"

#include <algorithm>

#include "planner/search/layer_partitioner.hpp"

namespace echelon {
namespace {

/// Whether all stages recompute the same number of whole layers.
bool recomputes_alike(const CostModel& cost_model, const ParallelPlan& plan) {
  return plan.recompute != Recompute::none && plan.recompute != Recompute::selective &&
         !cost_model.framework().per_stage_recompute;
}

/// The most layers of each chunk whose recomputation the bound allows: the step rises with each.
int most_recomputed(const CostModel& cost_model, const ParallelPlan& plan,
                    LayerPartitioner& partitioner) {
  int most = 0;
  int too_many = (cost_model.model().layers + plan.vpp - 1) / plan.vpp + 1;
  while (too_many - most > 1) {
    const int middle = most + (too_many - most) / 2;
    (partitioner.can_win(partitioner.lower_bound(middle * plan.vpp)) ? most : too_many) = middle;
  }
  return most;
}

/// The most recomputed layers of each chunk with which a partition that may win fits: memory falls
/// with each, but none need no buffer for it. Nothing where none may win. `holder` knows what fits.
std::optional<int> most_that_may_win(const CostModel& cost_model, const ParallelPlan& plan,
                                     LayerPartitioner& partitioner, LayerPartitioner& holder) {
  if (!partitioner.can_win(partitioner.lower_bound(0))) return std::nullopt;
  if (recomputes_alike(cost_model, plan)) {
    const int most = most_recomputed(cost_model, plan, partitioner);
    if (most > 0 && holder.may_fit(most * plan.vpp)) return most;
    return holder.may_fit(0) ? std::optional(0) : std::nullopt;
  }
  return holder.may_fit(std::nullopt) ? std::optional(0) : std::nullopt;
}

/// Whether a policy lets stages recompute nothing, too.
bool includes_none(const RecomputePolicy& policy) {
  return policy.kind == Recompute::full || policy.kind == Recompute::mixed;
}

/// The first of the policies that frees what is needed.
std::size_t first_enough(std::span<const RecomputePolicy> policies,
                         const LeastRecomputation& needed) {
  if (needed.full == 0) return 0;
  if (!needed.selective) return needed.whole ? policies.size() - 1 : policies.size();
  const auto at = std::ranges::find(policies, *needed.selective);
  return static_cast<std::size_t>(at - policies.begin());
}

}  // namespace

bool any_partition_may_win(LayerPartitioner& partitioner) {
  const LowerBound lower = partitioner.lower_bound(0);
  return partitioner.can_win(lower) && partitioner.first_stage_may_win(lower, true);
}

bool partition_may_win(const CostModel& cost_model, ParallelPlan& plan, const ShardingCosts& costs,
                       const MemoryLimit& limit, std::optional<Seconds> bound,
                       std::span<const RecomputePolicy> policies, const LeastRecomputation& needed,
                       std::optional<double> most_offloaded) {
  const std::span<const RecomputePolicy> enough = policies.subspan(first_enough(policies, needed));
  set_policy(Recompute::none, plan);
  LayerPartitioner partitioner(cost_model, plan, costs);
  partitioner.set_limits({}, bound);
  if (!any_partition_may_win(partitioner)) {
    set_policy(policies.back(), plan);
    return false;
  }
  ParallelPlan offloaded;
  std::optional<LayerPartitioner> other;
  if (most_offloaded) {
    offloaded = plan;
    offloaded.offload_optimizer = *most_offloaded;
    other.emplace(cost_model, offloaded, costs);
  }
  LayerPartitioner& holder = other ? *other : partitioner;
  const bool any = std::ranges::any_of(enough, [&](const RecomputePolicy& policy) {
    if (policy.kind == Recompute::none && includes_none(policies.back())) return false;
    set_policy(policy, plan);
    partitioner.follow_policy();
    const std::optional<Bytes> reserved = limit(partitioner.least_step(partitioner.lower_bound(0)));
    if (!reserved) return false;
    partitioner.set_limits(*reserved, bound);
    if (other) {
      set_policy(policy, offloaded);
      other->follow_policy();
      other->set_limits(*reserved, std::nullopt);
    }
    return most_that_may_win(cost_model, plan, partitioner, holder).has_value();
  });
  set_policy(policies.back(), plan);
  return any;
}

LeastRecomputation least_recomputation(const CostModel& cost_model, ParallelPlan& plan,
                                       const ShardingCosts& costs, Bytes usable,
                                       std::span<const RecomputePolicy> policies) {
  set_policy(Recompute::full, plan);
  const bool whole = policies.back().kind == Recompute::full;
  LayerPartitioner partitioner(cost_model, plan, costs);
  partitioner.set_limits(usable, std::nullopt);
  partitioner.allow_any_mix();
  if (partitioner.may_fit(0)) return {};
  for (const RecomputePolicy& policy : policies) {
    if (policy.kind != Recompute::selective) continue;
    set_policy(policy, plan);
    partitioner.follow_policy();
    if (partitioner.may_fit(std::nullopt)) return {.full = 1, .selective = policy, .whole = whole};
  }
  const int layers = cost_model.model().layers;
  if (!whole) return {.full = layers, .whole = false, .fits = false};
  set_policy(Recompute::full, plan);
  partitioner.follow_policy();
  if (!partitioner.may_fit(layers)) return {.full = layers, .fits = false};
  if (!cost_model.framework().recomputes_some_layers(plan.pp)) return {.full = layers};
  int low = 0;
  int high = layers;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (partitioner.may_fit(middle) ? high : low) = middle;
  }
  return {.full = high};
}

bool partition_may_fit(const CostModel& cost_model, ParallelPlan& plan, const ShardingCosts& costs,
                       Bytes usable, std::span<const RecomputePolicy> policies) {
  LayerPartitioner partitioner(cost_model, plan, costs);
  partitioner.set_limits(usable, std::nullopt);
  return std::ranges::any_of(policies, [&](const RecomputePolicy& policy) {
    if (&policy != &policies.back() && includes_none(policies.back())) return false;
    set_policy(policy, plan);
    partitioner.follow_policy();
    return partitioner.may_fit(std::nullopt);
  });
}

std::optional<LayerPartition> best_partition(LayerPartitioner& partitioner, bool every_layer) {
  const CostModel& cost_model = partitioner.cost_model();
  const ParallelPlan& plan = partitioner.plan();
  if (every_layer) {
    const int all = (cost_model.model().layers + plan.vpp - 1) / plan.vpp * plan.vpp;
    const LowerBound lower = partitioner.lower_bound(all);
    if (!partitioner.can_win(lower) || !partitioner.may_fit(all)) return std::nullopt;
    return partitioner.solve(all, lower);
  }
  const bool none_whole =
      plan.recompute == Recompute::none || plan.recompute == Recompute::selective;
  if (none_whole && !partitioner.first_stage_may_win(partitioner.lower_bound(0), false)) {
    return std::nullopt;
  }
  const std::optional<int> most = most_that_may_win(cost_model, plan, partitioner, partitioner);
  if (!most) return std::nullopt;
  if (!recomputes_alike(cost_model, plan)) {
    return partitioner.solve(std::nullopt, partitioner.lower_bound(0));
  }
  // The fewest that may fit, most often nearly the most.
  int low = 0;
  int high = *most;
  for (int step = 1; high - low > 1;) {
    const int tried = std::max(low + 1, high - step);
    const bool fits = partitioner.may_fit(tried * plan.vpp);
    (fits ? high : low) = tried;
    step = fits ? 2 * step : 1;
  }
  std::optional<LayerPartition> best;
  for (int uniform = 0; uniform <= *most * plan.vpp; uniform += plan.vpp) {
    if (uniform > 0 && uniform < high * plan.vpp) continue;
    // Where every stage recomputes all it holds, recomputing more is the same.
    if (uniform > plan.vpp && !partitioner.holds_more_than(uniform - plan.vpp)) break;
    const LowerBound lower = partitioner.lower_bound(uniform);
    if (!partitioner.can_win(lower)) break;
    if (!partitioner.first_stage_may_win(lower, true) || !partitioner.may_fit(uniform)) continue;
    if (auto found = partitioner.solve(uniform, lower)) {
      partitioner.tighten(found->step);
      best = std::move(found);
    }
  }
  return best;
}

}  // namespace echelon
