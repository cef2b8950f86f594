#include "planner/search/nearest_infeasible.hpp"

#include <optional>
#include <string>
#include <string_view>

#include "core/base/expects.hpp"
#include "planner/space/legality.hpp"
#include "planner/space/plan_from_constraints.hpp"

namespace echelon {
namespace {

/// The request with everything of the point pinned, so that predict() prices exactly it.
PlanRequest pinned_to(const PlanRequest& request, const SearchPoint& t) {
  PlanRequest out = request;
  PlanConstraints& c = out.constraints;
  ParallelPlan plan = degrees_of(request, t);
  // Layers that the request counts stay as they are; else every layer is recomputed fully.
  const bool counted =
      request.constraints.has<&ParallelPlan::recompute_layers, &ParallelPlan::selective_layers>();
  if (t.recompute.kind == Recompute::mixed && !counted) plan.recompute = Recompute::full;
  for (const PlanField& field : plan_fields()) {
    // Layers follow from the point, overlap but for that of experts from the request.
    const bool follows =
        field.kind == PlanFieldKind::per_stage || field.kind == PlanFieldKind::listed;
    if (!follows || field.is(&ParallelPlan::overlap_ep)) c.pin(field, plan);
  }
  if (!overlaps_messages(request.framework, t.schedule)) c.release<&ParallelPlan::overlap_pp>();
  return out;
}

bool fits(const PlanRequest& request) {
  const Result<ParallelPlan> plan = plan_from_constraints(request);
  if (!plan) return false;
  const CostModel cost_model(request.model, request.job, request.cluster, request.framework,
                             request.calibration);
  MemoryPrediction memory;
  cost_model.price_memory(*plan, cost_model.sharding_costs(*plan), memory);
  return memory.peak_reserved <= request.usable_memory();
}

/// A choice the user pinned, and the value that saves most memory in its place.
std::optional<Fix> lifted_constraint(const PlanRequest& request, const SearchPoint& t) {
  using P = ParallelPlan;
  const PlanConstraints& user = request.constraints;
  const auto helps = [&](auto change) {
    PlanRequest changed = pinned_to(request, t);
    change(changed.constraints);
    return fits(changed);
  };
  const bool counts = user.has<&P::recompute, &P::recompute_layers, &P::selective_layers>();
  if (counts && t.recompute.kind != Recompute::full && helps([](PlanConstraints& c) {
        c.pin<&P::recompute>(Recompute::full);
        c.release<&P::recompute_layers, &P::selective_layers>();
      })) {
    return RecomputeEveryLayer{};
  }
  for (int zero = 3; user.has<&P::zero>() && zero > t.zero; --zero) {
    if (helps([&](PlanConstraints& c) { c.pin<&P::zero>(zero); })) return HigherZero{zero};
  }
  if (user.has<&P::microbatch>() && t.sharding.microbatch > 1 &&
      helps([](PlanConstraints& c) { c.pin<&P::microbatch>(1); })) {
    return SmallestMicrobatch{};
  }
  if (user.has<&P::sequence_parallel>() && !t.sharding.sequence_parallel && t.sharding.tp > 1 &&
      helps([](PlanConstraints& c) { c.pin<&P::sequence_parallel>(true); })) {
    return SequenceParallelOn{};
  }
  return std::nullopt;
}

std::optional<std::string> narrower_states(const PlanRequest& request, const SearchPoint& t) {
  const auto format_of = [](std::string_view recipe) { return recipe.substr(0, recipe.find(':')); };
  for (const std::string_view name : request.framework.state_recipes) {
    if (format_of(name) != format_of(request.job.precision.name)) continue;
    PlanRequest changed = pinned_to(request, t);
    changed.job.precision = find_precision(name).value();
    if (changed.job.precision.runs_on(request.cluster.gpu().compute_capability) && fits(changed)) {
      return std::string(name);
    }
  }
  return std::nullopt;
}

/// The request with ZeRO-3 over all GPUs and every layer recomputed, where the user has not pinned
/// something else: what weights in 4 bits need least memory with.
PlanRequest sharded(const PlanRequest& request) {
  using P = ParallelPlan;
  PlanRequest out = request;
  PlanConstraints& c = out.constraints;
  if (!c.has<&P::tp>()) c.pin<&P::tp>(1);
  if (!c.has<&P::pp>()) c.pin<&P::pp>(1);
  if (!c.has<&P::microbatch>()) c.pin<&P::microbatch>(1);
  if (!c.has<&P::zero>() && request.cluster.gpus() > 1) c.pin<&P::zero>(3);
  if (!c.has<&P::recompute>()) c.pin<&P::recompute>(Recompute::full);
  return out;
}

/// Names adapters of the usual rank, unless the job trains some already, with which the point fits;
/// else with weights in 4 bits, with which some plan does.
void add_adapters(const PlanRequest& request, const SearchPoint& t, NearestInfeasible& miss) {
  constexpr int kUsualRank = 16;  // of Megatron-Bridge's, PEFT's and torchtune's recipes 8 to 64
  TrainingJob job = request.job;
  if (!job.adapters) {
    job.adapters = Adapters{kUsualRank, usual_targets(request.model)};
    if (check_adapters(request.model, *job.adapters, request.framework)) return;
    PlanRequest adapted = pinned_to(request, t);
    adapted.job = job;
    if (fits(adapted)) {
      miss.adapters = job.adapters;
      return;
    }
  }
  if (job.quantized_weights) return;
  job.quantized_weights = QuantizedWeights{.double_quant = true};
  if (check_quantized_weights(request.model, job, request.framework)) return;
  PlanRequest packed = sharded(request);
  packed.job = job;
  if (!fits(packed)) return;
  if (!request.job.adapters) miss.adapters = job.adapters;
  miss.quantized_weights = job.quantized_weights;
}

/// More GPUs of the same kind: more data parallelism (its ZeRO shards shrink) or more stages.
std::optional<Fix> more_gpus(const PlanRequest& request, const SearchPoint& t) {
  const int now = request.cluster.gpus();
  for (int factor = 2; factor <= 4096; factor *= 2) {
    const Result<ClusterTopology> larger = request.cluster.resized(std::int64_t{now} * factor);
    if (!larger) break;
    for (const Axis axis : {Axis::dp, Axis::pp}) {
      const bool not_offered = t.pp == 1 && request.framework.pipeline_needs_own_model;
      if (axis == Axis::pp && not_offered) continue;
      SearchPoint grown = t;
      int& degree = axis == Axis::pp ? grown.pp : grown.dp;
      degree *= factor;
      if (axis == Axis::dp) {
        if (t.shard_group == t.dp * t.sharding.cp) grown.shard_group = grown.dp * t.sharding.cp;
        if (t.zero == 0 && request.framework.zero_allowed[1]) grown.zero = 1;
      }
      PlanRequest changed = pinned_to(request, grown);
      changed.cluster = *larger;
      if (fits(changed)) return MoreGpus{larger->gpus(), now, axis, degree};
    }
  }
  return std::nullopt;
}

}  // namespace

NearestInfeasible nearest_infeasible(const PlanRequest& request, const SearchPoint& point) {
  const Result<Candidate> candidate = predict(pinned_to(request, point));
  EXPECTS(candidate.ok(), candidate.ok() ? "" : candidate.error().message());
  NearestInfeasible miss;
  miss.candidate = *candidate;
  const MemoryPrediction& memory = candidate->prediction.memory;
  miss.stage = memory.tightest_stage;
  miss.missing = memory.peak_reserved - request.usable_memory();
  miss.narrower_states = narrower_states(request, point);
  add_adapters(request, point, miss);
  if (const auto lifted = lifted_constraint(request, point)) {
    miss.fix = *lifted;
  } else if (const auto more = more_gpus(request, point)) {
    miss.fix = *more;
  } else {
    // Without a limit of the user's: a GPU of whose memory the plan takes as much as may be used.
    const double share = request.max_memory ? 1 : request.usable_memory() / memory.capacity;
    miss.fix = LargerGpus{memory.peak_reserved / share, memory.capacity};
  }
  return miss;
}

}  // namespace echelon
