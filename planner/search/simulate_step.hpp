// The step of a priced plan with its pipeline simulated instead of taken from the closed form.
#pragma once

#include <span>

#include "costmodel/cost_model.hpp"

namespace echelon {

/// Prices the time of a plan whose pipeline is simulated event by event: forwards, backwards and
/// messages of every microbatch in the order of the schedule, sends and receives meeting
/// (costmodel/schedule/makespan.hpp). The other parts of the step are those of the closed form.
/// Returns false where the pipeline has too many forwards and backwards to be simulated: then the
/// closed form is taken. `costs` belong to the plan's sharding, `stages` are those that
/// price_memory has found.
bool price_simulated(const CostModel& cost_model, const ParallelPlan& plan,
                     const ShardingCosts& costs, std::span<const Stage> stages,
                     TimePrediction& out);

/// A time that the simulated step of the plan is not below, from the times of its stages.
[[nodiscard]] Seconds least_simulated_step(const CostModel& cost_model, const ParallelPlan& plan,
                                           const ShardingCosts& costs,
                                           std::span<const Stage> stages,
                                           const TimePrediction& closed);

}  // namespace echelon
