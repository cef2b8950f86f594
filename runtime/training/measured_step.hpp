// The measurements of a step in a run's report.
#pragma once

#include <span>

#include "core/run/run_report.hpp"
#include "runtime/executor/measured.hpp"

namespace echelon {

/// Writes one step of all ranks into the report: when every instruction ran, the parts of the step
/// and the throughput that follows. `report.plan` says what was executed; the memory in `measured`
/// goes into the report with it.
void write_measured(const Schedule& schedule, std::span<const StepTimes> ranks, Prediction measured,
                    RunReport& report);

}  // namespace echelon
