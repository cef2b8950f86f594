// Record: what a rank really executed, to be compared with what was planned.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/schedule/schedule.hpp"

namespace echelon {

/// The instructions of one step of one rank as its device told them. Queues tell different
/// instructions at the same time.
class Record {
 public:
  explicit Record(const Program& planned)
      : planned_(planned), done_(planned.instructions.size()), times_(done_.size(), 0) {}
  void begin_step() { times_.assign(times_.size(), 0); }
  void tell(const Instruction& planned, const Instruction& done, int times) {
    done_[planned.id] = done;
    times_[planned.id] += times;
  }
  /// In the order of the list; what was done twice is there twice, what was skipped not at all.
  [[nodiscard]] Program executed() const;
  /// The first instruction that was not done just once; null: none.
  [[nodiscard]] const Instruction* odd() const;

 private:
  const Program& planned_;
  std::vector<Instruction> done_;
  std::vector<int> times_;
};

/// Hash of the text of what all pipeline ranks executed; a run that did what its plan says has the
/// program hash of the plan file. `planned` gives the header.
[[nodiscard]] std::string executed_hash(const Schedule& planned, std::span<const Program> executed);

}  // namespace echelon
