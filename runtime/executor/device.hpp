// Device: what carries out instructions. Virtual time, CPU and CUDA implement it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/units.hpp"
#include "core/schedule/schedule.hpp"

namespace echelon {

/// What may take part of the time of one instruction and is told apart in measured times. The last
/// three are shares of what is before them.
enum class Within : std::uint8_t {
  recompute,
  tp_comm,
  cp_comm,
  ep_comm,
  dp_comm,  ///< a backward's wait for a reduction that empties a slot of gradients (ZeRO-2, 3)
  host,
  norm,                  ///< norm_reduce's own pass over the gradients, before it meets the others
  peers,                 ///< of tp_comm: until all members were there
  kernels_without_core,  ///< the queue's thread was ready to run, and had no core, in its kernels
  tp_without_core        ///< … in tp_comm, when all members were there
};
inline constexpr int kWithins = 10;
using WithinTimes = std::array<Seconds, kWithins>;  ///< by Within

/// One instruction, once, on one rank. The executor fills the first half, the device the second.
struct Work {
  int rank = 0;           ///< global
  int pipeline_rank = 0;  ///< whose program it is
  std::int64_t step = 0;  ///< from 0
  const Instruction& instruction;
  bool timed = false;  ///< whether this step is measured; only then the times below are looked at

  /// When the queue was ready, on Device::now's clock. Not told: when it took the instruction up.
  std::optional<Seconds> ready;
  /// When all ends of a communication were there; before that a queue waits for others, from then
  /// on it transfers. Not told: when it was ready.
  std::optional<Seconds> met;
  WithinTimes within{};
  int times_done = 0;
  Instruction done;

  /// To be called once by the code that does the work, with the instruction it did: what is
  /// skipped, repeated or mistaken for another is seen, and what was told here is what is recorded.
  void did(const Instruction& what) {
    ++times_done;
    done = what;
  }
  [[nodiscard]] Seconds& operator[](Within part) { return within[static_cast<std::size_t>(part)]; }
};

struct StepTimes;

/// Each queue of each rank calls from a thread of its own. What an instruction waits for (its
/// queue's order, `after`) is over, and visible to the calling thread, when execute is called. (Or,
/// ExecutorOptions::in_order, one thread of each rank calls for all of its queues.)
class Device {
 public:
  virtual ~Device() = default;
  /// Does the work; returns when it is over on this queue, or when the device has it on a queue of
  /// its own. What is thrown ends the run.
  virtual void execute(Work& work) = 0;
  /// Before a rank's step, while none of its queues runs. `timed`: the step is measured.
  virtual void begin_step(int rank, std::int64_t step, bool timed) = 0;
  /// Behind it, the same. Where the device has queues of its own it waits for them, and corrects
  /// `times` (null: the step was not measured).
  virtual void end_step(int /*rank*/, StepTimes* /*times*/) {}
  /// ExecutorOptions::in_order: ids in the order in which they are called for. Queues keep theirs,
  /// and nothing comes before what it waits for. None: the program's.
  [[nodiscard]] virtual std::vector<std::uint32_t> issue_order(int /*rank*/) const { return {}; }
  /// The clock of measured times: steady_now() where time is real.
  [[nodiscard]] virtual Seconds now(int rank, Queue queue) const = 0;
};

}  // namespace echelon
