#include "planner/search/price_point.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/base/expects.hpp"
#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

bool counts_layers(const RecomputePolicy& policy) {
  return policy.kind == Recompute::full || policy.kind == Recompute::mixed;
}

/// Whether the tightest stage of a plan that recomputes every layer keeps less by more than the
/// buffer of the layer being recomputed.
bool frees_its_buffer(const SearchContext& context, const ShardingCosts& costs,
                      const std::vector<RecomputePolicy>& recomputes, const Priced& priced) {
  const ParallelPlan& plan = priced.plan;
  if (!counts_layers(recomputes.back())) return false;
  const std::vector<Stage>& stages = priced.memory.contents;
  if (stages.empty()) return false;
  // The copy of ZeRO-1's gather takes the room that activations leave (StageModel::memory), and
  // fixed blocks are no sum over layers.
  const Framework& framework = context.request.framework;
  const bool gathers = framework.zero1_gather_local + framework.zero1_gather_shard > 0;
  if (framework.fixed_blocks || (plan.zero == 1 && gathers)) return false;
  if (!plan.offload_modules.empty()) return false;  // of some layers' modules less is there to free
  const Stage& stage = stages[static_cast<std::size_t>(priced.memory.tightest_stage)];
  const std::int64_t m = plan.microbatches_of_chunk(context.request.job.global_batch);
  const double in_flight =
      static_cast<double>(
          chunks_in_flight(plan.schedule, plan.pp, plan.vpp, stage.index, m, plan.group_size())) /
      plan.vpp;
  const auto freed = [&](const LayerCosts& layer, int layers) {
    Bytes least = layer.saved;
    for (const RecomputePolicy& policy : recomputes) {
      if (policy.kind != Recompute::selective) continue;
      least = std::min(least, layer.saved - selective_part(layer, framework, policy.modules).freed);
    }
    return layers * (least - costs.layer_input);
  };
  const Bytes buffer = stage.layers.moe > 0 ? costs.moe.saved : costs.dense.saved;
  return in_flight *
             (freed(costs.dense, stage.layers.dense) + freed(costs.moe, stage.layers.moe)) >=
         buffer;
}

}  // namespace

Bytes price_memory(const SearchContext& context, const SearchPoint& point,
                   const ShardingCosts& costs, Priced& out) {
  EXPECTS(fill_plan(context.request, point, out.plan), "a point that was legal before");
  context.cost_model.price_memory(out.plan, costs, out.memory);
  return out.memory.peak_reserved - context.usable;
}

Bytes least_shortage(const SearchContext& context, SearchPoint& point, const ShardingCosts& costs,
                     Priced& out) {
  const auto shortage_with = [&](const RecomputePolicy& recompute) {
    point.recompute = recompute;
    point.recompute_layers = counts_layers(recompute) ? context.request.model.layers : 0;
    return price_memory(context, point, costs, out);
  };
  const std::vector<RecomputePolicy>& recomputes = context.recomputes(point);
  const RecomputePolicy most = recomputes.back();
  const Bytes all = shortage_with(most);
  if (recomputes.size() == 1 || frees_its_buffer(context, costs, recomputes, out)) return all;
  Bytes least = all;
  for (const RecomputePolicy& recompute : recomputes) {
    if (!counts_layers(recompute)) least = std::min(least, shortage_with(recompute));
  }
  return std::min(least, shortage_with(most));
}

int fewest_recomputed(const SearchContext& context, SearchPoint point, int all, Bytes limit,
                      const ShardingCosts& costs, Priced& out) {
  const auto fits = [&] {
    price_memory(context, point, costs, out);
    return out.memory.peak_reserved <= limit;
  };
  point.recompute = Recompute::none;
  if (fits()) return 0;
  point.recompute = Recompute::full;
  // Bisection: memory falls with every further layer.
  int low = 0;  // does not fit
  int high = (all + point.vpp - 1) / point.vpp;
  while (high - low > 1) {
    const int middle = std::midpoint(low, high);
    point.recompute_layers = std::min(all, middle * point.vpp);
    (fits() ? high : low) = middle;
  }
  return std::min(all, high * point.vpp);
}

}  // namespace echelon
