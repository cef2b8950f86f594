// Measured time of a step, instruction by instruction, and its parts by the cost model's rules.
#pragma once

#include <span>
#include <vector>

#include "core/cost.hpp"
#include "runtime/executor/device.hpp"

namespace echelon {

/// One instruction in time. A communication starts when all its ends are there.
struct Lap {
  Seconds start;
  Seconds end;
  WithinTimes within{};
};

/// One step of one rank.
struct StepTimes {
  int rank = 0;  ///< global
  int pipeline_rank = 0;
  std::int64_t step = 0;
  Seconds begin;
  Seconds end;
  std::vector<Lap> laps;  ///< by id
};

/// The instruction on another queue that held `i` up: the one of `after` that ended last, if it
/// ended after what came before `i` on its queue (`free`). Null: none did.
[[nodiscard]] const Instruction* waited_for(const Program& program, const StepTimes& times,
                                            const Instruction& i, Seconds free);

/// The parts of one rank's step; they sum to end − begin. The compute queue either computes or
/// waits:
///
///   computes            compute, but for what the device told apart within the instruction;
///                       clip, step and zero are optimizer
///   waits for load      data
///   for gather, reduce,
///   updated             dp_comm_exposed, from the first moment
///   for a message       pp_comm_exposed while that message's queue transfers, before that bubble
///   for norm, tied      dp_comm_exposed while the reduce queue transfers, before that (other
///                       pipeline ranks are not there yet) bubble
///   for nothing         host: what it needs is over, it only has not started
///
/// After its last instruction it waits for what ends last on another queue.
/// Checked by: tests/runtime/measured_test.cpp.
[[nodiscard]] CostBreakdown parts_of(const Program& program, const StepTimes& times);

/// The parts on the rank that finishes last; of equals the lowest.
[[nodiscard]] CostBreakdown measured_parts(const Schedule& schedule,
                                           std::span<const StepTimes> ranks);

}  // namespace echelon
