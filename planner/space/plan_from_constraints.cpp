#include "planner/space/plan_from_constraints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <variant>
#include <vector>

#include "core/base/saturated_product.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/contradictions.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

/// Of ep and etp the one that does not divide; of two that divide, the one that makes the grid of
/// the experts too large.
bool etp_is_wrong(const PlanRequest& request, const ParallelPlan& plan) {
  const MixtureOfExperts& moe = request.model.moe;
  if (moe.experts % plan.ep != 0) return false;
  if (moe.expert_ffn_hidden % plan.etp != 0) return true;
  return plan.etp > 1 && saturated_product({plan.tp, plan.cp, plan.dp}) % plan.ep == 0;
}

/// The layers of the fullest stage, where more of them are to be recomputed in full than a stage
/// has.
std::optional<int> most_recomputed(const ParallelPlan& plan) {
  if (plan.recompute != Recompute::full) return std::nullopt;
  const auto stages = std::min(plan.recompute_layers.size(), plan.layers_per_stage.size());
  for (std::size_t s = 0; s < stages; ++s) {
    if (plan.recompute_layers[s] > plan.layers_per_stage[s]) {
      return *std::ranges::max_element(plan.layers_per_stage);
    }
  }
  return std::nullopt;
}

/// Flag a rejected single configuration should be blamed on.
std::string flag_of(const PlanRequest& request, const ParallelPlan& plan, RejectionReason reason) {
  using enum RejectionReason;
  switch (reason) {
    case gpus_mismatch: return "--gpus";
    case heads_not_divisible:
    case kv_heads_not_divisible:
    case ffn_not_divisible: return "--tp";
    case experts_not_divisible: return etp_is_wrong(request, plan) ? "--etp" : "--ep";
    case RejectionReason::rank_order: return "--rank-order";
    case RejectionReason::shard_group: return "--zero-group-size";
    case sequence_not_divisible: return "--seq";
    case batch_not_divisible: return "--global-batch";
    case too_few_layers: return "--pp";
    case layers_not_divisible: return plan.vpp > 1 ? "--vpp" : "--layers-per-stage";
    case microbatches_not_divisible: return "--microbatch-group-size";
    case framework_lacks_feature: return "--framework";
    case no_price: return plan.cp > 1 ? "--cp" : "the configuration";
    case contradictory:
      if (most_recomputed(plan)) return "--recompute-layers";
      break;
    case memory: break;
  }
  return "the configuration";
}

/// The values next to `value` among some in ascending order: "2 or 4", or the last or the first.
std::string nearest_of(const std::vector<std::int64_t>& values, std::int64_t value) {
  const auto above = std::ranges::upper_bound(values, value);
  const auto not_below = std::ranges::lower_bound(values, value);
  if (above == values.end()) return fmt::format("{}", values.back());
  if (not_below == values.begin()) return fmt::format("{}", *above);
  return fmt::format("{} or {}", *std::prev(not_below), *above);
}

/// Nearest values of `n`'s divisors, for "tp 3 does not divide ... nearest: 2 or 4".
std::string nearest_divisors(std::int64_t n, std::int64_t value) {
  return nearest_of(divisors(n), value);
}

/// The legal ZeRO groups around the plan's one.
std::string nearest_groups(const ParallelPlan& plan) {
  std::int64_t below = 0;
  std::int64_t above = 0;
  for (const std::int64_t group : divisors(std::int64_t{plan.dp} * plan.cp)) {
    if (group == 1 || plan.expert_dp() % (plan.dp * plan.cp / group) != 0) continue;
    if (group < plan.shard_group) below = group;
    if (group > plan.shard_group && above == 0) above = group;
  }
  return below > 0 && above > 0 ? fmt::format("--zero-group-size {} or {}", below, above)
                                : fmt::format("--zero-group-size {}", std::max(below, above));
}

