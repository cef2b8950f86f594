#include "planner/search/nearest_infeasible.hpp"

#include <optional>

#include "core/base/expects.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

/// The request with everything of the point pinned, so that predict() prices exactly it.
PlanRequest pinned_to(const PlanRequest& request, const SearchPoint& t) {
  PlanRequest out = request;
  PlanConstraints& c = out.constraints;
  c.tp = t.sharding.tp;
  c.cp = t.sharding.cp;
  c.cp_comm = t.sharding.cp_comm;
  c.ep = t.sharding.ep;
  c.etp = t.sharding.etp;
  c.pp = t.pp;
  c.dp = t.dp;
  c.vpp = t.vpp;
  c.schedule = t.schedule;
  c.microbatch = t.sharding.microbatch;
  c.zero = t.zero;
  c.shard_group = t.shard_group;
  c.sequence_parallel = t.sharding.sequence_parallel;
  c.rank_order = t.rank_order;
  c.offload_optimizer = t.offload_optimizer;
  if (!overlaps_messages(request.stack, t.schedule)) c.overlap_pp.reset();
  c.recompute = t.recompute == Recompute::mixed ? Recompute::full : t.recompute;
  c.bucket = degrees_of(out, t).bucket;  // where there are none, none is asked for
  return out;
}

bool fits(const PlanRequest& request) {
  const Result<Candidate> candidate = predict(request);
  return candidate.ok() && candidate->fits;
}

/// A choice the user pinned, and the value that saves most memory in its place.
std::optional<Fix> lifted_constraint(const PlanRequest& request, const SearchPoint& t) {
  const PlanConstraints& user = request.constraints;
  const auto helps = [&](auto change) {
    PlanRequest changed = pinned_to(request, t);
    change(changed.constraints);
    return fits(changed);
  };
  const bool counts = user.recompute || user.recompute_layers || user.selective_layers;
  if (counts && t.recompute != Recompute::full && helps([](PlanConstraints& c) {
        c.recompute = Recompute::full;
        c.recompute_layers.reset();
        c.selective_layers.reset();
      })) {
    return RecomputeEveryLayer{};
  }
  for (int zero = 3; user.zero && zero > t.zero; --zero) {
    if (helps([&](PlanConstraints& c) { c.zero = zero; })) return HigherZero{zero};
  }
  if (user.microbatch && t.sharding.microbatch > 1 &&
      helps([](PlanConstraints& c) { c.microbatch = 1; })) {
    return SmallestMicrobatch{};
  }
  if (user.sequence_parallel && !t.sharding.sequence_parallel && t.sharding.tp > 1 &&
      helps([](PlanConstraints& c) { c.sequence_parallel = true; })) {
    return SequenceParallelOn{};
  }
  return std::nullopt;
}

/// More GPUs of the same kind: more data parallelism (its ZeRO shards shrink) or more stages.
std::optional<Fix> more_gpus(const PlanRequest& request, const SearchPoint& t) {
  const int now = request.cluster.gpus();
  for (int factor = 2; factor <= 4096; factor *= 2) {
    const Result<ClusterTopology> larger = request.cluster.resized(std::int64_t{now} * factor);
    if (!larger) break;
    for (const Axis axis : {Axis::dp, Axis::pp}) {
      SearchPoint grown = t;
      int& degree = axis == Axis::pp ? grown.pp : grown.dp;
      degree *= factor;
      if (axis == Axis::dp) {
        if (t.shard_group == t.dp * t.sharding.cp) grown.shard_group = grown.dp * t.sharding.cp;
        if (t.zero == 0 && request.stack.zero_allowed[1]) grown.zero = 1;
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
  if (const auto lifted = lifted_constraint(request, point)) {
    miss.fix = *lifted;
  } else if (const auto more = more_gpus(request, point)) {
    miss.fix = *more;
  } else {
    miss.fix = LargerGpus{memory.peak_reserved + request.kept_free(), memory.capacity};
  }
  return miss;
}

}  // namespace echelon
