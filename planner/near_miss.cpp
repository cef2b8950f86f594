#include "planner/near_miss.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/base/expects.hpp"
#include "planner/legality.hpp"

namespace echelon {
namespace {

/// The request with everything of `tuple` pinned, so that predict() prices exactly it.
PlanRequest pinned_to(const PlanRequest& request, const Tuple& t) {
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
  ParallelPlan plan;
  fill_degrees(out, t, plan);
  c.bucket = plan.bucket;  // where there are none, none is asked for
  return out;
}

bool fits(const PlanRequest& request) {
  const Result<Candidate> candidate = predict(request);
  return candidate.ok() && candidate->fits;
}

/// A choice the user pinned, and the value that saves most memory in its place.
std::string lifted_constraint(const PlanRequest& request, const Tuple& t) {
  const PlanConstraints& user = request.constraints;
  const auto helps = [&](const char* flag, std::string other, auto change) -> std::string {
    PlanRequest changed = pinned_to(request, t);
    change(changed.constraints);
    return fits(changed) ? fmt::format("{} instead of {}", other, flag) : std::string{};
  };
  std::string fix;
  if ((user.recompute || user.recompute_layers || user.selective_layers) &&
      t.recompute != Recompute::full) {
    fix = helps("the pinned recomputation", "--recompute full", [&](PlanConstraints& c) {
      c.recompute = Recompute::full;
      c.recompute_layers.reset();
      c.selective_layers.reset();
    });
  }
  for (int zero = 3; fix.empty() && user.zero && zero > t.zero; --zero) {
    fix = helps("the pinned ZeRO stage", fmt::format("--zero {}", zero),
                [&](PlanConstraints& c) { c.zero = zero; });
  }
  if (fix.empty() && user.microbatch && t.sharding.microbatch > 1) {
    fix = helps("the pinned microbatch", "--microbatch 1",
                [&](PlanConstraints& c) { c.microbatch = 1; });
  }
  if (fix.empty() && user.sequence_parallel && !t.sharding.sequence_parallel && t.sharding.tp > 1) {
    fix = helps("--no-sequence-parallel", "--sequence-parallel",
                [&](PlanConstraints& c) { c.sequence_parallel = true; });
  }
  return fix;
}

/// More GPUs of the same kind: more data parallelism (its ZeRO shards shrink) or more stages.
std::string more_gpus(const PlanRequest& request, const Tuple& t) {
  const int now = request.cluster.gpus();
  for (int factor = 2; factor <= 4096; factor *= 2) {
    const Result<ClusterTopology> larger = request.cluster.resized(std::int64_t{now} * factor);
    if (!larger) break;
    for (const bool stages : {false, true}) {
      Tuple grown = t;
      (stages ? grown.pp : grown.dp) *= factor;
      if (!stages && t.shard_group == t.dp * t.sharding.cp)
        grown.shard_group = grown.dp * t.sharding.cp;
      if (!stages && t.zero == 0 && request.stack.zero_allowed[1]) grown.zero = 1;
      PlanRequest changed = pinned_to(request, grown);
      changed.cluster = *larger;
      if (fits(changed)) {
        return fmt::format("{} GPUs instead of {} ({} {})", larger->gpus(), now,
                           stages ? "pp" : "dp", stages ? grown.pp : grown.dp);
      }
    }
  }
  return {};
}

}  // namespace

NearestInfeasible nearest_infeasible(const PlanRequest& request, const Tuple& tuple) {
  const Result<Candidate> candidate = predict(pinned_to(request, tuple));
  EXPECTS(candidate.ok(), candidate.ok() ? "" : candidate.error().message());
  NearestInfeasible miss;
  miss.candidate = *candidate;
  const MemoryPrediction& memory = candidate->prediction.memory;
  miss.stage = memory.tightest_stage;
  miss.missing = memory.peak_reserved - request.usable_memory();
  miss.fix = lifted_constraint(request, tuple);
  if (miss.fix.empty()) miss.fix = more_gpus(request, tuple);
  if (miss.fix.empty()) {
    const Bytes needed = memory.peak_reserved + request.kept_free();
    miss.fix = fmt::format("GPUs with {:.0f} GiB instead of {:.0f} GiB",
                           std::ceil(needed.in(1_GiB)), memory.capacity.in(1_GiB));
  }
  return miss;
}

}  // namespace echelon
