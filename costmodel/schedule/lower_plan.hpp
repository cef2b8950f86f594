// From a priced plan to its schedule: the costs the search simulates, and the program to execute.
#pragma once

#include <span>

#include "costmodel/cost_model.hpp"
#include "costmodel/schedule/compute_order.hpp"
#include "costmodel/schedule/costs.hpp"
#include "costmodel/schedule/timeline.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {

[[nodiscard]] PipelineShape shape_of(const ParallelPlan& plan, std::int64_t global_batch);

/// Forwards, backwards and messages of every chunk with the layers it holds. What else ranks do
/// takes no time. On the exact grid (costs.hpp), so that the order of messages does not depend on
/// rounding.
[[nodiscard]] ScheduleCosts pipeline_costs(const CostModel& cost_model, const StageModel& model,
                                           const ParallelPlan& plan, const PipelineShape& shape);

/// About how many instructions the lowered schedule of a plan has: enough to refuse one that is
/// too long before it is built.
[[nodiscard]] double instructions_of(const CostModel& cost_model, const ParallelPlan& plan);

/// A lowered schedule, and the times it was lowered with.
struct TimedSchedule {
  Schedule schedule;
  ScheduleCosts costs;
};

/// The lowered schedule of a legal plan: messages, ZeRO's gathers and reductions, the end of the
/// step, with sizes in bytes, ordered by the times above and by those of the collectives alone on
/// the network. `stages` as the prediction has them.
///
///   ZeRO-3        a unit is a layer; gathered before its forward and again before its backward
///   ZeRO-2, 3     each unit's gradients are reduce-scattered in every backward
///   ZeRO-0, 1     a unit is a gradient bucket of the framework, reduced in the last backward
///   ZeRO-1, 2     updated parameters are gathered after the step
///
/// All chunks have the same number of units, that of the chunk with the fewest layers at most.
/// Source: the habits StageModel prices. Checked by: tests/costmodel/schedule/lower_plan_test.cpp.
[[nodiscard]] TimedSchedule timed_schedule_of(const CostModel& cost_model, const ParallelPlan& plan,
                                              std::span<const Stage> stages);
[[nodiscard]] Schedule schedule_of(const CostModel& cost_model, const ParallelPlan& plan,
                                   std::span<const Stage> stages);

/// A step as it was simulated: the program of every pipeline rank, and when it runs.
struct SimulatedStep {
  Schedule schedule;
  ScheduleCosts costs;
  Timeline timeline;
};
[[nodiscard]] SimulatedStep simulate_plan(const CostModel& cost_model, const ParallelPlan& plan,
                                          std::span<const Stage> stages);

}  // namespace echelon
