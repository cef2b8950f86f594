// How a stage's waiting for other stages is divided, of predicted and of measured steps alike.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/base/units.hpp"
#include "core/schedule/schedule.hpp"

namespace echelon {

/// What a pipeline stage waits for other stages in one step: its compute queue stands still for a
/// message that has not begun to arrive, or at the end of the step for stages that are not there
/// yet. (While a message that it waits for is transferred, it waits for communication.)
///
///   fill_drain  what the schedule itself imposes: the idle time of this stage if no stage were
///               slower than it, at most all it waits. See imposed_waiting().
///   imbalance   of the rest, what slower stages can make it wait: the time by which its passes
///               and the end of its step are shorter than those of the slowest stage
///   messages    what remains: messages on their way through other stages. It counts as exposed
///               communication of the pipeline (exposed[pp])
///
/// So the slowest stage has no imbalance, equal stages have none at all, and of 1F1B over unequal
/// stages, Σt + (m − 1)·max t, stage s gets Σt − t_s and (m − 1)·(max t − t_s): the mean imbalance
/// is what an even split of the same work would save.
/// Source: the closed form of the pipeline (costmodel/time/pipeline.hpp), stage by stage; ours.
/// Checked by: tests/core/schedule/stage_waits_test.cpp, tests/planner/explain/stage_times_test.cpp
/// (against the simulator).
struct StageWaits {
  Seconds fill_drain;
  Seconds imbalance;
  Seconds messages;
  bool operator==(const StageWaits&) const = default;
};

/// `imposed`: upper limit of fill_drain; `slower`: of imbalance. A billionth of the waiting is
/// rounding and no part of its own.
[[nodiscard]] StageWaits divide_waiting(Seconds waiting, Seconds imposed, Seconds slower);

/// Idle time that a schedule of m microbatches imposes on a stage whose passes of one microbatch
/// (forward and backward, all its chunks) take `own`, and those of all other stages together
/// `others`, where no stage is slower than this one:
///
///   GPipe, 1F1B   others: the first microbatch comes through them, the last one goes back
///   interleaved   others / v
///   ZB-H1         max(others/3, (2·(others + m·own) + own)/3 − m·own), of passes in three thirds
///
/// With p equal stages of time t: (p − 1)·t, (p − 1)·t/v, (p − 1)·t/3.
[[nodiscard]] Seconds imposed_waiting(ScheduleKind kind, int chunks, std::int64_t microbatches,
                                      Seconds others, Seconds own);

/// How long an instruction occupies its queue, of a pipeline rank.
using InstructionTime = std::function<Seconds(int rank, const Instruction& instruction)>;

/// What a pipeline rank did beside its passes in one step.
struct RankWaiting {
  Seconds waiting;  ///< as StageWaits divides it
  Seconds ending;   ///< its own work after its last backward: reductions that nothing hides, step
};

/// Divides the waiting of every pipeline rank of a step that ran: `time` tells how long each
/// forward, backward and message took (a message from when both its ends were ready). Of p messages
/// of a microbatch that pass a rank by, there and back, the mean time is imposed on it as well.
/// Slower: of every microbatch, chunk and direction the longest pass of any rank counts.
/// One entry per pipeline rank; a pipeline of one rank waits for nobody.
[[nodiscard]] std::vector<StageWaits> divide_waiting(const Schedule& schedule,
                                                     const InstructionTime& time,
                                                     std::span<const RankWaiting> ranks);

}  // namespace echelon
