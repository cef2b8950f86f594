#include "planner/explain/one_change.hpp"

#include <algorithm>

#include "planner/space/constraints_of_plan.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

struct Respect {
  std::string_view what;
  void (*release)(PlanConstraints&);
};

constexpr Respect kRespects[] = {
    {"the microbatch",
     [](PlanConstraints& c) { c.release<&P::microbatch, &P::microbatch_group>(); }},
    {"ZeRO", [](PlanConstraints& c) { c.release<&P::zero, &P::shard_group, &P::bucket>(); }},
    {"recomputation",
     [](PlanConstraints& c) {
       c.release<&P::recompute, &P::recompute_layers, &P::selective_layers>();
     }},
    {"the pipeline's schedule and chunks",
     [](PlanConstraints& c) {
       c.release<&P::schedule, &P::vpp, &P::microbatch_group, &P::layers_per_stage, &P::overlap_pp,
                 &P::recompute_layers, &P::selective_layers>();
     }},
    {"sequence parallelism", [](PlanConstraints& c) { c.release<&P::sequence_parallel>(); }},
    {"overlap",
     [](PlanConstraints& c) {
       c.release<&P::overlap_dp, &P::overlap_tp, &P::overlap_pp, &P::overlap_ep>();
       c.release<&P::overlap_shared, &P::dispatcher>();
     }},
    {"CUDA graphs", [](PlanConstraints& c) { c.release<&P::cuda_graphs>(); }},
    {"tp, cp, pp and dp",
     [](PlanConstraints& c) {
       c.release<&P::tp, &P::cp, &P::pp, &P::dp, &P::shard_group, &P::layers_per_stage, &P::vpp,
                 &P::schedule, &P::microbatch_group, &P::recompute_layers, &P::selective_layers,
                 &P::sequence_parallel, &P::overlap_pp, &P::bucket>();
     }},
};

}  // namespace

std::vector<OneChange> one_change_plans(const PlanRequest& request, const Candidate& plan,
                                        const Progress& progress) {
  std::vector<OneChange> out;
  for (const Respect& respect : kRespects) {
    if (progress && !progress(0)) break;
    PlanRequest changed = request;
    changed.constraints = pinned_to(plan.plan);
    changed.top = 1;
    respect.release(changed.constraints);
    const Result<SearchResult> found = optimize(changed, progress);
    const Candidate* best = found ? found->report.fitting_winner() : nullptr;
    if (best == nullptr) continue;
    const bool faster = best->prediction.time.step < plan.prediction.time.step;
    if (faster || !plan.fits) out.push_back({respect.what, *best});
  }
  std::ranges::stable_sort(
      out, {}, [](const OneChange& each) { return each.plan.prediction.time.step.in(Seconds{1}); });
  return out;
}

}  // namespace echelon
