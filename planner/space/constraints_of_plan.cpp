#include "planner/space/constraints_of_plan.hpp"

namespace echelon {

PlanConstraints pinned_to(const ParallelPlan& plan) {
  PlanConstraints pinned;
  pinned.tp = plan.tp;
  pinned.cp = plan.cp;
  pinned.cp_comm = plan.cp_comm;
  pinned.ep = plan.ep;
  pinned.etp = plan.etp;
  pinned.rank_order = plan.rank_order;
  pinned.offload_optimizer = plan.offload_optimizer;
  pinned.dp = plan.dp;
  pinned.pp = plan.pp;
  pinned.vpp = plan.vpp;
  pinned.microbatch = plan.microbatch;
  pinned.zero = plan.zero;
  pinned.shard_group = plan.shard_group;
  pinned.sequence_parallel = plan.sequence_parallel;
  pinned.recompute = plan.recompute;
  const bool mixed = plan.recompute == Recompute::mixed;
  if (mixed || plan.recompute == Recompute::full) pinned.recompute_layers = plan.recompute_layers;
  if (mixed) pinned.selective_layers = plan.selective_layers;
  pinned.layers_per_stage = plan.layers_per_stage;
  pinned.schedule = plan.schedule;
  pinned.overlap_dp = plan.overlap_dp;
  pinned.overlap_tp = plan.overlap_tp;
  pinned.overlap_pp = plan.overlap_pp;
  pinned.bucket = plan.bucket;
  return pinned;
}

PlanConstraints overlaid(PlanConstraints base, const PlanConstraints& pinned) {
  const auto take = [](auto& mine, const auto& other) {
    if (other) mine = other;
  };
  take(base.tp, pinned.tp);
  take(base.cp, pinned.cp);
  take(base.cp_comm, pinned.cp_comm);
  take(base.rank_order, pinned.rank_order);
  take(base.offload_optimizer, pinned.offload_optimizer);
  take(base.ep, pinned.ep);
  take(base.etp, pinned.etp);
  take(base.dp, pinned.dp);
  take(base.pp, pinned.pp);
  take(base.vpp, pinned.vpp);
  take(base.microbatch, pinned.microbatch);
  take(base.zero, pinned.zero);
  take(base.shard_group, pinned.shard_group);
  take(base.sequence_parallel, pinned.sequence_parallel);
  take(base.recompute, pinned.recompute);
  take(base.recompute_layers, pinned.recompute_layers);
  take(base.selective_layers, pinned.selective_layers);
  take(base.layers_per_stage, pinned.layers_per_stage);
  take(base.schedule, pinned.schedule);
  take(base.overlap_dp, pinned.overlap_dp);
  take(base.overlap_tp, pinned.overlap_tp);
  take(base.overlap_pp, pinned.overlap_pp);
  take(base.bucket, pinned.bucket);
  return base;
}

}  // namespace echelon
