// The parts of the checker (schedule_check.hpp); each takes a schedule that passed those before it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/schedule/schedule_check.hpp"

namespace echelon::schedule_check {

/// Collects faults and stops collecting when there are enough to see what is wrong.
class Faults {
 public:
  void add(ScheduleFaultKind kind, std::string what) {
    if (all_.size() < kMost) all_.push_back({kind, std::move(what)});
  }
  [[nodiscard]] bool none() const { return all_.empty(); }
  [[nodiscard]] std::vector<ScheduleFault> take() { return std::move(all_); }

 private:
  static constexpr std::size_t kMost = 32;
  std::vector<ScheduleFault> all_;
};

/// Ids, ranges, queues, peers, dependencies and buffers that exist.
void check_form(const Schedule& schedule, Faults& faults);
/// Every (chunk, microbatch) once forward, once backward, in order, not too many at a time.
void check_compute(const Schedule& schedule, Faults& faults);
/// Sends match receives, collectives match, one order of communications.
void check_messages(const Schedule& schedule, Faults& faults);
/// Nothing waits for itself. Matches communications by what they are, not by their numbers.
void check_deadlock(const Schedule& schedule, Faults& faults);
/// Every read sees the right value; nothing is overwritten too early.
void check_buffers(const Schedule& schedule, int rank, Faults& faults);
/// Reduction, norm, clip, step and gather follow one another.
void check_step(const Schedule& schedule, int rank, Faults& faults);

/// What is common to the ranks that take part in a communication; equal for the same one.
struct Operation {
  int family = 0;  ///< 0 activation, 1 gradient, 2 norm, 3 tied embedding, 4 anything local
  int a = 0;       ///< stage of the sender; rank of something local
  int b = 0;       ///< microbatch; id of something local
  auto operator<=>(const Operation&) const = default;
};
[[nodiscard]] Operation operation_of(const Schedule& schedule, int rank, const Instruction& i);
[[nodiscard]] inline bool is_send(Op op) {
  return op == Op::send_activation || op == Op::send_gradient;
}
[[nodiscard]] inline bool is_message(Op op) {
  return is_send(op) || op == Op::recv_activation || op == Op::recv_gradient;
}

/// Which instructions of one rank are known to be complete before another starts: in-order queues
/// and `after`, nothing else.
class Before {
 public:
  explicit Before(const Program& program);
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
