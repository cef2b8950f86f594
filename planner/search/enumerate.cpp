#include "planner/search/enumerate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "core/base/on_all_cores.hpp"
#include "core/base/saturated_product.hpp"
#include "costmodel/time/stage_model.hpp"
#include "planner/search/bounds.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

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

/// Work of all layers, embedding and head of one microbatch, nothing recomputed, nothing exposed by
/// data parallelism: the least time of all stages together.
Seconds least_work(const CostModel& cost_model, const SearchPoint& point,
                   const ShardingCosts& costs) {
  const ParallelPlan bare = bare_plan(point, 1);
  const StageModel model(cost_model, bare, costs);
  const int layers = cost_model.model().layers;
  const int moe = cost_model.moe_before(layers);
  return model.times({.index = 0, .layers = {layers - moe, moe}}).total();
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

/// The rule of the framework about schedules that the degrees and the schedule of a point break.
const FrameworkRule* broken_schedule_rule(const SearchContext& context, const SearchPoint& point) {
  const PlanRequest& request = context.request;
  return broken_rule(request.framework, RulePart::schedule, request.model,
                     degrees_of(request, point));
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

/// Dispatchers that a search chooses from.
constexpr std::array kExchanges = {Dispatcher::alltoall, Dispatcher::deepep, Dispatcher::hybridep};

/// All degrees with the same tp and cp: no other ones shard a layer alike.
class DegreeEnumerator {
 public:
  DegreeEnumerator(const SearchContext& context, int tp, int cp)
      : context_(context), request_(context.request), tp_(tp), cp_(cp) {
    pps_ = pp_values(request_, request_.cluster.gpus());
  }
  /// Of a tp that no degrees go with.
  DegreeEnumerator(const SearchContext& context, const Rejection& rejection)
      : context_(context), request_(context.request) {
    rejected.add(rejection);
  }

  void enumerate() {
    for (const int pp : pps_) add_degrees(tp_, cp_, pp);
    forget_costs();
  }
  DegreeSpace space;
  RejectionTally rejected;

 private:
  void add_degrees(int tp, int cp, int pp);
  [[nodiscard]] std::optional<int> data_parallel(int tp, int cp, int pp);
  void add_variants(SearchPoint point);
  [[nodiscard]] bool offers(const SearchPoint& point) const;
  [[nodiscard]] Dispatcher dispatcher_of(const SearchPoint& point);
  [[nodiscard]] Dispatcher fastest_dispatcher(const LayerSharding& sharding,
                                              CudaGraphs graphs) const;
  [[nodiscard]] std::vector<Dispatcher> overlapped_dispatchers(SearchPoint point);
  [[nodiscard]] const ShardingCosts& costs_of(const SearchPoint& point);
  std::optional<Seconds> add_node(const SearchPoint& point, std::optional<Seconds> without);
  void reject_schedule(const SearchPoint& point);
  void forget_costs();

  const SearchContext& context_;
  const PlanRequest& request_;
  int tp_ = 1, cp_ = 1;
  std::vector<int> pps_;
  std::map<LayerSharding, Dispatcher> dispatchers_;  ///< the fastest, where none is pinned
};

/// Nothing where the product of the degrees cannot be the number of GPUs.
std::optional<int> DegreeEnumerator::data_parallel(int tp, int cp, int pp) {
  const PlanConstraints& pinned = request_.constraints;
  const std::int64_t gpus = request_.cluster.gpus();
  const std::int64_t product = saturated_product({tp, cp, pp});
  const int dp = pinned.value_or<&ParallelPlan::dp>(
      static_cast<int>(std::max<std::int64_t>(1, gpus / product)));
  if (saturated_product({product, dp}) == gpus) return dp;
  if (pinned.has<&ParallelPlan::dp, &ParallelPlan::tp, &ParallelPlan::cp, &ParallelPlan::pp>()) {
    rejected.add(
        {RejectionReason::gpus_mismatch,
         fmt::format("tp {} x cp {} x dp {} x pp {} is not {} GPUs", tp, cp, dp, pp, gpus)});
  }
  return std::nullopt;
}

void DegreeEnumerator::add_degrees(int tp, int cp, int pp) {
  const PlanConstraints& pinned = request_.constraints;
  if (pp > request_.model.layers + (request_.framework.any_layout ? 2 : 0)) {
    return rejected.add({RejectionReason::too_few_layers,
                         fmt::format("{} layers for pp {}", request_.model.layers, pp)});
  }
  const std::optional<int> dp = data_parallel(tp, cp, pp);
  if (!dp) return;
  SearchPoint point;
  point.pp = pp;
  point.dp = *dp;
  point.sharding.tp = tp;
  point.sharding.cp = cp;
  point.sharding.overlap_tp = pinned.values().overlap_tp;
  point.rank_order = pinned.values().rank_order;
  const LayerSharding dense = point.sharding;
  for (const CpComm comm : cp_comm_values(request_, cp)) {
    for (const LayerSharding& sharding : expert_shardings(request_, dense, tp * cp * *dp)) {
      for (const int microbatch : microbatch_values(request_, *dp)) {
        for (const bool sequence_parallel : sequence_parallel_values(request_, tp)) {
          point.sharding = sharding;
          point.sharding.cp_comm = comm;
          point.sharding.microbatch = microbatch;
          point.sharding.sequence_parallel = sequence_parallel;
          const bool alone = sharding.ep == 1 && !pinned.has<&ParallelPlan::ep>();
          point.sharding.overlap_shared = pinned.values().overlap_shared && !alone;
          add_variants(point);
        }
      }
    }
  }
}

/// With and without overlap of expert communication and CUDA graphs, where they gain anything: else
/// they cost memory and no plan with them is better. What breaks a rule without is rejected once.
void DegreeEnumerator::add_variants(SearchPoint point) {
  const std::vector<CudaGraphs> graphs = graph_values(request_);
  for (const bool overlap : overlap_ep_values(request_, point.sharding)) {
    point.sharding.overlap_ep = overlap;
    point.cuda_graphs = graphs.front();
    std::vector<Dispatcher> dispatchers;
    if (overlap) {
      dispatchers = overlapped_dispatchers(point);
    } else {
      dispatchers = {dispatcher_of(point)};
    }
    for (const Dispatcher dispatcher : dispatchers) {
      point.sharding.dispatcher = dispatcher;
      std::optional<Seconds> without;
      for (const CudaGraphs each : graphs) {
        point.cuda_graphs = each;
        const std::optional<Seconds> work = add_node(point, without);
        if (!work && !overlap) return;
        if (!without) without = work;
      }
    }
  }
}

/// Whether the framework and the cluster take the dispatcher with the point's other choices.
bool DegreeEnumerator::offers(const SearchPoint& point) const {
  ParallelPlan plan;
  static_cast<LayerSharding&>(plan) = point.sharding;
  plan.cuda_graphs = point.cuda_graphs;
  return offers_dispatcher(request_.framework, request_.cluster, point.sharding.dispatcher) &&
         broken_rule(request_.framework, RulePart::degrees, request_.model, plan) == nullptr;
}

Dispatcher DegreeEnumerator::dispatcher_of(const SearchPoint& point) {
  const LayerSharding& sharding = point.sharding;
  if (sharding.ep == 1 || request_.constraints.has<&ParallelPlan::dispatcher>()) {
    return sharding.dispatcher;
  }
  // All that the exchange depends on.
  const LayerSharding exchanges{.tp = sharding.tp,
                                .cp = sharding.cp,
                                .microbatch = sharding.microbatch,
                                .ep = sharding.ep,
                                .etp = sharding.etp};
  if (sharding.overlap_shared) return Dispatcher::alltoall;  // no other takes it
  const auto [at, added] = dispatchers_.try_emplace(exchanges);
  if (added) at->second = fastest_dispatcher(exchanges, point.cuda_graphs);
  return at->second;
}

/// The one with the fastest exchange. Allgather is left out: it keeps all tokens of
/// the group, which the memory model does not count.
Dispatcher DegreeEnumerator::fastest_dispatcher(const LayerSharding& sharding,
                                                CudaGraphs graphs) const {
  SearchPoint tried;
  tried.sharding = sharding;
  tried.cuda_graphs = graphs;
  Dispatcher best = Dispatcher::alltoall;
  std::optional<Seconds> least;
  for (const Dispatcher dispatcher : kExchanges) {
    tried.sharding.dispatcher = dispatcher;
    if (!offers(tried)) continue;
    const Seconds taken = context_.cost_model.exchange_time(tried.sharding);
    if (least && taken >= *least) continue;
    least = taken;
    best = dispatcher;
  }
  return best;
}

/// Where the exchange overlaps, its kernels slow the compute beside it and passes alone hide none
/// of it: those dispatchers that no other beats in every pass, beside another or alone. None where
/// nothing is hidden.
std::vector<Dispatcher> DegreeEnumerator::overlapped_dispatchers(SearchPoint point) {
  if (request_.constraints.has<&ParallelPlan::dispatcher>() || point.sharding.ep == 1) {
    return {point.sharding.dispatcher};
  }
  struct Exposed {
    Dispatcher dispatcher;
    std::array<Seconds, 4> passes;  // forward and backward beside another, and alone
  };
  std::vector<Exposed> kept;
  for (const Dispatcher dispatcher : kExchanges) {
    point.sharding.dispatcher = dispatcher;
    if (!offers(point)) continue;
    const LayerCosts& layer = costs_of(point).moe;
    const Seconds forward = layer.forward.exposed[Axis::ep];
    const Seconds backward = layer.backward.exposed[Axis::ep];
    const Exposed made{
        dispatcher,
        {forward, backward, forward + layer.alone_forward, backward + layer.alone_backward}};
    const auto no_better = [](const Exposed& one, const Exposed& other) {
      return std::ranges::equal(one.passes, other.passes, std::greater_equal{});
    };
    if (std::ranges::any_of(kept, [&](const Exposed& each) { return no_better(made, each); })) {
      continue;
    }
    std::erase_if(kept, [&](const Exposed& each) { return no_better(each, made); });
    kept.push_back(made);
  }
  std::vector<Dispatcher> out;
  for (const Exposed& each : kept) out.push_back(each.dispatcher);
  return out;
}

const ShardingCosts& DegreeEnumerator::costs_of(const SearchPoint& point) {
  const CostsKey key(point);
  auto costs = space.costs.find(key);
  if (costs == space.costs.end()) {
    ParallelPlan plan;
    static_cast<LayerSharding&>(plan) = point.sharding;
    plan.cuda_graphs = point.cuda_graphs;
    costs = space.costs.emplace(key, context_.cost_model.sharding_costs(plan)).first;
    if (request_.constraints.values().offload_modules.empty()) {  // many, and nobody asks for them
      costs->second.dense.offloadable = costs->second.moe.offloadable = {};
    }
  }
  return costs->second;
}

/// Adds the node unless it breaks a rule, has nothing to recompute by, overlaps nothing, or is no
/// faster than `without` graphs. Returns its work where it breaks no rule.
std::optional<Seconds> DegreeEnumerator::add_node(const SearchPoint& point,
                                                  std::optional<Seconds> without) {
  if (const auto rejection = check_degrees(request_.model, request_.job, request_.cluster,
                                           request_.framework, degrees_of(request_, point))) {
    rejected.add(*rejection);
    return std::nullopt;
  }
  DegreeNode node;
  node.point = point;
  node.costs = &costs_of(point);
  const ScheduleKind schedule =
      context_.request.constraints.value_or<&ParallelPlan::schedule>(ScheduleKind::one_f_one_b);
  const double copies = schedule == ScheduleKind::dualpipe ? 2 : 1;
  node.work = copies * least_work(context_.cost_model, point, *node.costs);
  if (without && node.work >= *without) return node.work;
  const LayerCosts& moe = node.costs->moe;
  const bool hides = moe.alone_forward + moe.alone_backward > Seconds{};
  const bool overlap_pinned = request_.constraints.has<&ParallelPlan::overlap_ep>();
  if (point.sharding.overlap_ep && !hides && !overlap_pinned) return node.work;
  if (context_.recomputes(point).empty()) return node.work;
  node.slowest = std::max(slowest_stage(context_.cost_model, point, *node.costs, schedule),
                          node.work / point.pp);
  const std::optional<LeastStep> least = least_time_of_schedules(context_, node);
  if (!least) {
    if (overlap_pinned && point.sharding.overlap_ep) reject_schedule(point);
    return node.work;
  }
  node.least = least->assumed;
  node.proved = least->proved;
  space.nodes.push_back(node);
  return node.work;
}

/// Most of what a search keeps are costs: those that were looked at for no node are dropped.
void DegreeEnumerator::forget_costs() {
  std::vector<const ShardingCosts*> used;
  for (const DegreeNode& node : space.nodes) used.push_back(node.costs);
  std::sort(used.begin(), used.end());
  std::erase_if(space.costs, [&](const auto& known) {
    return !std::binary_search(used.begin(), used.end(), &known.second);
  });
}

/// No schedule allows the overlap that is pinned.
void DegreeEnumerator::reject_schedule(const SearchPoint& point) {
  const FrameworkRule* rule = broken_schedule_rule(context_, point);
  if (rule == nullptr) return;
  rejected.add(
      {RejectionReason::framework_lacks_feature,
       fmt::format("{} has no {} ({})", request_.framework.name, rule->what, rule->source)});
}

}  // namespace

DegreeSpace enumerate_degrees(const SearchContext& context, Findings& found) {
  const PlanRequest& request = context.request;
  const std::int64_t gpus = request.cluster.gpus();
  std::vector<DegreeEnumerator> parts;
  for (const int tp : tp_values(request, gpus)) {
    if (const auto rejection = check_tensor_parallel(request.model, tp)) {
      parts.emplace_back(context, *rejection);
      continue;
    }
    for (const int cp : cp_values(request, gpus)) parts.emplace_back(context, tp, cp);
  }
  on_all_cores(parts.size(), [&](std::size_t i) { parts[i].enumerate(); });
  DegreeSpace space;
  for (DegreeEnumerator& part : parts) {
    found.reject(part.rejected);
    space.costs.merge(part.space.costs);  // which stay where the nodes point to
    space.nodes.insert(space.nodes.end(), part.space.nodes.begin(), part.space.nodes.end());
    part.space = {};
  }
  std::stable_sort(space.nodes.begin(), space.nodes.end(),
                   [](const DegreeNode& a, const DegreeNode& b) { return a.least < b.least; });
  return space;
}

}  // namespace echelon
