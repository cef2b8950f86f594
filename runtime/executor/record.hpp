// Record: the instructions a rank executed, for comparison with the plan.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/schedule/schedule.hpp"

namespace echelon {

/// The instructions of one step of one rank as its device reported them. Queues report different
/// instructions concurrently.
class Record {
 public:
  explicit Record(const Program& planned)
      : planned_(planned), done_(planned.instructions.size()), times_(done_.size(), 0) {}
  void begin_step() { times_.assign(times_.size(), 0); }
  void add(const Instruction& planned, const Instruction& done, int times) {
    done_[planned.id] = done;
    times_[planned.id] += times;
  }
  /// In the order of the list; repeated instructions appear repeatedly, skipped ones do not.
  [[nodiscard]] Program executed() const;
  /// The first instruction that was not executed exactly once; null: none.
  [[nodiscard]] const Instruction* first_irregular() const;

 private:
  const Program& planned_;
  std::vector<Instruction> done_;
  std::vector<int> times_;
};

/// Hash of the text of the programs that all pipeline ranks executed; it equals the plan file's
/// program hash if the run followed its plan. `planned` gives the header.
[[nodiscard]] std::string executed_hash(const Schedule& planned, std::span<const Program> executed);

}  // namespace echelon
