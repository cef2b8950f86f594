// The step of a priced plan with its pipeline simulated instead of taken from the closed form.
#pragma once

#include <span>

#include "costmodel/cost_model.hpp"
#include "costmodel/schedule/makespan.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {

/// Prices the time of a plan whose pipeline is simulated event by event: forwards, backwards and
/// messages of every microbatch in the order of the schedule, sends and receives meeting
/// (costmodel/schedule/makespan.hpp), blocking ones holding up their senders. The other parts of
/// the step are those of the closed form. Returns false where the pipeline has too many forwards
/// and backwards to be simulated: then the closed form is taken. `costs` belong to the plan's
/// sharding, `stages` are those that price_memory has found; `simulator` keeps its arrays between
/// calls.
bool price_simulated(const CostModel& cost_model, const ParallelPlan& plan,
                     const ShardingCosts& costs, std::span<const Stage> stages,
                     MakespanSimulator& simulator, TimePrediction& out);

/// A step that the simulated one of a plan is not below, from the sum and the largest of its
/// stages' times: StageModel::least_pipeline. `time`: its price.
[[nodiscard]] Seconds least_step(const StageModel& model, const TimePrediction& time);

/// The same from the longest chains of forwards, backwards and messages: tighter, and about as
/// expensive as a price. costmodel/schedule/makespan_bound.hpp.
[[nodiscard]] Seconds least_step_of_chains(const CostModel& cost_model, const ParallelPlan& plan,
                                           const ShardingCosts& costs, const TimePrediction& time);

/// The same from a simulation in which messages pass one another: tighter again, and a few times
/// cheaper than price_simulated().
[[nodiscard]] Seconds least_step_of_passing(const CostModel& cost_model, const ParallelPlan& plan,
                                            const ShardingCosts& costs, const TimePrediction& time,
                                            MakespanSimulator& simulator);

}  // namespace echelon
