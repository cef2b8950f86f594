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
  std::vector<Stage> chunks;
  chunks_of(pricer, plan, chunks);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    Stage& chunk = chunks[i];
    // Embedding and head belong to the very first and the very last chunk alone.
    const bool first = i == 0;
    const bool last = i + 1 == chunks.size();
    const int rank = chunk.index;
    if (!first && !last) chunk.index = plan.pp;
    const StageTimes each = model.times(chunk);
    times.stages[static_cast<std::size_t>(shape.stage(rank, static_cast<int>(i) / plan.pp))] = {
        .forward = each.forward,
        .backward_input = 0.5 * each.backward,
        .backward_weight = 0.5 * each.backward};
  }
  Seconds sum;
  Seconds slowest;
  for (const Stage& stage : prediction.memory.contents) {
    const Seconds all = model.times(stage).total();
    sum += all;
    slowest = std::max(slowest, all);
  }
  const Seconds closed = model.pipeline(sum, slowest);
  const Seconds simulated = simulate_makespan(shape, times);
  return prediction.time.step + (simulated - closed) * (1 + model.straggler_share());
}

}  // namespace echelon
