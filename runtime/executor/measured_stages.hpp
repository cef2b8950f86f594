// A measured step of all ranks, stage by stage, in the terms of predictions.
#pragma once

#include <span>
#include <vector>

#include "core/plan/cost.hpp"
#include "runtime/executor/measured.hpp"

namespace echelon {

/// A step as all its ranks measured it, in the terms of core/plan/cost.hpp.
struct MeasuredStep {
  CostBreakdown parts;            ///< means over the stages
  std::vector<StageTime> stages;  ///< means over the ranks of each
};

/// The step is as long as that of the slowest rank; the others wait for the rest of it: in
/// pipelines for other stages, else for their host. A stage's waiting for other stages is divided
/// by core/schedule/stage_waits.hpp, as in predictions, using the measured times of its
/// instructions. Checked by: tests/runtime/executor/measured_test.cpp.
[[nodiscard]] MeasuredStep measured_step(const Schedule& schedule,
                                         std::span<const StepTimes> ranks);

}  // namespace echelon
