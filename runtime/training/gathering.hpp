// What rank 0 learns of all ranks when a run ends.
#pragma once

#include <cstdint>
#include <vector>

#include "core/run/run_report.hpp"
#include "runtime/communicator.hpp"
#include "runtime/executor/measured.hpp"
#include "runtime/executor/record.hpp"
#include "runtime/training/machine_load.hpp"

namespace echelon {

/// What one rank has to tell.
struct OwnMeasurements {
  int rank = 0;           ///< global
  int pipeline_rank = 0;  ///< which program it ran
  std::vector<StepTimes> steps;
  MemoryBreakdown held;
  Bytes process_peak;  ///< 0 but for one rank of each process
  ProcessUse use;      ///< the same, while so many steps were measured
  std::int64_t measured_steps = 0;
  const Record& record;
};

/// All ranks call it together; `all`: the line they are all on. On rank 0 the report gets spans and
/// parts of its median step, memory per pipeline stage, what the cores did, and the hash of what
/// all ranks executed: that of the first rank that differs from the plan, where one does.
void gather_measurements(Communicator& all, const OwnMeasurements& own, const Schedule& schedule,
                         RunReport& report);

}  // namespace echelon
