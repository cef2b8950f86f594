// The independent checker of schedules: shares no code with what builds them, believes nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/schedule.hpp"

namespace echelon {

/// One kind per rule of docs/schedules.md, in the order of checking.
enum class ScheduleFaultKind {
  malformed,           ///< programs missing, fields out of range, wrong queue for the instruction
  duplicate_id,        ///< ids do not count up from 0
  unknown_rank,        ///< a peer that is not a pipeline rank
  unknown_dependency,  ///< on itself, on something later or on the same queue
  unknown_buffer,
  missing_forward,
  missing_backward,
  repeated_compute,     ///< a forward or backward twice
  compute_order,        ///< not F < I < W, or units out of order
  too_many_in_flight,   ///< more forwards without backward than the schedule's closed form
  unmatched_message,    ///< a send without its receive, or the reverse; wrong peer or communicator
  message_bytes,        ///< both ends of a message differ in bytes
  message_order,        ///< a pair of ranks sends in one order and receives in another
  communication_order,  ///< no single order of communications that all ranks keep
  cycle,                ///< instructions that wait for one another: a deadlock
  missing_dependency,   ///< needed data or freed buffer without waiting for it
  read_before_write,    ///< a buffer is read that holds nothing
  buffer_overwritten,   ///< a buffer holds something else than its reader needs
  buffer_overlap,       ///< two buffers of the arena share bytes
  step_order,           ///< reductions, norm, clip, step, gather not after one another, or missing
};
inline constexpr int kScheduleFaultKinds = 20;
[[nodiscard]] std::string_view name_of(ScheduleFaultKind kind);

struct ScheduleFault {
  ScheduleFaultKind kind{};
  std::string what;  ///< with rank and instruction: "rank 1 #7 B c0 m2 comes before its forward"
};

/// What is wrong with a schedule, at most a few dozen faults; empty when it is sound. Sound means:
/// it cannot deadlock under in-order queues and rendezvous, nor if every rank runs its
/// communications one at a time; every value is read after it was written and before it is
/// overwritten; memory in flight stays within the closed form. Takes any value, even absurd ones;
/// time and memory grow with the number of instructions alone.
[[nodiscard]] std::vector<ScheduleFault> check_schedule(const Schedule& schedule);

/// The most (chunk, microbatch) pairs that a rank may hold between forward and last backward.
[[nodiscard]] std::int64_t most_in_flight(const Schedule& schedule, int rank);

}  // namespace echelon
