// Finalists of a search, run through the schedule simulator.
#pragma once

#include "planner/search/predict.hpp"

namespace echelon {

/// Step time of a priced plan when its pipeline is simulated event by event instead of taken from
/// the closed form: forwards, backwards and messages of every microbatch in the order of the
/// schedule, sends and receives meeting (costmodel/schedule/makespan.hpp). The other parts of the
/// step stay as priced. One stage: the step itself.
[[nodiscard]] std::optional<Seconds> simulated_step(const CostModel& cost_model,
                                                    const ParallelPlan& plan,
                                                    const PlanCosts& prediction);

/// Simulates a candidate that is not a search's: at most four million forwards and backwards, else
/// it stays without a simulated step.
void simulate_step(const PlanRequest& request, Candidate& candidate);

}  // namespace echelon
