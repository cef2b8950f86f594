#include "planner/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/saturated_product.hpp"
#include "planner/candidates.hpp"
#include "planner/legality.hpp"

namespace echelon {
namespace {

/// Flag a rejected single configuration should be blamed on.
std::string flag_of(RejectionReason reason) {
  using enum RejectionReason;
  switch (reason) {
    case gpus_mismatch: return "--gpus";
    case heads_not_divisible:
    case kv_heads_not_divisible:
    case ffn_not_divisible: return "--tp";
    case experts_not_divisible: return "--ep";
    case RejectionReason::rank_order: return "--rank-order";
    case RejectionReason::shard_group: return "--shard-group";
    case sequence_not_divisible: return "--seq";
    case batch_not_divisible: return "--global-batch";
    case too_few_layers: return "--pp";
    case layers_not_divisible:
    case microbatches_not_divisible: return "--vpp";
    case stack_lacks_feature: return "--stack";
    case contradictory:
    case memory: break;
  }
  return "the configuration";
}

/// Nearest values of `n`'s divisors, for "tp 3 does not divide ... nearest: 2 or 4".
std::string nearest_divisors(std::int64_t n, std::int64_t value) {
  std::int64_t below = 1;
  std::int64_t above = 0;
  for (const std::int64_t d : divisors(n)) {
    if (d <= value) below = d;
    if (d >= value && above == 0) above = d;
  }
  return above > 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", below);
}

/// The shard groups around the plan's one that hold whole copies of the experts.
std::string nearest_groups(const ParallelPlan& plan) {
  std::int64_t below = 0;
  std::int64_t above = 0;
  for (const std::int64_t group : divisors(std::int64_t{plan.dp} * plan.cp)) {
    if (plan.expert_dp() % (plan.dp * plan.cp / group) != 0) continue;
    if (group < plan.shard_group) below = group;
    if (group > plan.shard_group && above == 0) above = group;
  }
  return below > 0 ? fmt::format("--shard-group {} or {}", below, above)
                   : fmt::format("--shard-group {}", above);
}

std::string nearest_valid(const PlanRequest& request, const ParallelPlan& plan,
                          RejectionReason reason) {
  using enum RejectionReason;
  const auto degrees = [](std::string text) { return "nearest valid: " + std::move(text); };
  switch (reason) {
    case heads_not_divisible:
      return degrees("--tp " + nearest_divisors(request.model.heads, plan.tp));
    case kv_heads_not_divisible:
      return degrees("--tp " + nearest_divisors(request.model.kv_heads, plan.tp));
    case ffn_not_divisible:
      return degrees("--tp " + nearest_divisors(request.model.ffn_hidden, plan.tp));
    case sequence_not_divisible:
      return degrees(fmt::format("--seq {}", request.job.sequence / plan.tp * plan.tp));
    case RejectionReason::shard_group: return degrees(nearest_groups(plan));
    case batch_not_divisible: {
      const std::int64_t unit = std::int64_t{plan.dp} * plan.microbatch;
      const std::int64_t below = request.job.global_batch / unit * unit;
      return degrees(below > 0 ? fmt::format("--global-batch {} or {}", below, below + unit)
                               : fmt::format("--global-batch {}", unit));
    }
    default: return {};
  }
}

/// dp from the GPUs when it is not given.
Result<int> data_parallel(const PlanRequest& request, int tp, int cp, int pp) {
  const PlanConstraints& pinned = request.constraints;
  if (pinned.dp) return *pinned.dp;
  const std::int64_t rest = saturated_product({tp, cp, pp});
  if (request.cluster.gpus() % rest != 0) {
    return input_error(
        "--gpus",
        fmt::format("{} GPUs for tp {} x cp {} x pp {}", request.cluster.gpus(), tp, cp, pp),
        "a multiple of tp x cp x pp",
        "nearest valid product: " + nearest_divisors(request.cluster.gpus(), rest));
  }
  return static_cast<int>(request.cluster.gpus() / rest);
}

}  // namespace

std::optional<Error> contradicting_counts(const PlanConstraints& pinned) {
  const auto against = [&](const char* flag, const char* expected) {
    return input_error(flag, fmt::format("with --recompute {}", name_of(*pinned.recompute)),
                       expected, "drop one of the two flags");
  };
  if (!pinned.recompute || *pinned.recompute == Recompute::mixed) return {};
  if (pinned.selective_layers) return against("--selective-layers", "--recompute mixed");
  if (pinned.recompute_layers && *pinned.recompute != Recompute::full) {
    return against("--recompute-layers", "--recompute full or mixed");
  }
  return {};
}

Result<ParallelPlan> plan_from_constraints(const PlanRequest& request) {
  const PlanConstraints& pinned = request.constraints;
  Tuple tuple;
  tuple.sharding.tp = pinned.tp.value_or(1);
  tuple.sharding.cp = pinned.cp.value_or(1);
  tuple.sharding.cp_comm = pinned.cp_comm.value_or(
      request.stack.cp_ring || !request.stack.cp_all_to_all ? CpComm::ring : CpComm::all_to_all);
  tuple.sharding.ep = pinned.ep.value_or(1);
  tuple.sharding.etp = pinned.etp.value_or(1);
  tuple.sharding.overlap_tp = pinned.overlap_tp.value_or(false);
  tuple.rank_order = pinned.rank_order.value_or(RankOrder::dp_inside_pp);
  tuple.offload_optimizer = pinned.offload_optimizer.value_or(0);
  tuple.pp = pinned.pp.value_or(1);
  tuple.vpp = pinned.vpp.value_or(1);
  tuple.schedule = pinned.schedule.value_or(tuple.vpp > 1 ? ScheduleKind::interleaved
                                                          : ScheduleKind::one_f_one_b);
  tuple.sharding.microbatch = pinned.microbatch.value_or(1);
  Result<int> dp = data_parallel(request, tuple.sharding.tp, tuple.sharding.cp, tuple.pp);
  if (!dp) return dp.error();
  tuple.dp = *dp;
  const int data_ranks = static_cast<int>(std::min<std::int64_t>(
      std::numeric_limits<int>::max(), saturated_product({tuple.dp, tuple.sharding.cp})));
  // Default ZeRO stage: 1 where it means something, else the lowest the stack offers.
  if (pinned.zero) {
    tuple.zero = *pinned.zero;
  } else if (data_ranks > 1) {
    while (tuple.zero < 3 && (tuple.zero == 0 || !request.stack.zero_allowed[tuple.zero])) {
      ++tuple.zero;
    }
  }
  tuple.shard_group = pinned.shard_group.value_or(data_ranks);
  tuple.sharding.sequence_parallel =
      pinned.sequence_parallel.value_or(tuple.sharding.tp > 1 && request.stack.sequence_parallel);
  tuple.recompute = pinned.recompute.value_or(pinned.selective_layers   ? Recompute::mixed
                                              : pinned.recompute_layers ? Recompute::full
                                                                        : Recompute::none);
  tuple.recompute_layers = request.model.layers;  // capped at the stage's layers
  if (auto error = contradicting_counts(pinned)) return *error;
  const auto per_stage = [&](const std::optional<std::vector<int>>& list, const char* flag,
                             bool one_is_enough) -> std::optional<Error> {
    if (!list || list->size() == static_cast<std::size_t>(tuple.pp)) return {};
    if (one_is_enough && list->size() == 1) return {};
    return input_error(flag, fmt::format("{} entries", list->size()),
                       fmt::format("one per pipeline stage, {}", tuple.pp));
  };
  if (auto error = per_stage(pinned.layers_per_stage, "--layers-per-stage", false)) return *error;
  if (auto error = per_stage(pinned.recompute_layers, "--recompute-layers", true)) return *error;
  if (auto error = per_stage(pinned.selective_layers, "--selective-layers", true)) return *error;

  const int bare_ends = request.stack.any_layout && tuple.pp > 1 ? 2 : 0;
  if (std::int64_t{tuple.pp} * tuple.vpp > request.model.layers + bare_ends) {
    return input_error(
        "--pp",
        fmt::format("{} layers for pp {} x vpp {} chunks", request.model.layers, tuple.pp,
                    tuple.vpp),
        "at least one layer per chunk",
        fmt::format("nearest valid: --pp {}", std::max(1, request.model.layers / tuple.vpp)));
  }
  ParallelPlan plan;
  if (!fill_plan(request, tuple, plan)) {
    return input_error(
        "--vpp",
        fmt::format("{} layers on pp {} x vpp {}", request.model.layers, tuple.pp, tuple.vpp),
        std::string(describe(RejectionReason::layers_not_divisible)));
  }
  if (pinned.overlap_pp) plan.overlap_pp = *pinned.overlap_pp && plan.pp > 1;
  plan.bucket = pinned.bucket;
  if (const auto rejection =
          check_plan(request.model, request.job, request.cluster, request.stack, plan)) {
    const std::string nearest = nearest_valid(request, plan, rejection->reason);
    return input_error(
        flag_of(rejection->reason), rejection->detail, {},
        std::string(describe(rejection->reason)) + (nearest.empty() ? "" : "; " + nearest));
  }
  return plan;
}

}  // namespace echelon
