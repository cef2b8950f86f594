// Measured time of a step, instruction by instruction, and its parts by the cost model's rules.
#pragma once

#include <span>
#include <vector>

#include "core/plan/cost.hpp"
#include "runtime/executor/device.hpp"

namespace echelon {

/// One instruction in time. A communication starts when all its ends are there.
struct Lap {
  Seconds start;
  Seconds end;
  WithinTimes within{};
  Seconds waited{};  ///< right before `start`, for the other ends
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

/// Ranks that share cores take turns, and so do they and other programs: a rank that waits for
/// another may wait for a core that the other has not got. The cost model counts turns as compute
/// (CostModel::share_cores), so the same is done here with what `peers`, the ranks of one
/// tensor-parallel group, measured. Of an instruction's tp_comm become compute
///   before all members were there   as much as another member was without a core meanwhile
///   from then on                    what the rank itself was without a core
/// A rank of several cores tells of its first thread alone; where a system does not tell, all stays
/// as it is.
void count_turns_as_compute(std::span<StepTimes* const> peers);

/// The parts of one rank's step; they sum to end − begin. The compute queue either computes or
/// waits:
///
///   computes            compute, but for what the device told apart within the instruction;
///                       clip, step and zero are optimizer
///   waits for load      data
///   for gather, reduce,
///   updated             dp_comm_exposed, from the first moment
///   for a message       pp_comm_exposed while that message's queue transfers, before that bubble
///   for norm            optimizer: its pass over the gradients, its all-reduce and, where there is
///                       no pipeline, waiting for the others in it; in pipelines that is bubble
///   for tied            dp_comm_exposed while it transfers, before that (the other pipeline rank
///   is
///                       not there yet) bubble
///   for nothing         host: what it needs is over, it only has not started
///
/// Between the end of what it waited for and its next instruction its thread wakes up: the same
/// part. Other collectives of the reduce queue before norm and tied are dp_comm_exposed. What of
/// these waits for others `all` ranks of the step (none: not known) were without a core is compute,
/// as above: at most the largest of any other rank.
///
/// After its last instruction it waits for what ends last on another queue; while that is a message
/// it sends, other stages wait for it, and here it is bubble. All of the bubble is in fill_drain:
/// measured_stages.hpp divides it, by the times of all ranks.
/// Checked by: tests/runtime/measured_test.cpp.
[[nodiscard]] CostBreakdown parts_of(const Program& program, const StepTimes& times,
                                     std::span<const StepTimes> all = {});

}  // namespace echelon
