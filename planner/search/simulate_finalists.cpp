#include "planner/search/simulate_finalists.hpp"

#include <algorithm>

#include "costmodel/schedule/lower_plan.hpp"
#include "costmodel/schedule/makespan.hpp"

namespace echelon {

std::optional<Seconds> simulated_step(const CostModel& cost_model, const ParallelPlan& plan,
                                      const PlanCosts& prediction) {
  if (plan.pp == 1) return prediction.time.step;
  // About 100 bytes each while they are simulated.
  constexpr double kMostPasses = 5e6;
  const auto microbatches =
      static_cast<double>(plan.microbatches_rounded_up(cost_model.job().global_batch));
  if (2.0 * plan.pp * plan.vpp * microbatches > kMostPasses) return std::nullopt;
  const ShardingCosts costs = cost_model.sharding_costs(plan);
  const StageModel model(cost_model, plan, costs);
  const PipelineShape shape = shape_of(plan, cost_model.job().global_batch);
  Seconds sum;
  Seconds slowest;
  for (const Stage& stage : prediction.memory.contents) {
    const Seconds all = model.times(stage).total();
    sum += all;
    slowest = std::max(slowest, all);
  }
  const Seconds closed = model.pipeline(sum, slowest);
  const Seconds simulated =
      simulate_makespan(shape, pipeline_costs(cost_model, model, plan, shape));
  const TimePrediction& time = prediction.time;
  return std::max(time.shared,
                  time.step - time.turns + (simulated - closed) * (1 + model.straggler_share()));
}

void simulate_step(const PlanRequest& request, Candidate& candidate) {
  constexpr double kMostPasses = 4e6;
  const PipelineShape shape = shape_of(candidate.plan, request.job.global_batch);
  if (2.0 * shape.stages() * shape.microbatches > kMostPasses) return;
  const CostModel cost_model(request.model, request.job, request.cluster, request.framework,
                             request.calibration);
  candidate.simulated_step = simulated_step(cost_model, candidate.plan, candidate.prediction);
}

}  // namespace echelon
