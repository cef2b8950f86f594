// The independent checker of schedules: it shares no code with the builders and trusts no field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/schedule.hpp"

namespace echelon {

/// One kind per rule of docs/schedules.md, in the order of checking.
enum class ScheduleFaultKind {
  malformed,           ///< programs missing; fields missing, foreign or out of range; wrong queue
  duplicate_id,        ///< ids do not count up from 0
  unknown_rank,        ///< a peer that is not a pipeline rank
  unknown_dependency,  ///< on itself, on a later instruction or on the same queue
  unknown_buffer,
  missing_forward,
  missing_backward,
  repeated_compute,     ///< a forward or backward twice
  compute_order,        ///< not in the order F, I, W, or units out of order
  too_many_in_flight,   ///< more forwards without backward than the closed form of the schedule
  unmatched_message,    ///< a send or receive without its counterpart; wrong peer or communicator
  message_bytes,        ///< the two endpoints of a message differ in bytes
  message_order,        ///< a pair of ranks sends in one order and receives in another
  communication_order,  ///< no order of communications that all ranks follow
  cycle,                ///< instructions that wait for one another: a deadlock
  missing_dependency,   ///< data or a freed buffer is used without waiting for it
  read_before_write,    ///< an empty buffer is read
  buffer_overwritten,   ///< a buffer does not hold the value its reader needs
  buffer_overlap,       ///< two buffers of the arena share bytes
  step_order,           ///< reductions, norm, clip, step, gather missing or out of order
};
inline constexpr int kScheduleFaultKinds = 20;
[[nodiscard]] std::string_view name_of(ScheduleFaultKind kind);

struct ScheduleFault {
  ScheduleFaultKind kind{};
  std::string what;  ///< with rank and instruction: "rank 1 #7 B c0 m2 comes before its forward"
};

/// The faults of a schedule, at most a few dozen; empty if it is sound. A sound schedule cannot
/// deadlock with in-order queues and rendezvous, even if every rank runs its communications one at
/// a time; every value is read after it was written and before it is overwritten; memory in flight
/// stays within the closed form. Accepts any values, even absurd ones; time and memory depend only
/// on the number of instructions.
[[nodiscard]] std::vector<ScheduleFault> check_schedule(const Schedule& schedule);

/// The maximum number of (chunk, microbatch) pairs that a rank may hold between forward and last
/// backward.
[[nodiscard]] std::int64_t max_in_flight(const Schedule& schedule, int rank);

}  // namespace echelon
