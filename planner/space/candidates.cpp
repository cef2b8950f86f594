// Over 400 lines because the values of all axes stand in one place, in the order of the search.
#include "planner/space/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/expects.hpp"
#include "core/base/saturated_product.hpp"
#include "core/framework/stage_layers.hpp"
#include "costmodel/time/pipeline.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

std::vector<int> narrowed(const std::vector<std::int64_t>& values, std::int64_t most) {
  std::vector<int> out;
  for (const std::int64_t value : values) {
    if (value <= most) out.push_back(static_cast<int>(value));
  }
  return out;
}

/// ParallelPlan::expert_dp() of the point's plans.
int ranks_with_same_experts(const SearchPoint& point) {
  const LayerSharding& sharding = point.sharding;
  return sharding.tp * sharding.cp * point.dp / (sharding.ep * sharding.etp);
}

/// Recomputed layers the user pinned: one per stage, or one value for all, which a stage with fewer
/// layers caps (a value no stage can hold is left for check_plan to reject).
int pinned_recompute(const std::vector<int>& pinned, const std::vector<int>& layers,
                     std::size_t stage) {
  if (pinned.size() != 1) return pinned[stage];
  const int most = *std::max_element(layers.begin(), layers.end());
  return pinned.front() <= most ? std::min(pinned.front(), layers[stage]) : pinned.front();
}

/// Fills in all of `plan` but its layers per stage and recomputed layers.
// fill_degrees and point_of name the members of SearchPoint, which leaves out fields of a plan; its
// sharding is copied as a whole.
void fill_degrees(const PlanRequest& request, const SearchPoint& point, ParallelPlan& plan) {
  const PlanConstraints& pinned = request.constraints;
  static_cast<LayerSharding&>(plan) = point.sharding;
  plan.dp = point.dp;
  plan.pp = point.pp;
  plan.vpp = point.vpp;
  plan.microbatch_group = point.microbatch_group;
  plan.zero = point.zero;
  plan.shard_group = point.shard_group;
  set_policy(point.recompute, plan);
  plan.rank_order = point.rank_order;
  plan.cuda_graphs = point.cuda_graphs;
  plan.offload_optimizer = point.offload_optimizer;
  plan.offload_modules = pinned.values().offload_modules;
  plan.schedule = point.schedule;
  const bool pays = overlap_pays(request.calibration);
  plan.overlap_dp = pinned.value_or<&ParallelPlan::overlap_dp>(pays);
  // A search over schedules meets those that cannot overlap, where the question does not arise.
  plan.overlap_pp = pinned.value_or<&ParallelPlan::overlap_pp>(pays) && point.pp > 1 &&
                    overlaps_messages(request.framework, point.schedule);
  plan.bucket =
      why_no_buckets(request.framework, plan).empty() ? pinned.values().bucket : std::nullopt;
}

}  // namespace

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low;
  std::vector<std::int64_t> high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::optional<std::vector<int>> split_layers(const Framework& framework, const ModelSpec& model,
                                             int pp, int vpp, ScheduleKind schedule) {
  const int layers = model.layers;
  EXPECTS(pp >= 1 && vpp >= 1, "a pipeline has a stage and a chunk");
  if (schedule == ScheduleKind::dualpipe) {  // each chunk is a stage, as of other pipelines
    return split_layers(framework, model, pp, 1, ScheduleKind::one_f_one_b);
  }
  // More chunks than an int holds are more than any model has layers.
  const std::int64_t all_chunks = std::int64_t{pp} * vpp;
  if (all_chunks > std::int64_t{layers} + 2) return std::nullopt;
  const int chunks = static_cast<int>(all_chunks);
  const auto ends_less = [&](int first, int last) -> std::optional<std::vector<int>> {
    std::vector<int> split(static_cast<std::size_t>(pp), (layers + first + last) / pp);
    split.front() -= first;
    split.back() -= last;
    const int fewest = fewest_layers(framework, pp, vpp, 0);
    if (split.front() < fewest || split.back() < fewest) return std::nullopt;
    return split;
  };
  const bool bare_ends = framework.any_layout && pp > 1;
  if (bare_ends && layers + 1 == chunks) return ends_less(0, 1);
  if (bare_ends && layers + 2 == chunks) return ends_less(1, 1);
  if (layers < chunks) return std::nullopt;
  if (vpp == 1) {
    if (pp == 1 || framework.stage_layers == StageLayers::chosen) {
      return balanced_layers(layers, pp);
    }
    return dealt_layers(framework, model, pp);
  }
  if (layers % chunks == 0) return ends_less(0, 0);
  if (schedule == ScheduleKind::dualpipe_v) {
    if (!framework.any_layout) return std::nullopt;
    return (layers + 2) % chunks == 0 ? ends_less(2, 0) : balanced_layers(layers, pp);
  }
  if (!framework.any_layout) return std::nullopt;
  if ((layers + 2) % chunks == 0 && pp > 1) return ends_less(1, 1);
  if ((layers + 2) % pp == 0 && layers % pp != 0) return ends_less(1, 1);
  return balanced_layers(layers, pp);
}

