#include "planner/search/least_times.hpp"

#include <algorithm>

#include "costmodel/time/stage_model.hpp"
#include "planner/search/bounds.hpp"

namespace echelon {

std::vector<OrderHop> rank_orders_of(const SearchContext& context, const DegreeNode& node) {
  std::vector<OrderHop> out;
  SearchPoint point = node.point;
  for (const RankOrder order : rank_order_values(context.request, point)) {
    point.rank_order = order;
    const ParallelPlan plan = degrees_of(context.request, point);
    out.push_back({order, boundary_hop(context.cost_model, plan, *node.costs)});
  }
  return out;
}

LeastStep least_time(const SearchContext& context, const SearchPoint& point, const DegreeNode& node,
                     Seconds hop) {
  const ParallelPlan plan = degrees_of(context.request, point);
  const PipelineModel model(context.cost_model, plan, hop);
  const auto step = [&](Seconds pipeline) {
    return (pipeline + context.cost_model.calibration().step_fixed) * (1 + model.straggler_share());
  };
  const Seconds proved = model.least_pipeline(node.work, node.slowest);
  return {step(least_of(proved, model.pipeline(node.work, node.slowest))), step(proved)};
}

namespace {

/// Where every stage recomputes so many whole layers or all that it holds, or each layer
/// selectively as the plan does.
LeastTimes least_times_of(const SearchContext& context, const ParallelPlan& plan,
                          const ShardingCosts& costs, int recomputed, bool selective) {
  const CostModel& cost_model = context.cost_model;
  const StageModel model(cost_model, plan, costs);
  const int layers = context.request.model.layers;
  const int moe = cost_model.moe_before(layers);
  const int past = plan.pp == 1 ? 0 : plan.pp;  // a stage past the last: only layers
  Stage all{.index = past, .layers = {layers - moe, moe}};
  if (selective) all.selective = all.layers;
  const int copies = plan.copies();
  Seconds work = copies * model.times(all).total();
  const int chunks = plan.vpp / copies;  // which recompute equally many
  recomputed = (recomputed + chunks - 1) / chunks * chunks;
  const LayerTimes each = layer_times(cost_model, model, plan.pp, selective);
  const FullStage full =
      fullest_stage(cost_model, each, plan.pp / copies, plan.vpp, recomputed * copies);
  work += full.recompute;
  Seconds slowest = work / plan.pp;
  if (plan.pp > 1) {
    const int first = cost_model.moe_before(1);
    const LayerAndEnds times = layer_and_ends(model, plan.pp, {1 - first, first}, selective);
    work += times.embedding + times.head;
    slowest = std::max(work / plan.pp, full.total);
    if (cost_model.one_kind()) {
      slowest = std::max(slowest, least_slowest(layers * copies, plan.pp, times));
    }
  }
  Seconds optimizer = model.optimizer({.index = 0, .layers = {}});
  if (plan.offload_optimizer > 0) {
    optimizer = std::max(optimizer, least_update(cost_model, model, plan));
  }
  const auto step = [&](Seconds pipeline) {
    return (pipeline + optimizer + cost_model.calibration().step_fixed) *
           (1 + model.straggler_share());
  };
  const Seconds proved = model.least_pipeline(work, slowest);
  return {step(least_of(proved, model.pipeline(work, slowest))), step(proved)};
}

}  // namespace

LeastTimes least_times_with_traffic(const SearchContext& context, const SearchPoint& point,
                                    const ShardingCosts& costs, const LeastRecomputation& least) {
  ParallelPlan plan = degrees_of(context.request, point);
  const auto selective = [&] {
    set_policy(*least.selective, plan);
    return least_times_of(context, plan, costs, 0, true);
  };
  if (!least.whole && least.selective) return selective();
  LeastTimes times = least_times_of(context, plan, costs, least.full, false);
  if (!least.selective) return times;
  const LeastTimes other = selective();
  times.step = std::min(times.step, other.step);
  times.proved = std::min(times.proved, other.proved);
  return times;
}

}  // namespace echelon