/// The groups of microbatches next to the plan's; what else to change where there is none.
std::string nearest_group(const PlanRequest& request, const ParallelPlan& plan) {
  const std::int64_t m = plan.microbatches_rounded_up(request.job.global_batch);
  if (runs_both_ways(plan.schedule)) {
    const std::int64_t right = std::max(2 * std::int64_t{plan.pp}, m + m % plan.copies());
    return fmt::format("nearest valid: --global-batch {}", right * plan.dp * plan.microbatch);
  }
  if (!request.framework.microbatch_groups || m < plan.pp) {
    return fmt::format("nearest valid: --vpp 1, or a multiple of {} microbatches", plan.pp);
  }
  const int above = *smallest_group(m, plan.pp, plan.microbatch_group);
  std::int64_t below = plan.microbatch_group - 1;
  while (below >= plan.pp && !groups_fill(m, plan.pp, below)) --below;
  return below >= plan.pp
             ? fmt::format("nearest valid: --microbatch-group-size {} or {}", below, above)
             : fmt::format("nearest valid: --microbatch-group-size {}", above);
}

/// What tensor parallelism must divide: attention heads, key heads of gated delta nets, and groups
/// of state spaces (none: 0, of which any number is a divisor).
int shared_head_divisor(const ModelSpec& model) {
  return std::gcd(std::gcd(model.heads, model.delta.key_heads), model.ssm.groups);
}

/// Degrees that divide the GPUs, too.
std::string nearest_tp(const PlanRequest& request, std::int64_t divided, int tp) {
  return nearest_divisors(std::gcd(divided, request.cluster.gpus()), tp);
}

/// Degrees that divide heads: of cp where an all-to-all divides what tp leaves of them, else of tp.
std::string nearest_split(const PlanRequest& request, const ParallelPlan& plan,
                          std::int64_t heads) {
  if (plan.cp == 1 || heads % plan.tp != 0) {
    return "--tp " + nearest_tp(request, heads, plan.tp);
  }
  return "--cp " + nearest_tp(request, heads / plan.tp, plan.cp);
}

/// Values of ep or etp around the plan's: those that divide what the axis splits (the experts, or
/// their width) and, times the other degree, the ranks of a stage, and that no other
/// rule about experts refuses. Where no value goes with the other degree, that is 1.
std::string nearest_of_experts(const PlanRequest& request, ParallelPlan plan, bool etp) {
  using enum RejectionReason;
  const MixtureOfExperts& moe = request.model.moe;
  int& wrong = etp ? plan.etp : plan.ep;
  int& other = etp ? plan.ep : plan.etp;
  const std::int64_t ranks = saturated_product({plan.tp, plan.cp, plan.dp});
  const bool kept = ranks % other == 0 && (etp ? moe.experts : moe.expert_ffn_hidden) % other == 0;
  if (!kept) other = 1;
  const int asked = wrong;
  std::vector<std::int64_t> valid;
  for (const std::int64_t d :
       divisors(std::gcd(etp ? moe.expert_ffn_hidden : moe.experts, ranks / other))) {
    wrong = static_cast<int>(d);
    const std::optional<Rejection> found =
        check_degrees(request.model, request.job, request.cluster, request.framework, plan);
    if (!found || found->reason == batch_not_divisible || found->reason == sequence_not_divisible) {
      valid.push_back(d);
    }
  }
  if (valid.empty()) return {};
  return fmt::format("--{} {}{}", etp ? "etp" : "ep", nearest_of(valid, asked),
                     kept ? "" : fmt::format(" with --{} 1", etp ? "ep" : "etp"));
}

