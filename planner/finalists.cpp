#include "planner/finalists.hpp"

#include "costmodel/schedule/makespan.hpp"
#include "costmodel/stage_model.hpp"

namespace echelon {

Seconds simulated_step(const Pricer& pricer, const ParallelPlan& plan,
                       const Prediction& prediction) {
  if (plan.pp == 1) return prediction.time.step;
  const CutCosts costs = pricer.cut_costs(cut_of(plan));
  const StageModel model(pricer, plan, costs);
  const PipelineShape shape{.kind = plan.schedule,
                            .ranks = plan.pp,
                            .chunks = plan.vpp,
                            .microbatches = static_cast<int>(model.microbatches())};
  ScheduleCosts times;
  times.stages.resize(static_cast<std::size_t>(shape.stages()));
  times.hops.assign(static_cast<std::size_t>(plan.pp), model.hop());
  Seconds sum;
  Seconds slowest;
  for (const Stage& stage : prediction.memory.contents) {
    const StageTimes all = model.times(stage);
    sum += all.total();
    slowest = std::max(slowest, all.total());
    // A rank's chunks hold equal shares of its layers.
    const double share = 1.0 / plan.vpp;
    for (int chunk = 0; chunk < plan.vpp; ++chunk) {
      times.stages[static_cast<std::size_t>(shape.stage(stage.index, chunk))] = {
          .forward = share * all.forward,
          .backward_input = 0.5 * share * all.backward,
          .backward_weight = 0.5 * share * all.backward};
    }
  }
  const Seconds closed = model.pipeline(sum, slowest);
  const Seconds simulated = simulate_makespan(shape, times);
  return prediction.time.step + (simulated - closed) * (1 + model.straggler_share());
}

}  // namespace echelon
