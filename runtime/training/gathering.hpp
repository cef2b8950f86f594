// Measurements of all ranks, gathered on rank 0 at the end of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "core/run/run_report.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/executor/measured.hpp"
#include "runtime/executor/record.hpp"
#include "runtime/training/machine_load.hpp"

namespace echelon {

/// Measurements of one rank.
struct RankMeasurements {
  int rank = 0;           ///< global
  int pipeline_rank = 0;  ///< which program it ran
  std::vector<StepTimes> steps;
  MemoryBreakdown held;
  Bytes checkpoint_copy;  ///< host memory for asynchronous checkpoints
  Bytes process_peak;     ///< 0 but for one rank of each process
  ProcessUse use;         ///< the same, while so many steps were measured
  std::int64_t measured_steps = 0;
  const Record& record;
};

/// Called by all ranks together; `all`: the communicator of all. On rank 0 the report receives
/// spans and parts of its median step, memory per pipeline stage, core usage, and the hash of what
/// all ranks executed: that of the first rank that deviates from the plan, if one does.
void gather_measurements(Communicator& all, const RankMeasurements& own, const Schedule& schedule,
                         RunReport& report);

}  // namespace echelon