std::string nearest_valid(const PlanRequest& request, const ParallelPlan& plan,
                          RejectionReason reason) {
  using enum RejectionReason;
  const auto degrees = [](std::string text) { return "nearest valid: " + std::move(text); };
  switch (reason) {
    case heads_not_divisible:
      return degrees(nearest_split(request, plan, shared_head_divisor(request.model)));
    case kv_heads_not_divisible:
      return degrees(nearest_split(request, plan, request.model.kv_heads));
    case ffn_not_divisible:
      return degrees("--tp " + nearest_tp(request, request.model.ffn_hidden, plan.tp));
    case sequence_not_divisible: {
      const int slices = plan.cp > 1 ? request.framework.slices_of(plan.cp_comm) : 1;
      const int unit = plan.cp * std::lcm(slices, plan.sequence_parallel ? plan.tp : 1);
      const int below = request.job.sequence / unit * unit;
      return degrees(below > 0 ? fmt::format("--seq {} or {}", below, below + unit)
                               : fmt::format("--seq {}", unit));
    }
    case RejectionReason::shard_group: return degrees(nearest_groups(plan));
    case experts_not_divisible: {
      const std::string nearest = nearest_of_experts(request, plan, etp_is_wrong(request, plan));
      return nearest.empty() ? nearest : degrees(nearest);
    }
    case batch_not_divisible: {
      const std::int64_t unit = std::int64_t{plan.dp} * plan.microbatch;
      const std::int64_t below = request.job.global_batch / unit * unit;
      return degrees(below > 0 ? fmt::format("--global-batch {} or {}", below, below + unit)
                               : fmt::format("--global-batch {}", unit));
    }
    case microbatches_not_divisible: return nearest_group(request, plan);
    case framework_lacks_feature: {
      const CpComm other = request.model.sparse()         ? CpComm::all_gather
                           : plan.cp_comm == CpComm::ring ? CpComm::all_to_all
                                                          : CpComm::ring;
      const bool taken = (plan.cp_comm == CpComm::all_gather) == request.model.sparse();
      const bool offered = taken && request.framework.offers_cp(plan.cp_comm);
      if (plan.cp == 1 || offered || !request.framework.offers_cp(other)) return {};
      return degrees(fmt::format("--cp-comm {}", name_of(other)));
    }
    case contradictory: {
      const std::optional<int> most = most_recomputed(plan);
      return most ? degrees(fmt::format("--recompute-layers {}", *most)) : std::string();
    }
    default: return {};
  }
}

/// dp from the GPUs when it is not given.
Result<int> data_parallel(const PlanRequest& request, int tp, int cp, int pp) {
  const PlanConstraints& pinned = request.constraints;
  if (pinned.has<&ParallelPlan::dp>()) return pinned.values().dp;
  const std::int64_t rest = saturated_product({tp, cp, pp});
  if (request.cluster.gpus() % rest != 0) {
    return input_error(
        "--gpus",
        fmt::format("{} GPUs for tp {} x cp {} x pp {}", request.cluster.gpus(), tp, cp, pp),
        "a multiple of tp x cp x pp",
        "nearest valid tp x cp x pp: " + nearest_divisors(request.cluster.gpus(), rest));
  }
  return static_cast<int>(request.cluster.gpus() / rest);
}

/// What the constraints pin, and the defaults of the rest.
Result<SearchPoint> pinned_point(const PlanRequest& request) {
  using P = ParallelPlan;
  const PlanConstraints& pinned = request.constraints;
  SearchPoint point = point_of(pinned.values());
  if (!pinned.has<&P::cp_comm>() && !request.framework.cp_ring && request.framework.cp_all_to_all) {
    point.sharding.cp_comm = CpComm::all_to_all;
  }
  if (!pinned.has<&P::cp_comm>() && point.sharding.cp > 1 && request.model.sparse()) {
    point.sharding.cp_comm = CpComm::all_gather;
  }
  const bool as_mlp = request.model.moe.experts > 0 && request.framework.splits_experts_as_mlp;
  point.sharding.etp = pinned.value_or<&P::etp>(as_mlp ? point.sharding.tp : 1);
  point.schedule = pinned.value_or<&P::schedule>(point.vpp > 1 ? ScheduleKind::interleaved
                                                               : ScheduleKind::one_f_one_b);
  const bool both_ways = runs_both_ways(point.schedule);
  if (both_ways && !pinned.has<&P::vpp>()) point.vpp = 2;
  const bool grouped = point.vpp > 1 && !both_ways;
  point.microbatch_group = pinned.value_or<&P::microbatch_group>(grouped ? point.pp : 1);
  Result<int> dp = data_parallel(request, point.sharding.tp, point.sharding.cp, point.pp);
  if (!dp) return dp.error();
  point.dp = *dp;
  const int data_ranks = static_cast<int>(std::min<std::int64_t>(
      std::numeric_limits<int>::max(), saturated_product({point.dp, point.sharding.cp})));
  // Default ZeRO stage: 1 where it means something, else the lowest the framework offers.
  if (!pinned.has<&P::zero>() && data_ranks > 1) {
    while (point.zero < 3 && (point.zero == 0 || !request.framework.zero_allowed[point.zero])) {
      ++point.zero;
    }
  }
  point.shard_group = pinned.value_or<&P::shard_group>(data_ranks);
  point.sharding.sequence_parallel = pinned.value_or<&P::sequence_parallel>(
      point.sharding.tp > 1 && request.framework.sequence_parallel);
  point.recompute = {
      pinned.value_or<&P::recompute>(pinned.has<&P::selective_layers>()    ? Recompute::mixed
                                     : pinned.has<&P::recompute_layers>()  ? Recompute::full
                                     : pinned.has<&P::recompute_modules>() ? Recompute::selective
                                                                           : Recompute::none),
      pinned.values().recompute_modules};
  point.recompute_layers = request.model.layers;  // capped at the stage's layers
  return point;
}

