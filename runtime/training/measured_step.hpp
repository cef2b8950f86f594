// The measurements of a step in a run's report.
#pragma once

#include <span>
#include <vector>

#include "core/run/run_report.hpp"
#include "runtime/executor/measured.hpp"

namespace echelon {

/// Shifts the times of ranks whose clock is another host's, so that the sum of norms ends on all
/// ranks at once. Clocks differ where these ends are more than a step apart: a clock of a host
/// counts from its start.
void align_clocks(const Schedule& schedule, std::span<StepTimes> ranks);

/// Lets communications begin when all members have arrived, as spans have it. On a GPU a member's
/// kernel begins when its own stream is ready and waits for the others; the last to arrive waits
/// for none, so the shortest of a communication's spans, without the squares that a norm adds up
/// before, is its transfer, and what the others take beyond it is a wait.
void begin_with_arrivals(const Schedule& schedule, std::span<StepTimes> ranks);

/// Writes one step of all ranks into the report: when every instruction ran, the parts of the step
/// and the throughput that follows. `report.plan` says what was executed, `report.backend` how
/// communications were timed; the memory in `measured` goes into the report with it.
void write_measured(const Schedule& schedule, std::vector<StepTimes> ranks, Prediction measured,
                    RunReport& report);

}  // namespace echelon
