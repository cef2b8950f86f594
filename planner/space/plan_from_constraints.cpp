#include "planner/space/plan_from_constraints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/saturated_product.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/contradictions.hpp"
#include "planner/space/legality.hpp"

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
    case RejectionReason::shard_group: return "--zero-group-size";
    case sequence_not_divisible: return "--seq";
    case batch_not_divisible: return "--global-batch";
    case too_few_layers: return "--pp";
    case layers_not_divisible:
    case microbatches_not_divisible: return "--vpp";
    case stack_lacks_feature: return "--framework";
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
  return below > 0 ? fmt::format("--zero-group-size {} or {}", below, above)
                   : fmt::format("--zero-group-size {}", above);
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

/// What the constraints pin, and the defaults of the rest.
Result<SearchPoint> pinned_point(const PlanRequest& request) {
  const PlanConstraints& pinned = request.constraints;
  SearchPoint point;
  point.sharding.tp = pinned.tp.value_or(1);
  point.sharding.cp = pinned.cp.value_or(1);
  point.sharding.cp_comm = pinned.cp_comm.value_or(
      request.stack.cp_ring || !request.stack.cp_all_to_all ? CpComm::ring : CpComm::all_to_all);
  point.sharding.ep = pinned.ep.value_or(1);
  point.sharding.etp = pinned.etp.value_or(1);
  point.sharding.overlap_tp = pinned.overlap_tp.value_or(false);
  point.rank_order = pinned.rank_order.value_or(RankOrder::dp_inside_pp);
  point.offload_optimizer = pinned.offload_optimizer.value_or(0);
  point.pp = pinned.pp.value_or(1);
  point.vpp = pinned.vpp.value_or(1);
  point.schedule = pinned.schedule.value_or(point.vpp > 1 ? ScheduleKind::interleaved
                                                          : ScheduleKind::one_f_one_b);
  point.sharding.microbatch = pinned.microbatch.value_or(1);
  Result<int> dp = data_parallel(request, point.sharding.tp, point.sharding.cp, point.pp);
  if (!dp) return dp.error();
  point.dp = *dp;
  const int data_ranks = static_cast<int>(std::min<std::int64_t>(
      std::numeric_limits<int>::max(), saturated_product({point.dp, point.sharding.cp})));
  // Default ZeRO stage: 1 where it means something, else the lowest the stack offers.
  if (pinned.zero) {
    point.zero = *pinned.zero;
  } else if (data_ranks > 1) {
    while (point.zero < 3 && (point.zero == 0 || !request.stack.zero_allowed[point.zero])) {
      ++point.zero;
    }
  }
  point.shard_group = pinned.shard_group.value_or(data_ranks);
  point.sharding.sequence_parallel =
      pinned.sequence_parallel.value_or(point.sharding.tp > 1 && request.stack.sequence_parallel);
  point.recompute = pinned.recompute.value_or(pinned.selective_layers   ? Recompute::mixed
                                              : pinned.recompute_layers ? Recompute::full
                                                                        : Recompute::none);
  point.recompute_layers = request.model.layers;  // capped at the stage's layers
  return point;
}

/// Lists with an entry per stage, some of which may be one value for all.
Status check_stage_lists(const PlanConstraints& pinned, int stages) {
  Status status = Done{};
  const auto check = [&](const std::optional<std::vector<int>>& list, const char* flag,
                         bool one_is_enough) {
    if (!status || !list || list->size() == static_cast<std::size_t>(stages)) return;
    if (one_is_enough && list->size() == 1) return;
    status = input_error(flag, fmt::format("{} entries", list->size()),
                         fmt::format("one per pipeline stage, {}", stages));
  };
  check(pinned.layers_per_stage, "--layers-per-stage", false);
  check(pinned.recompute_layers, "--recompute-layers", true);
  check(pinned.selective_layers, "--selective-layers", true);
  return status;
}

}  // namespace

Result<ParallelPlan> plan_from_constraints(const PlanRequest& request) {
  const PlanConstraints& pinned = request.constraints;
  const Result<SearchPoint> filled = pinned_point(request);
  if (!filled) return filled.error();
  const SearchPoint& point = *filled;
  if (Status counts = check_recompute_counts(pinned); !counts) return counts.error();
  if (Status lists = check_stage_lists(pinned, point.pp); !lists) return lists.error();
  const int bare_ends = request.stack.any_layout && point.pp > 1 ? 2 : 0;
  if (std::int64_t{point.pp} * point.vpp > request.model.layers + bare_ends) {
    return input_error(
        "--pp",
        fmt::format("{} layers for pp {} x vpp {} chunks", request.model.layers, point.pp,
                    point.vpp),
        "at least one layer per chunk",
        fmt::format("nearest valid: --pp {}", std::max(1, request.model.layers / point.vpp)));
  }
  ParallelPlan plan;
  if (!fill_plan(request, point, plan)) {
    return input_error(
        "--vpp",
        fmt::format("{} layers on pp {} x vpp {}", request.model.layers, point.pp, point.vpp),
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
