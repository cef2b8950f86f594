// Division of the time that a stage waits for other stages, for predicted and measured steps.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/base/units.hpp"
#include "core/schedule/schedule.hpp"

namespace echelon {

/// The time that a pipeline stage waits for other stages in one step: its compute queue is idle
/// because a message has not begun to arrive, or because other stages have not reached the end of
/// the step. (During the transfer of a message the stage waits for communication instead.)
///
///   fill_drain  imposed by the schedule itself: the idle time of this stage if no stage were
///               slower than it, limited to its waiting time. See imposed_waiting().
///   imbalance   part of the rest that slower stages can cause: the time by which its passes
///               and the end of its step are shorter than those of the slowest stage
///   messages    the remainder: messages in transit between other stages. It counts as exposed
///               communication of the pipeline (exposed[pp])
///
/// So the slowest stage has no imbalance, and neither have equal stages. 1F1B over unequal stages
/// takes Σt + (m − 1)·max t, of which stage s waits Σt − t_s (fill_drain) and (m − 1)·(max t − t_s)
/// (imbalance): the mean imbalance is the time that an even split of the same work would save.
/// Source: the closed form of the pipeline (costmodel/time/pipeline.hpp), applied per stage; our
/// derivation.
/// Checked by: tests/core/schedule/stage_waits_test.cpp, tests/planner/explain/stage_times_test.cpp
/// (against the simulator).
struct StageWaits {
  Seconds fill_drain;
  Seconds imbalance;
  Seconds messages;
  bool operator==(const StageWaits&) const = default;
};

/// `imposed`: upper limit of fill_drain; `slower`: upper limit of imbalance. A remainder below a
/// billionth of the waiting is rounding and does not become a part.
[[nodiscard]] StageWaits divide_waiting(Seconds waiting, Seconds imposed, Seconds slower);

/// Idle time that a schedule of m microbatches imposes on a stage, if no stage is slower than it.
/// `own`: time of its passes of one microbatch (forward and backward, all its chunks); `others`:
/// the same for all other stages together:
///
///   GPipe, 1F1B   others: the first microbatch passes through them, and the last one back
///   interleaved   others / v
///   DualPipeV     others/3, of chunks in three thirds: forward, input and weight gradient
///   DualPipe      (others − own)/6, of two such chunks: half of the ranks hold the model once, the
///                 mirror of this one among the others
///   ZB-H1         max(others/3, (2·(others + m·own) + own)/3 − m·own), of passes in three thirds
///
/// With p equal ranks of time t: (p − 1)·t, (p − 1)·t/v, (p − 1)·t/3, (p/2 − 1)·t/3 and
/// (p − 1)·t/3.
[[nodiscard]] Seconds imposed_waiting(ScheduleKind kind, int chunks, std::int64_t microbatches,
                                      Seconds others, Seconds own);

/// Time that an instruction of a pipeline rank occupies its queue.
using InstructionTime = std::function<Seconds(int rank, const Instruction& instruction)>;

/// Times of a pipeline rank outside its passes in one step.
struct RankWaiting {
  Seconds waiting;  ///< as StageWaits divides it
  Seconds ending;   ///< its own work after its last backward: exposed reductions, optimizer step
};

/// Divides the waiting time of every pipeline rank of an executed step. `time` gives the duration
/// of each forward, backward and message (a message counts from the moment both endpoints are
/// ready). The messages of a microbatch between other ranks, in both directions, are imposed on a
/// rank with their mean time. The imbalance is limited by the longest pass of any rank, for every
/// microbatch, chunk and direction. One entry per pipeline rank; a pipeline of one rank does not
/// wait.
[[nodiscard]] std::vector<StageWaits> divide_waiting(const Schedule& schedule,
                                                     const InstructionTime& time,
                                                     std::span<const RankWaiting> ranks);

}  // namespace echelon