bool overlap_pays(const Calibration& calibration) { return calibration.overlap_slowdown <= 1; }

ParallelPlan degrees_of(const PlanRequest& request, const SearchPoint& point) {
  ParallelPlan plan;
  fill_degrees(request, point, plan);
  return plan;
}

bool fill_plan(const PlanRequest& request, const SearchPoint& point, ParallelPlan& plan) {
  const PlanConstraints& pinned = request.constraints;
  fill_degrees(request, point, plan);
  const auto stages = static_cast<std::size_t>(point.pp);
  if (pinned.has<&ParallelPlan::layers_per_stage>()) {
    plan.layers_per_stage = pinned.values().layers_per_stage;
  } else if (auto split = split_layers(request.framework, request.model, point.pp, point.vpp,
                                       point.schedule)) {
    plan.layers_per_stage = std::move(*split);
  } else {
    return false;
  }
  const bool mixed = point.recompute.kind == Recompute::mixed;
  plan.recompute_layers.assign(stages, 0);
  plan.selective_layers.assign(mixed ? stages : 0, 0);
  if (plan.layers_per_stage.size() != stages) return true;  // check_plan will say so
  for (std::size_t s = 0; s < stages; ++s) {
    if (mixed && pinned.has<&ParallelPlan::selective_layers>()) {
      plan.selective_layers[s] =
          pinned_recompute(pinned.values().selective_layers, plan.layers_per_stage, s);
    }
    if (mixed && pinned.has<&ParallelPlan::selective_layers>() &&
        !pinned.has<&ParallelPlan::recompute_layers>())
      continue;
    if (!mixed && point.recompute.kind != Recompute::full) continue;
    plan.recompute_layers[s] =
        pinned.has<&ParallelPlan::recompute_layers>()
            ? pinned_recompute(pinned.values().recompute_layers, plan.layers_per_stage, s)
            : std::min(point.recompute_layers, plan.layers_per_stage[s]);
  }
  return true;
}

SearchPoint point_of(const ParallelPlan& plan) {
  SearchPoint point;
  point.sharding = sharding_of(plan);
  point.pp = plan.pp;
  point.dp = plan.dp;
  point.vpp = plan.vpp;
  point.microbatch_group = plan.microbatch_group;
  point.schedule = plan.schedule;
  point.zero = plan.zero;
  point.shard_group = plan.shard_group;
  point.rank_order = plan.rank_order;
  point.offload_optimizer = plan.offload_optimizer;
  point.cuda_graphs = plan.cuda_graphs;
  point.recompute = {plan.recompute, plan.recompute_modules};
  for (const int k : plan.recompute_layers) {
    point.recompute_layers = std::max(point.recompute_layers, k);
  }
  return point;
}

std::vector<int> degree_values(std::optional<int> pinned, std::int64_t ranks) {
  return pinned ? std::vector<int>{*pinned} : narrowed(divisors(ranks), ranks);
}

