#include "planner/search/node_queue.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/on_all_cores.hpp"
#include "costmodel/time/stage_model.hpp"
#include "planner/search/bounds.hpp"
#include "planner/space/legality.hpp"

namespace echelon {

const FrameworkRule* broken_schedule_rule(const SearchContext& context, const SearchPoint& point) {
  const PlanRequest& request = context.request;
  return broken_rule(request.framework, RulePart::schedule, request.model, request.job.precision,
                     degrees_of(request, point));
}

namespace {

/// Bounded together, so that all cores have work.
constexpr std::size_t kBoundedAtOnce = 64;

/// The degrees of a node without data parallelism, so that there is no ZeRO traffic, and with every
/// pass of experts beside another.
ParallelPlan bare_plan(const SearchPoint& point, int pp) {
  ParallelPlan bare;
  bare.tp = point.sharding.tp;
  bare.pp = pp;
  bare.microbatch = point.sharding.microbatch;
  bare.cuda_graphs = point.cuda_graphs;
  return bare;
}

/// The least time of the slowest stage, since a layer is not divided between stages. With
/// DualPipeV, which is searched only where it is pinned, one stage holds both ends.
Seconds slowest_stage(const CostModel& cost_model, const SearchPoint& point,
                      const ShardingCosts& costs, ScheduleKind schedule) {
  const int pp = point.pp;
  if (pp == 1) return Seconds{};
  if (schedule == ScheduleKind::dualpipe) {  // two ranks hold what one of a V of half as many does
    SearchPoint half = point;
    half.pp /= 2;
    return slowest_stage(cost_model, half, costs, ScheduleKind::dualpipe_v);
  }
  ParallelPlan bare = bare_plan(point, 2);
  if (schedule == ScheduleKind::dualpipe_v) {
    bare.schedule = schedule;
    bare.vpp = 2;
  }
  const StageModel model(cost_model, bare, costs);
  const int vpp = 2;  // chunks, which leave more choice than one
  const Seconds most = fullest_stage(cost_model, layer_times(cost_model, model, pp), pp, vpp).total;
  if (!cost_model.one_kind()) return most;
  const int moe = cost_model.moe_before(1);
  const LayerAndEnds times = layer_and_ends(model, 2, {1 - moe, moe});
  return std::max(most, least_slowest(cost_model.model().layers, pp, times));
}

/// least_time over every schedule: the smallest bubble any number of chunks leaves. Nothing where
/// the request leaves no schedule, or only such as break a rule.
std::optional<LeastStep> least_time_of_schedules(const SearchContext& context,
                                                 const DegreeNode& node) {
  SearchPoint open = node.point;
  std::optional<LeastStep> least;
  const std::vector<OrderHop> rank_orders = rank_orders_of(context, node);
  for (const Chunks chunks : chunk_values(context.request, open.pp)) {
    open.vpp = chunks.vpp;
    open.schedule = chunks.schedule;
    if (open.sharding.overlap_ep && broken_schedule_rule(context, open) != nullptr) continue;
    for (const auto& [order, hop] : rank_orders) {
      open.rank_order = order;
      // The largest group hides most.
      open.microbatch_group = group_values(context.request, open, hop, node.slowest).back();
      const LeastStep time = least_time(context, open, node, hop);
      least = least ? LeastStep{std::min(least->assumed, time.assumed),
                                std::min(least->proved, time.proved)}
                    : time;
    }
  }
  return least;
}

ScheduleKind schedule_of(const SearchContext& context) {
  return context.request.constraints.value_or<&ParallelPlan::schedule>(ScheduleKind::one_f_one_b);
}

}  // namespace

Seconds least_work(const SearchContext& context, const SearchPoint& point,
                   const ShardingCosts& costs) {
  const CostModel& cost_model = context.cost_model;
  const ParallelPlan bare = bare_plan(point, 1);
  const StageModel model(cost_model, bare, costs);
  const int layers = cost_model.model().layers;
  const int moe = cost_model.moe_before(layers);
  const double copies = schedule_of(context) == ScheduleKind::dualpipe ? 2 : 1;
  return copies * model.times({.index = 0, .layers = {layers - moe, moe}}).total();
}

Seconds quick_bound(const SearchContext& context, const DegreeNode& node) {
  if (runs_both_ways(schedule_of(context))) return Seconds{};
  const SearchPoint& point = node.point;
  const auto microbatches = static_cast<double>(
      context.request.job.global_batch / (std::int64_t{point.dp} * point.sharding.microbatch));
  return microbatches * (node.work / point.pp) * (1 - kRounding) +
         context.cost_model.calibration().step_fixed;
}

bool bound_node(const SearchContext& context, DegreeNode& node) {
  node.slowest =
      std::max(slowest_stage(context.cost_model, node.point, *node.costs, schedule_of(context)),
               node.work / node.point.pp);
  const std::optional<LeastStep> least = least_time_of_schedules(context, node);
  if (!least) return false;
  node.least = least->assumed;
  node.proved = least->proved;
  return true;
}

NodeQueue::NodeQueue(const SearchContext& context, std::vector<DegreeNode> nodes)
    : context_(context), nodes_(std::move(nodes)), by_quick_(nodes_.size()) {
  std::iota(by_quick_.begin(), by_quick_.end(), std::size_t{0});
  std::ranges::stable_sort(by_quick_, {}, [&](std::size_t i) { return nodes_[i].least; });
}

void NodeQueue::bound_more() {
  const std::size_t count = std::min(kBoundedAtOnce, by_quick_.size() - bounded_);
  std::vector<char> open(count);
  on_all_cores(count, [&](std::size_t i) {
    open[i] = bound_node(context_, nodes_[by_quick_[bounded_ + i]]) ? 1 : 0;
  });
  for (std::size_t i = 0; i < count; ++i) {
    if (open[i] == 0) continue;
    heap_.push_back(by_quick_[bounded_ + i]);
    std::ranges::push_heap(heap_, Later{nodes_});
  }
  bounded_ += count;
}

const DegreeNode* NodeQueue::front() {
  while (bounded_ < by_quick_.size() &&
         (heap_.empty() || nodes_[by_quick_[bounded_]].least <= nodes_[heap_.front()].least)) {
    bound_more();
  }
  return heap_.empty() ? nullptr : &nodes_[heap_.front()];
}

void NodeQueue::pop() {
  std::ranges::pop_heap(heap_, Later{nodes_});
  heap_.pop_back();
  ++taken_;
}

std::optional<Seconds> NodeQueue::least_proved() const {
  std::optional<Seconds> least;
  const auto lower = [&](std::size_t i, Seconds bound) {
    if (nodes_[i].point.pp > 1 && (!least || bound < *least)) least = bound;
  };
  for (const std::size_t i : heap_) lower(i, nodes_[i].proved);
  for (std::size_t i = bounded_; i < by_quick_.size(); ++i) {  // the quick bound is proved, too
    lower(by_quick_[i], nodes_[by_quick_[i]].least);
  }
  return least;
}

}  // namespace echelon
