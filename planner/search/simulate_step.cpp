#include "planner/search/simulate_step.hpp"

#include <algorithm>

#include "costmodel/schedule/lower_plan.hpp"
#include "costmodel/schedule/makespan.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

/// About 100 bytes each while they are simulated.
constexpr double kMostPasses = 5e6;

}  // namespace

bool price_simulated(const CostModel& cost_model, const ParallelPlan& plan,
                     const ShardingCosts& costs, std::span<const Stage> stages,
                     TimePrediction& out) {
  const std::int64_t global_batch = cost_model.job().global_batch;
  const auto microbatches = static_cast<double>(plan.microbatches_rounded_up(global_batch));
  const bool simulated = 2.0 * plan.pp * plan.vpp * microbatches <= kMostPasses;
  if (plan.pp == 1 || !simulated || cost_model.ablated() == AblatedFeature::no_bubble) {
    cost_model.price_time(plan, costs, stages, out);
    return plan.pp == 1;
  }
  const StageModel model(cost_model, plan, costs);
  const PipelineShape shape = shape_of(plan, global_batch);
  const Seconds pipeline =
      simulate_makespan(shape, pipeline_costs(cost_model, model, plan, shape));
  cost_model.price_time(plan, costs, stages, out, pipeline);
  return true;
}

Seconds least_simulated_step(const CostModel& cost_model, const ParallelPlan& plan,
                             const ShardingCosts& costs, std::span<const Stage> stages,
                             const TimePrediction& closed) {
  (void)cost_model;
  (void)costs;
  (void)stages;
  return plan.pp == 1 ? closed.closed_form : 0.96 * closed.closed_form;
}

}  // namespace echelon
