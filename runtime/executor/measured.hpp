// Measured time of a step, instruction by instruction, and its parts by the cost model's rules.
#pragma once

#include <span>
#include <vector>

#include "core/plan/cost.hpp"
#include "runtime/executor/device.hpp"

namespace echelon {

/// The span of one instruction. A communication starts when all its members have arrived.
struct InstructionSpan {
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
  std::vector<InstructionSpan> spans;  ///< by id
};

/// The instruction on another queue that delayed `i`: the last to end among those in `after`, if it
/// ended after the previous instruction on `i`'s queue (`free`). Null: none did.
[[nodiscard]] const Instruction* waited_for(const Program& program, const StepTimes& times,
                                            const Instruction& i, Seconds free);

/// Ranks that share cores take turns with each other and with other programs: a rank that waits for
/// another may in fact wait for a core that the other lacks. The cost model counts such core
/// contention as compute (CostModel::share_cores), so measurements do the same with the times of
/// `peers`, the ranks that groups of tensor, context and expert parallelism join. Of an
/// instruction's tp_comm, cp_comm and ep_comm these shares become compute:
///   before all members had arrived  as much as another of these ranks was without a core
///                                   meanwhile, of each kind in proportion to its wait
///   from then on                    the time that the rank itself was without a core
/// A rank of several cores reports its first thread alone; on systems that do not report it,
/// nothing changes.
void count_turns_as_compute(std::span<StepTimes* const> peers);

/// The parts of one rank's step; they sum to end − begin. The compute queue either computes or
/// waits:
///
///   computes            compute, except sub-spans that the device reported separately; clip, step
///                       and zero are optimizer
///   waits for load      data
///   for gather, reduce,
///   updated             exposed[dp], from the start
///   for a message       exposed[pp] during that message's transfer, bubble before it
///   for norm            optimizer: its pass over the gradients, its all-reduce and, without a
///                       pipeline, the wait for other ranks in it; in pipelines that wait is bubble
///   for tied            exposed[dp] during its transfer; before it, while the other pipeline
///                       rank has not arrived, bubble
///   for nothing         host: its inputs are complete, it only has not started
///
/// The wake-up of its thread between the end of a wait and the next instruction counts as the same
/// part. Other collectives of the reduce queue before norm and tied are exposed[dp]. Of the
/// waits for other ranks, the time that `all` ranks of the step (empty: unknown) were without a
/// core is compute, as above: at most the largest of any other rank.
///
/// After its last instruction the compute queue waits for the last end on another queue; if that is
/// a message it sends, other stages wait for it, and the wait is bubble. All of the bubble is in
/// fill_drain: measured_stages.hpp divides it, by the times of all ranks.
/// Checked by: tests/runtime/executor/measured_test.cpp.
[[nodiscard]] CostBreakdown step_parts_of(const Program& program, const StepTimes& times,
                                          std::span<const StepTimes> all = {});

}  // namespace echelon