std::vector<int> tp_values(const PlanRequest& request, std::int64_t ranks) {
  const std::optional<int> pinned = request.constraints.get<&ParallelPlan::tp>();
  return degree_values(request.framework.tensor_parallel ? pinned : pinned.value_or(1), ranks);
}

std::vector<int> pp_values(const PlanRequest& request, std::int64_t ranks) {
  const std::optional<int> pinned = request.constraints.get<&ParallelPlan::pp>();
  return degree_values(request.framework.pipeline_parallel ? pinned : pinned.value_or(1), ranks);
}

std::vector<int> cp_values(const PlanRequest& request, std::int64_t ranks) {
  if (request.constraints.has<&ParallelPlan::cp>()) return {request.constraints.values().cp};
  std::vector<int> values{1};
  if (!request.framework.offers_cp()) return values;
  const auto divides = [&](int cp) {
    return std::ranges::any_of(cp_comm_values(request, cp), [&](CpComm comm) {
      return request.job.sequence % (std::int64_t{request.framework.slices_of(comm)} * cp) == 0;
    });
  };
  for (const int cp : narrowed(divisors(ranks), ranks)) {
    if (cp > 1 && divides(cp)) values.push_back(cp);
  }
  return values;
}

std::vector<CpComm> cp_comm_values(const PlanRequest& request, int cp) {
  if (request.constraints.has<&ParallelPlan::cp_comm>())
    return {request.constraints.values().cp_comm};
  if (cp == 1) return {CpComm::ring};
  std::vector<CpComm> values;
  for (const CpComm comm : {CpComm::ring, CpComm::all_to_all, CpComm::all_gather}) {
    const bool taken = (comm == CpComm::all_gather) == request.model.sparse();
    if (taken && request.framework.offers_cp(comm)) values.push_back(comm);
  }
  if (values.empty()) values.push_back(CpComm::ring);  // pinned cp: rejected with its reason
  return values;
}

std::vector<LayerSharding> expert_shardings(const PlanRequest& request,
                                            const LayerSharding& sharding, int ranks) {
  const PlanConstraints& pinned = request.constraints;
  const int experts = request.model.moe.experts;
  std::vector<LayerSharding> shardings;
  const auto add = [&](int ep, int etp) {
    shardings.push_back(sharding);
    shardings.back().ep = ep;
    shardings.back().etp = etp;
    // A search over ep meets ep = 1, where the question does not arise.
    const bool alone = ep == 1 && !pinned.has<&ParallelPlan::ep>();
    shardings.back().dispatcher = alone ? Dispatcher::alltoall : pinned.values().dispatcher;
  };
  if (experts == 0 || !request.framework.expert_parallel) {
    add(pinned.value_or<&ParallelPlan::ep>(1), pinned.value_or<&ParallelPlan::etp>(1));
    return shardings;
  }
  std::vector<int> etps;
  if (!request.framework.splits_experts_as_mlp) etps.push_back(1);
  if (etps.empty() || sharding.tp > 1) etps.push_back(sharding.tp);
  if (pinned.has<&ParallelPlan::etp>()) etps = {pinned.values().etp};
  for (const int etp : etps) {
    if (pinned.has<&ParallelPlan::ep>()) {
      add(pinned.values().ep, etp);
      continue;
    }
    for (const int ep : narrowed(divisors(experts), ranks)) {
      if (ranks % (std::int64_t{ep} * etp) == 0) add(ep, etp);
    }
  }
  if (shardings.empty()) add(1, etps.front());  // pinned etp: rejected with its reason
  return shardings;
}

std::vector<bool> overlap_ep_values(const PlanRequest& request, const LayerSharding& sharding) {
  const PlanConstraints& pinned = request.constraints;
  const bool alone = sharding.ep == 1 && !pinned.has<&ParallelPlan::ep>();
  if (pinned.has<&ParallelPlan::overlap_ep>()) return {!alone && pinned.values().overlap_ep};
  if (sharding.ep == 1 || !request.framework.overlaps_experts) return {false};
  return {false, true};
}