/// Lists must have one value for each stage, or, where that means something, one for all.
Status check_stage_lists(const PlanConstraints& pinned, int stages) {
  for (const PlanField& field : plan_fields()) {
    const auto* member = std::get_if<std::vector<int> ParallelPlan::*>(&field.member);
    if (member == nullptr || !pinned.has(field)) continue;
    const std::size_t entries = (pinned.values().**member).size();
    const bool one_is_enough = !field.is(&ParallelPlan::layers_per_stage);
    if (entries == static_cast<std::size_t>(stages) || (one_is_enough && entries == 1)) continue;
    return input_error("--" + std::string(field.flag), fmt::format("{} entries", entries),
                       fmt::format("{}, one per pipeline stage", stages));
  }
  return Done{};
}

}  // namespace

Result<ParallelPlan> plan_from_constraints(const PlanRequest& request,
                                           std::optional<RejectionReason>* broken) {
  const PlanConstraints& pinned = request.constraints;
  const Result<SearchPoint> filled = pinned_point(request);
  if (!filled) return filled.error();
  const SearchPoint& point = *filled;
  if (Status counts = check_recompute_counts(pinned); !counts) return counts.error();
  if (Status lists = check_stage_lists(pinned, point.pp); !lists) return lists.error();
  const int bare_ends = request.framework.any_layout && point.pp > 1 ? 2 : 0;
  if (degrees_of(request, point).model_stages() > request.model.layers + bare_ends) {
    return input_error(
        "--pp",
        fmt::format("{} layers for pp {} x vpp {} chunks", request.model.layers, point.pp,
                    point.vpp),
        "at least one layer per chunk",
        fmt::format("nearest valid: --pp {}", std::max(1, request.model.layers / point.vpp)));
  }
  const bool grouped = point.vpp > 1 && !runs_both_ways(point.schedule);
  if (grouped && point.microbatch_group < point.pp) {
    return input_error("--microbatch-group-size",
                       fmt::format("groups of {} microbatches", point.microbatch_group),
                       fmt::format("at least pp, {}", point.pp));
  }
  if (point.recompute.kind == Recompute::mixed && !pinned.has<&ParallelPlan::recompute_layers>() &&
      !pinned.has<&ParallelPlan::selective_layers>()) {
    return input_error("--recompute", "mixed without numbers of layers",
                       "--selective-layers or --recompute-layers",
                       "add --selective-layers N, or search for the numbers with plan search");
  }
  ParallelPlan plan;
  if (!fill_plan(request, point, plan)) {
    const bool chunks = point.vpp > 1;
    return input_error(
        chunks ? "--vpp" : "--pp",
        fmt::format("{} layers on pp {} x vpp {}", request.model.layers, point.pp, point.vpp),
        fmt::format("equal numbers of layers, all that {} has", request.framework.name),
        chunks ? "" : "nearest valid: --pp " + nearest_divisors(request.model.layers, point.pp));
  }
  if (pinned.has<&ParallelPlan::overlap_pp>())
    plan.overlap_pp = pinned.values().overlap_pp && plan.pp > 1;
  plan.bucket = pinned.values().bucket;
  if (const auto rejection =
          check_plan(request.model, request.job, request.cluster, request.framework, plan)) {
    if (broken != nullptr) *broken = rejection->reason;
    const std::string nearest = nearest_valid(request, plan, rejection->reason);
    return input_error(
        flag_of(request, plan, rejection->reason), rejection->detail, {},
        std::string(describe(rejection->reason)) + (nearest.empty() ? "" : "; " + nearest));
  }
  return plan;
}

}  // namespace echelon
