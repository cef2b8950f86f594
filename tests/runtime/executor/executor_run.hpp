// Runs of the executor for tests: schedules, threads in a preferred order, devices without work.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/executor/executor.hpp"
#include "runtime/executor/virtual_device.hpp"
#include "runtime/threads/clock.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"

namespace echelon {

/// Does nothing, and no peer is waited for: only the waits of the list remain.
class EmptyDevice : public Device {
 public:
  std::function<void(Work&)> before;  ///< the work of each instruction, if any

  void execute(Work& work) override {
    if (before) before(work);
    work.report_done(work.instruction);
  }
  void begin_step(int, std::int64_t, bool) override {}
  [[nodiscard]] Seconds now(int, Queue) const override { return steady_now(); }
};

inline ProcessGrid grid_of(const Schedule& schedule, int tp = 1, int dp = 1) {
  ParallelPlan plan;
  plan.tp = tp;
  plan.dp = dp;
  plan.pp = schedule.ranks;
  return ProcessGrid(plan);
}

inline RunThreads::PickNext any_order(Numbers& numbers) {
  return [&](const std::vector<int>& ready) { return numbers.below(ready.size()); };
}

/// The error of the run; empty if it succeeded.
inline std::string outcome(RunThreads& run_threads) {
  try {
    run_threads.run();
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return {};
}

/// Times of all ranks of one measured step in virtual time.
inline std::vector<StepTimes> measured_steps(const Schedule& schedule, const ProcessGrid& grid,
                                             const VirtualDevice::Takes& takes,
                                             const VirtualDevice::TakesWithin& within = {},
                                             std::int64_t steps = 1) {
  RunThreads run_threads;
  VirtualDevice device(run_threads, schedule, grid, takes, within);
  std::vector<StepTimes> times(static_cast<std::size_t>(grid.ranks()));
  Executor executor(run_threads, schedule, grid, device,
                    {.local = {},
                     .measured = [](std::int64_t) { return true; },
                     .on_step_end =
                         [&](const StepEnd& over) {
                           times[static_cast<std::size_t>(over.rank)] = *over.times;
                           return over.step + 1 < steps;
                         }});
  executor.add_threads();
  run_threads.run();
  return times;
}

/// The time of an instruction of a global rank by the cost table.
inline VirtualDevice::Takes takes_of(const Schedule& schedule, const ProcessGrid& grid,
                                     const ScheduleCosts& costs) {
  return [&schedule, &costs, grid](int rank, const Instruction& i) {
    return duration_of(costs, schedule, grid.coordinates(rank).pp, i);
  };
}

}  // namespace echelon