std::vector<CudaGraphs> graph_values(const PlanRequest& request) {
  if (request.constraints.has<&ParallelPlan::cuda_graphs>()) {
    return {request.constraints.values().cuda_graphs};
  }
  const bool of_layers =
      request.model.moe.experts > 0 && request.framework.offers(CudaGraphs::layers);
  const CudaGraphs gaining = of_layers ? CudaGraphs::layers : CudaGraphs::full_iteration;
  if (!offers_graphs(request.framework, request.job, gaining)) return {CudaGraphs::none};
  return {CudaGraphs::none, gaining};
}

std::vector<int> microbatch_values(const PlanRequest& request, int dp) {
  if (request.constraints.has<&ParallelPlan::microbatch>())
    return {request.constraints.values().microbatch};
  if (request.job.global_batch % dp != 0) return {1};  // illegal whatever its size: counted once
  const std::int64_t local = request.job.global_batch / dp;
  return narrowed(divisors(local), 1 << 20);
}

std::vector<Chunks> chunk_values(const PlanRequest& request, int pp) {
  using enum ScheduleKind;
  const PlanConstraints& pinned = request.constraints;
  const auto schedule = pinned.get<&ParallelPlan::schedule>();
  if (pinned.has<&ParallelPlan::vpp>()) {
    return {{pinned.values().vpp,
             schedule.value_or(pinned.values().vpp > 1 ? interleaved : one_f_one_b)}};
  }
  if (schedule && runs_both_ways(*schedule)) return {{2, *schedule}};
  std::vector<Chunks> values;
  // A group of microbatches asks for interleaving, as the schedule does.
  const bool one =
      schedule != interleaved && pinned.value_or<&ParallelPlan::microbatch_group>(1) == 1;
  if (one) values.push_back({1, schedule.value_or(one_f_one_b)});
  if (pp == 1 || (schedule && schedule != interleaved)) return values;
  if (one && !schedule && request.framework.zero_bubble) values.push_back({1, zero_bubble_h1});
  if (!request.framework.interleaved) return values;
  const int layers = request.model.layers;
  const bool any = request.framework.any_layout;
  for (int vpp = 2; std::int64_t{vpp} * pp <= layers + (any ? 2 : 0); ++vpp) {
    if (any || layers % (pp * vpp) == 0) values.push_back({vpp, interleaved});
  }
  return values;
}

std::vector<int> group_values(const PlanRequest& request, const SearchPoint& point, Seconds hop,
                              Seconds slowest) {
  // A search over vpp meets them, where the question does not arise.
  if (point.vpp == 1 || runs_both_ways(point.schedule)) return {1};
  if (request.constraints.has<&ParallelPlan::microbatch_group>()) {
    const int pinned = request.constraints.values().microbatch_group;
    return {pinned > 1 ? pinned : point.pp};
  }
  if (!request.framework.microbatch_groups) return {point.pp};
  const std::int64_t samples = std::int64_t{point.dp} * point.sharding.microbatch;
  const std::int64_t m = request.job.global_batch / samples;
  const std::optional<int> smallest = smallest_group(m, point.pp, point.pp);
  if (!smallest) return {point.pp};  // too few microbatches: rejected with its reason
  std::vector<int> values{*smallest};
  const Seconds chunk = slowest / point.vpp;
  const Seconds exposed = exposed_rounds(point.pp, point.vpp, *smallest, hop, chunk);
  if (exposed <= kExposedShare * static_cast<double>(m) * slowest) return values;
  // As many more microbatches as hide pp hops behind their forwards, a third of a chunk.
  const double more = std::min(static_cast<double>(m), std::ceil(point.pp * (hop / (chunk / 3))));
  const int hiding = *smallest_group(m, point.pp, point.pp + static_cast<std::int64_t>(more));
  if (hiding > *smallest) values.push_back(hiding);
  return values;
}

