// The parts of the checker (schedule_check.hpp); each requires a schedule that passed the previous
// ones.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/schedule/schedule_check.hpp"

namespace echelon::schedule_check {

/// Collects faults up to a maximum number.
class Faults {
 public:
  void add(ScheduleFaultKind kind, std::string what) {
    if (all_.size() < kMaxFaults) all_.push_back({kind, std::move(what)});
  }
  [[nodiscard]] bool none() const { return all_.empty(); }
  [[nodiscard]] std::vector<ScheduleFault> release() { return std::move(all_); }

 private:
  static constexpr std::size_t kMaxFaults = 32;
  std::vector<ScheduleFault> all_;
};

/// Checks ids, fields, queues, and that dependencies and buffers exist.
void check_form(const Schedule& schedule, Faults& faults);
/// Checks that every (chunk, microbatch) has one forward and one backward, in order, and that not
/// too many are in flight.
void check_compute(const Schedule& schedule, Faults& faults);
/// Checks that sends match receives, that collectives match, and that there is one order of
/// communications.
void check_messages(const Schedule& schedule, Faults& faults);
/// Checks that nothing waits for itself. Communications are matched by their operation, not by
/// their numbers.
void check_deadlock(const Schedule& schedule, Faults& faults);
/// Checks that every read sees the right value and that nothing is overwritten too early.
void check_buffers(const Schedule& schedule, int rank, Faults& faults);
/// Checks the order of reduction, norm, clip, step and gather.
void check_step(const Schedule& schedule, int rank, Faults& faults);

/// Identity of a communication: equal on all ranks that take part in it.
struct Operation {
  /// 0 activation, 1 gradient, 2 norm, 3 tied embedding, 4 local to a rank; DualPipe, between the
  /// two ranks that hold a stage: 5 reduction of a bucket, 6 updated parameters.
  int family = 0;
  int a = 0;  ///< stage of the sender, or of the model; rank if local
  int b = 0;  ///< microbatch, or unit; id if local
  auto operator<=>(const Operation&) const = default;
};
[[nodiscard]] Operation operation_of(const Schedule& schedule, int rank, const Instruction& i);
[[nodiscard]] inline bool is_send(Op op) {
  return op == Op::send_activation || op == Op::send_gradient;
}
[[nodiscard]] inline bool is_message(Op op) {
  return is_send(op) || op == Op::recv_activation || op == Op::recv_gradient;
}

/// Happens-before relation of the instructions of one rank: it follows only from in-order queues
/// and `after`.
class HappensBefore {
 public:
  explicit HappensBefore(const Program& program);
  [[nodiscard]] bool operator()(std::uint32_t first, std::uint32_t second) const {
    const auto queue = static_cast<std::size_t>((*instructions_)[first].queue);
    return known_[second][queue] >= first;
  }

 private:
  const std::vector<Instruction>* instructions_;
  using Latest = std::array<std::optional<std::uint32_t>, kQueues>;
  std::vector<Latest> known_;  ///< latest complete id per queue
};

}  // namespace echelon::schedule_check
