#include "planner/search/simulate_step.hpp"

#include <algorithm>
#include <utility>

#include "costmodel/schedule/lower_plan.hpp"
#include "costmodel/schedule/makespan_bound.hpp"
#include "planner/search/bounds.hpp"

namespace echelon {
namespace {

/// Of forwards and backwards; about 100 bytes each while they are simulated, ten times as many
/// while they are lowered (DualPipeV, DualPipe).
double most_passes(ScheduleKind schedule) { return runs_both_ways(schedule) ? 5e5 : 5e6; }

bool can_be_simulated(const CostModel& cost_model, const ParallelPlan& plan) {
  const auto microbatches =
      static_cast<double>(plan.microbatches_of_chunk(cost_model.job().global_batch));
  return plan.pp > 1 && cost_model.ablated() != AblatedFeature::no_bubble &&
         2.0 * plan.pp * plan.vpp * microbatches <= most_passes(plan.schedule);
}

/// Times of forwards, backwards and messages; a message that blocks lengthens the pass that sends
/// it.
ScheduleCosts simulated_costs(const CostModel& cost_model, const StageModel& model,
                              const ParallelPlan& plan, const PipelineShape& shape,
                              Seconds slowest) {
  ScheduleCosts costs = pipeline_costs(cost_model, model, plan, shape);
  const Seconds blocking = model.blocking_hop(slowest);
  if (blocking <= Seconds{}) return costs;
  for (int stage = 0; stage + 1 < shape.stages(); ++stage) {
    if (!shape.placement().sends(stage)) continue;
    costs.stages[static_cast<std::size_t>(stage)].forward += blocking;
    costs.stages[static_cast<std::size_t>(stage) + 1].backward_input += blocking;
  }
  for (Seconds& hop : costs.hops) hop = hop - blocking;
  return on_exact_grid(std::move(costs), shape.chunks, shape.microbatches);
}

/// The step with a shorter pipeline.
Seconds step_with(const TimePrediction& time, Seconds pipeline) {
  const Seconds own = time.step - time.turns;
  const Seconds shorter = own - (time.pipeline.taken - pipeline) * time.pipeline.stretch;
  return std::max({time.shared, time.data_load, shorter});
}

}  // namespace

bool price_simulated(const CostModel& cost_model, const ParallelPlan& plan,
                     const ShardingCosts& costs, std::span<const Stage> stages,
                     MakespanSimulator& simulator, TimePrediction& out) {
  cost_model.price_time(plan, costs, stages, out);
  if (!can_be_simulated(cost_model, plan)) return plan.pp == 1;
  const StageModel model(cost_model, plan, costs);
  const PipelineShape shape = shape_of(plan, cost_model.job().global_batch);
  const Seconds pipeline =
      simulator.run(shape, simulated_costs(cost_model, model, plan, shape, out.pipeline.slowest));
  cost_model.price_time(plan, costs, stages, out, pipeline);
  return true;
}

Seconds least_step(const StageModel& model, const TimePrediction& time) {
  const Seconds least =
      least_of(model.least_pipeline(time.pipeline.sum, time.pipeline.slowest), time.pipeline.taken);
  return step_with(time, std::min(least, time.pipeline.taken));
}

Seconds least_step_of_chains(const CostModel& cost_model, const ParallelPlan& plan,
                             const ShardingCosts& costs, const TimePrediction& time) {
  if (!can_be_simulated(cost_model, plan)) return time.closed_form;
  const StageModel model(cost_model, plan, costs);
  const PipelineShape shape = shape_of(plan, cost_model.job().global_batch);
  // The chains are those of whole groups of microbatches.
  if (shape.kind == ScheduleKind::interleaved && shape.microbatches % shape.in_turn() != 0) {
    return least_step(model, time);
  }
  return step_with(time, least_makespan(shape, simulated_costs(cost_model, model, plan, shape,
                                                               time.pipeline.slowest)));
}

Seconds least_step_of_passing(const CostModel& cost_model, const ParallelPlan& plan,
                              const ShardingCosts& costs, const TimePrediction& time,
                              MakespanSimulator& simulator) {
  if (!can_be_simulated(cost_model, plan)) return time.closed_form;
  const StageModel model(cost_model, plan, costs);
  const PipelineShape shape = shape_of(plan, cost_model.job().global_batch);
  return step_with(
      time,
      simulator.run(shape, simulated_costs(cost_model, model, plan, shape, time.pipeline.slowest),
                    Messages::passing));
}

}  // namespace echelon