std::vector<int> zero_values(const PlanRequest& request, const SearchPoint& point) {
  if (request.constraints.has<&ParallelPlan::zero>()) return {request.constraints.values().zero};
  std::vector<int> values;
  const bool shards = point.dp * point.sharding.cp > 1 ||
                      (request.model.moe.experts > 0 && ranks_with_same_experts(point) > 1);
  // One rank has nothing to shard; ZeRO-1 only carries the offload of the optimizer there, and
  // ZeRO-3 steps in groups where the framework copies what it steps.
  const bool groups = request.framework.step_copies[3] > 0;
  const int most = shards || groups ? 3 : request.framework.offload_optimizer ? 1 : 0;
  for (int zero = 0; zero <= most; ++zero) {
    if (request.framework.zero_allowed[zero]) values.push_back(zero);
  }
  if (values.empty()) values.push_back(0);
  return values;
}

std::vector<int> shard_values(const PlanRequest& request, const SearchPoint& point) {
  const int data = point.dp * point.sharding.cp;
  if (request.constraints.has<&ParallelPlan::shard_group>())
    return {request.constraints.values().shard_group};
  if (point.zero == 0 || !request.framework.hybrid_shard[point.zero] || data == 1) return {data};
  std::vector<int> values = narrowed(divisors(data), data);
  std::reverse(values.begin(), values.end());
  values.pop_back();  // over one rank nothing is split
  if (request.model.moe.experts > 0) {
    const int same = ranks_with_same_experts(point);
    std::erase_if(values, [&](int group) { return same % (data / group) != 0; });
  }
  return values;
}

std::vector<bool> sequence_parallel_values(const PlanRequest& request, int tp) {
  if (request.constraints.has<&ParallelPlan::sequence_parallel>()) {
    // A search over tp meets tp = 1, where the question does not arise.
    const bool wanted = request.constraints.values().sequence_parallel;
    return {wanted && (tp > 1 || request.constraints.has<&ParallelPlan::tp>())};
  }
  if (tp == 1 || !request.framework.sequence_parallel) return {false};
  if (request.framework.sequence_parallel_always) return {true};
  return {false, true};
}

std::vector<RankOrder> rank_order_values(const PlanRequest& request, const SearchPoint& point) {
  using enum RankOrder;
  if (request.constraints.has<&ParallelPlan::rank_order>())
    return {request.constraints.values().rank_order};
  if (!request.framework.rank_orders || point.pp == 1 || point.dp == 1) return {dp_inside_pp};
  ParallelPlan plan;
  static_cast<LayerSharding&>(plan) = point.sharding;
  plan.pp = point.pp;
  plan.rank_order = pp_inside_dp;
  if (check_rank_order(request.model, plan)) return {dp_inside_pp};
  return {dp_inside_pp, pp_inside_dp};
}

std::vector<double> offload_values(const PlanRequest& request, int zero) {
  if (request.constraints.has<&ParallelPlan::offload_optimizer>())
    return {request.constraints.values().offload_optimizer};
  if (request.framework.offload_optimizer && zero >= 1) return {0.0, 1.0};
  return {0.0};
}

bool selective_frees_more(const Framework& framework) {
  return framework.selective_per_operator || framework.remakes_pointwise;
}

