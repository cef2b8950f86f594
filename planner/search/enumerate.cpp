#include "planner/search/enumerate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "core/base/on_all_cores.hpp"
#include "core/base/saturated_product.hpp"
#include "planner/search/node_queue.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

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
  [[nodiscard]] bool takes_graphs(const SearchPoint& point) const;
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
  /// The first costs of shardings that differ in their experts alone.
  std::map<LayerSharding, const ShardingCosts*> but_for_experts_;
  /// least_work() of costs and graphs, which no other degree changes.
  std::map<std::pair<const ShardingCosts*, CudaGraphs>, Seconds> works_;
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
  if (pp > 1 && request_.framework.pipeline_needs_own_model && !pinned.has<&ParallelPlan::pp>()) {
    return rejected.add({RejectionReason::framework_lacks_feature,
                         fmt::format("{} has no pipeline stages of a model that is not written for "
                                     "them; --pp plans those of one that is",
                                     request_.framework.name)});
  }
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
      const bool buffers = request_.framework.exchanges_local_batch &&
                           !request_.constraints.has<&ParallelPlan::dispatcher>();
      if (buffers && dispatchers.front() != Dispatcher::alltoall) {
        dispatchers.push_back(Dispatcher::alltoall);  // which needs less memory
      }
    }
    for (const Dispatcher dispatcher : dispatchers) {
      point.sharding.dispatcher = dispatcher;
      std::optional<Seconds> without;
      for (const CudaGraphs each : graphs) {
        point.cuda_graphs = each;
        if (each != graphs.front() && !takes_graphs(point)) continue;
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
         takes_ranks(point.sharding.dispatcher, point.sharding.ep * point.sharding.etp,
                     request_.cluster) &&
         broken_rule(request_.framework, RulePart::degrees, request_.model, request_.job.precision,
                     plan) == nullptr;
}

/// Whether no rule of the framework is against the point's graphs, which nobody asked for.
bool DegreeEnumerator::takes_graphs(const SearchPoint& point) const {
  return broken_rule(request_.framework, RulePart::degrees, request_.model, request_.job.precision,
                     degrees_of(request_, point)) == nullptr;
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
  const bool whole = request_.model.moe.experts % point.sharding.ep == 0;  // else add_node refuses
  if (request_.constraints.has<&ParallelPlan::dispatcher>() || point.sharding.ep == 1 || !whole) {
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
    LayerSharding dense = point.sharding;
    dense.ep = dense.etp = 1;
    dense.dispatcher = Dispatcher::alltoall;
    dense.overlap_ep = dense.overlap_shared = false;
    const ShardingCosts*& alike = but_for_experts_[dense];
    costs = space.costs.emplace(key, context_.cost_model.sharding_costs(plan, alike)).first;
    alike = &costs->second;
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
  const auto [work, added] = works_.try_emplace({node.costs, point.cuda_graphs});
  if (added) work->second = least_work(context_, point, *node.costs);
  node.work = work->second;
  if (without && node.work >= *without) return node.work;
  const LayerCosts& moe = node.costs->moe;
  const bool hides = moe.alone_forward + moe.alone_backward > Seconds{};
  const bool overlap_pinned = request_.constraints.has<&ParallelPlan::overlap_ep>();
  if (point.sharding.overlap_ep && !hides && !overlap_pinned) return node.work;
  if (context_.recomputes(point).empty()) return node.work;
  if (overlap_pinned && point.sharding.overlap_ep && !bound_node(context_, node)) {
    reject_schedule(point);
    return node.work;
  }
  node.least = quick_bound(context_, node);
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
  return space;
}

}  // namespace echelon
