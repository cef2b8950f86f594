// FaultyDevice: a training device that commits the faults of `--inject`.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/run/fault.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/executor/device.hpp"
#include "runtime/io/weights/disk.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

/// How much longer a forward of a slow rank takes.
inline constexpr Seconds kSlowDown{0.02};

/// Passes all instructions on to a device, but for those at which a fault is due. A fault of a step
/// acts in its first forward; nan, skip and mismatch at the norm.
class FaultyDevice final : public Device {
 public:
  struct Means {
    std::function<void(int rank)> make_nan;  ///< the rank's gradient norm becomes NaN
    std::function<void()> corrupt_message;   ///< null: it sends no messages itself
  };
  /// `first_step`: the number of the executor's step 0.
  FaultyDevice(RunThreads& run_threads, Device& inner, World& world,
               std::vector<InjectedFault> faults, std::int64_t first_step, Means means);

  void execute(Work& work) override;
  void begin_step(int rank, std::int64_t step, bool timed) override {
    inner_.begin_step(rank, step, timed);
  }
  void close_step(int rank) override { inner_.close_step(rank); }
  void end_step(int rank, std::int64_t step, StepTimes* times) override {
    inner_.end_step(rank, step, times);
  }
  [[nodiscard]] std::vector<std::uint32_t> issue_order(int rank) const override {
    return inner_.issue_order(rank);
  }
  [[nodiscard]] Seconds now(int rank, Queue queue) const override {
    return inner_.now(rank, queue);
  }

 private:
  [[nodiscard]] bool is_due(const InjectedFault& fault, const Work& work) const;
  [[nodiscard]] bool commit(const InjectedFault& fault, Work& work);
  void stop();

  RunThreads& run_threads_;
  Device& inner_;
  World& world_;
  std::vector<InjectedFault> faults_;
  std::int64_t first_step_;
  Means means_;
};

/// What a run offers to faults.
struct FaultTargets {
  int ranks = 1;
  std::string_view backend;
  std::string_view launcher;
  bool corrupts = false;     ///< it sends messages itself, which it can change
  bool checkpoints = false;  ///< it writes some
};
/// Error: a fault that this run cannot commit.
[[nodiscard]] Status check_faults(const std::vector<InjectedFault>& faults,
                                  const FaultTargets& run);

/// A disk on which there is no space while `full` is true. Threads of a process share it.
[[nodiscard]] Disk disk_that_fills(std::shared_ptr<const std::atomic<bool>> full);
/// Whether the rank's disk is full, by --inject, for the checkpoint after `steps` steps.
[[nodiscard]] bool has_full_disk(const std::vector<InjectedFault>& faults, int rank,
                                 std::int64_t steps);

}  // namespace echelon