std::vector<RecomputePolicy> recompute_values(const PlanRequest& request,
                                              const CostModel& cost_model) {
  using P = ParallelPlan;
  const PlanConstraints& pinned = request.constraints;
  if (pinned.has<&P::recompute>()) {
    return {{pinned.values().recompute, pinned.values().recompute_modules}};
  }
  if (pinned.has<&P::recompute_modules>()) {
    return {{Recompute::selective, pinned.values().recompute_modules}};
  }
  if (pinned.has<&P::selective_layers>()) return {Recompute::mixed};
  if (pinned.has<&P::recompute_layers>()) return {Recompute::full};
  // Activations are offloaded only where layers keep them.
  const OffloadModules& offloaded = pinned.values().offload_modules;
  const bool inside_experts =
      offloaded.intersects({OffloadModule::expert_fc1, OffloadModule::moe_act});
  std::vector<RecomputePolicy> values{Recompute::none};
  if (!request.framework.recompute_modules.empty()) {
    for (const RecomputeModules& modules : module_chain(cost_model)) {
      if (!request.module_sets) break;
      if (inside_experts && modules.contains(RecomputeModule::moe)) continue;
      values.emplace_back(Recompute::selective, modules);
    }
  } else if (!request.job.flash_attention || selective_frees_more(request.framework)) {
    values.emplace_back(Recompute::selective);
    if (request.framework.mixed_recompute && offloaded.empty())
      values.emplace_back(Recompute::mixed);
  }
  if (offloaded.empty()) values.emplace_back(Recompute::full);
  return values;
}

std::vector<RecomputePolicy> policies_beside(const PlanRequest& request,
                                             const std::vector<RecomputePolicy>& policies,
                                             bool overlap_ep, CudaGraphs graphs) {
  std::vector<RecomputePolicy> allowed;
  ParallelPlan plan;
  plan.overlap_ep = overlap_ep;
  plan.overlap_shared = request.constraints.values().overlap_shared;
  plan.cuda_graphs = graphs;
  for (const RecomputePolicy& policy : policies) {
    set_policy(policy, plan);
    if (!check_policy(request.model, request.job, request.framework, plan))
      allowed.push_back(policy);
  }
  return allowed;
}

std::vector<std::int64_t> values_to_offer(const PlanRequest& request, const ParallelPlan& plan,
                                          const PlanField& field) {
  using P = ParallelPlan;
  const std::int64_t gpus = request.cluster.gpus();
  const auto up_to = [](std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> values(
        static_cast<std::size_t>(std::max<std::int64_t>(0, last - first + 1)));
    std::iota(values.begin(), values.end(), first);
    return values;
  };
  const auto divisors_up_to = [](std::int64_t n, std::int64_t most) {
    std::vector<std::int64_t> values = divisors(n);
    std::erase_if(values, [&](std::int64_t value) { return value > most; });
    return values;
  };
  const MixtureOfExperts& moe = request.model.moe;
  if (field.is(&P::ep)) return divisors(std::max(1, moe.experts));
  if (field.is(&P::etp)) {
    const int width = moe.experts > 0 ? std::max(1, moe.expert_ffn_hidden) : 1;
    return divisors_up_to(width, request.cluster.gpus_per_node());
  }
  if (field.kind == PlanFieldKind::degree) {
    return divisors_up_to(gpus, field.is(&P::tp)   ? request.model.heads
                                : field.is(&P::pp) ? request.model.layers + 2
                                : field.is(&P::cp) ? request.job.sequence
                                                   : gpus);
  }
  if (field.is(&P::vpp)) return up_to(1, std::max(1, request.model.layers / plan.pp));
  if (field.is(&P::microbatch)) {
    const std::int64_t samples = request.job.global_batch;
    return divisors(samples % plan.dp == 0 ? samples / plan.dp : samples);
  }
  if (field.is(&P::microbatch_group)) {
    const std::int64_t m = plan.microbatches_rounded_up(request.job.global_batch);
    std::vector<std::int64_t> values;
    const bool grouped = plan.schedule == ScheduleKind::interleaved;
    for (std::int64_t group = plan.pp; grouped && group <= m; ++group) {
      if (groups_fill(m, plan.pp, group)) values.push_back(group);
    }
    return values.empty() ? std::vector<std::int64_t>{1} : values;
  }
  if (field.kind == PlanFieldKind::group) {
    const std::int64_t data = saturated_product({plan.dp, plan.cp});
    return data <= gpus ? divisors(data) : std::vector<std::int64_t>{};
  }
  return field.max > 0 ? up_to(field.min, field.max) : std::vector<std::int64_t>{};
}

}  // namespace echelon
