// Device: executes instructions. Virtual time, CPU and CUDA implement it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/units.hpp"
#include "core/schedule/schedule.hpp"

namespace echelon {

/// Sub-spans of an instruction that measured times report separately. Those from tp_peers on are
/// shares of the ones before.
enum class Within : std::uint8_t {
  recompute,
  tp_comm,
  cp_comm,
  ep_comm,
  dp_comm,  ///< a backward's wait for a reduction that frees a gradient buffer (ZeRO-2, 3); a
            ///< forward's for weights that were updated in the step before (ZeRO-1, 2)
  host,
  norm,      ///< norm_reduce's own pass over the gradients, before its all-reduce
  tp_peers,  ///< of tp_comm: until all members had arrived
  cp_peers,
  ep_peers,
  tp_without_core,  ///< of tp_comm, after all members had arrived: the queue's thread was ready
                    ///< to run and had no core
  cp_without_core,
  ep_without_core,
  kernels_without_core  ///< … in the queue's kernels
};
inline constexpr int kWithins = 14;
using WithinTimes = std::array<Seconds, kWithins>;  ///< by Within

/// Communication among the ranks that share the passes of a microbatch, and its shares.
struct PassComm {
  Within comm, peers, without_core;
};
inline constexpr std::array kPassComms = {
    PassComm{Within::tp_comm, Within::tp_peers, Within::tp_without_core},
    PassComm{Within::cp_comm, Within::cp_peers, Within::cp_without_core},
    PassComm{Within::ep_comm, Within::ep_peers, Within::ep_without_core}};
/// Null: another part.
[[nodiscard]] constexpr const PassComm* pass_comm(Within part) {
  for (const PassComm& each : kPassComms) {
    if (each.comm == part) return &each;
  }
  return nullptr;
}

/// One instruction on one rank. The executor fills the first half, the device the second.
struct Work {
  int rank = 0;           ///< global
  int pipeline_rank = 0;  ///< whose program it is
  std::int64_t step = 0;  ///< from 0
  const Instruction& instruction;
  bool timed = false;  ///< whether this step is measured; only then the times below are read

  /// When the queue was ready, on Device::now's clock. Absent: when it took the instruction up.
  std::optional<Seconds> ready;
  /// When all members of a communication had arrived; before that a queue waits for others,
  /// afterwards it transfers. Absent: when it was ready.
  std::optional<Seconds> transfer_began;
  WithinTimes within{};
  int times_done = 0;
  Instruction done;

  /// Called once by the code that does the work, with the instruction it executed: skipped,
  /// repeated or confused instructions are detected, and this one is recorded.
  void report_done(const Instruction& what) {
    ++times_done;
    done = what;
  }
  [[nodiscard]] Seconds& operator[](Within part) { return within[static_cast<std::size_t>(part)]; }
};

struct StepTimes;

/// Each queue of each rank calls from a thread of its own. When execute is called, what the
/// instruction waits for (its queue's order, `after`) is complete and visible to the calling
/// thread. (With ExecutorOptions::in_order, one thread of each rank calls for all of its queues.)
class Device {
 public:
  virtual ~Device() = default;
  /// Executes the instruction; returns when it is complete on this queue, or enqueued on a queue of
  /// the device. An exception ends the run.
  virtual void execute(Work& work) = 0;
  /// Called before a rank's step, while none of its queues runs. `timed`: the step is measured.
  virtual void begin_step(int rank, std::int64_t step, bool timed) = 0;
  /// Called when all instructions of the step were executed.
  virtual void close_step(int /*rank*/) {}
  /// Called after that, in the order of steps, possibly when the next step has been closed as well
  /// (ExecutorOptions::awaited). A device with queues of its own waits for the step and corrects
  /// `times` (null: the step was not measured).
  virtual void end_step(int /*rank*/, std::int64_t /*step*/, StepTimes* /*times*/) {}
  /// ExecutorOptions::in_order: ids in the order in which they are issued. Each queue keeps its
  /// order, and every instruction follows those it waits for. Empty: the program's order.
  [[nodiscard]] virtual std::vector<std::uint32_t> issue_order(int /*rank*/) const { return {}; }
  /// The clock of measured times: steady_now() where time is real.
  [[nodiscard]] virtual Seconds now(int rank, Queue queue) const = 0;
};

}  // namespace echelon
