// BufferHazardChecker: tracks at run time what each buffer holds and who uses it; ends the run at
// the first violation.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/schedule/schedule.hpp"

namespace echelon {

/// The values that every instruction of one program must find, derived only from the order of its
/// list, not from its waits. Besides the program's buffers, these places are written and read:
///
///   place                        written by                        read by
///   gradients of a chunk's unit  zero, B or W, reduce, tied, clip  norm, step
///   gradients of one microbatch  B or W                            reduce
///     (if each is reduced separately)
///   all backwards                every B or W                      tied, norm
///   gradient norm                norm                              clip, step
///   weights                      step, updated                     gather
class BufferHazardRules {
 public:
  struct Use {
    std::int32_t place = 0;
    bool write = false;
    std::optional<std::uint32_t> writer;  ///< id of the instruction whose value must be found
    std::int32_t readers = 0;             ///< of a write: number of earlier readers of the value
  };

  BufferHazardRules(const Schedule& schedule, int pipeline_rank);
  [[nodiscard]] std::span<const Use> uses(const Instruction& i) const {
    return std::span(uses_).subspan(first_[i.id], first_[i.id + 1] - first_[i.id]);
  }
  [[nodiscard]] std::size_t places() const { return buffers_ + others_; }
  [[nodiscard]] std::string name(
      std::int32_t place) const;  ///< "saved buffer 4", "gradients c0 u1"
  /// "#5 F c0 m1", without the rank.
  [[nodiscard]] std::string name_of_instruction(std::uint32_t id) const;
  /// Whether a reader may find a value from before this step: weights and gradients.
  [[nodiscard]] bool outlives_steps(std::int32_t place) const {
    return static_cast<std::size_t>(place) >= buffers_;
  }

 private:
  struct Builder;

  const Schedule& s_;
  const Program& program_;
  std::size_t buffers_ = 0;
  std::size_t others_ = 0;
  bool each_microbatch_ = false;
  std::vector<std::size_t> first_;  ///< per instruction, into uses_
  std::vector<Use> uses_;
};

/// The state of one rank. Called by all its queues; an instruction costs two short critical
/// sections.
class BufferHazardChecker {
 public:
  /// `rank` is the global one that messages name.
  BufferHazardChecker(const BufferHazardRules& rules, int rank) : rules_(rules), rank_(rank) {
    begin_step();
  }
  void begin_step() { places_.assign(rules_.places(), {}); }
  /// Throws RunFailure::defect that names instruction and place.
  void begin(const Instruction& i);
  void end(const Instruction& i);

 private:
  struct Place {
    std::optional<std::uint32_t> writer;
    std::int32_t readers = 0;  ///< finished
    std::int32_t reading = 0;
    std::optional<std::uint32_t> writing;
  };
  void check(const Instruction& i, const BufferHazardRules::Use& use) const;

  const BufferHazardRules& rules_;
  int rank_;
  std::mutex mutex_;
  std::vector<Place> places_;
};

}  // namespace echelon
