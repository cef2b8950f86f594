// Overhead of the executor: with devices that do nothing, a step consists of threads, waits, hazard
// checks and the recording of spans.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "costmodel/schedule/build.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/executor/virtual_device.hpp"
#include "runtime/threads/clock.hpp"

namespace {

using namespace echelon;

Schedule schedule_of(const PipelineShape& shape, int units) {
  ScheduleSpec spec;
  spec.shape = shape;
  spec.units = units;
  spec.reduce_gradients = spec.clip = true;
  return build_schedule(
      spec, ScheduleCosts::uniform(
                shape.ranks, shape.chunks,
                {.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms}, 50_us));
}

class NoOpDevice : public Device {
 public:
  void execute(Work& work) override { work.report_done(work.instruction); }
  void begin_step(int, std::int64_t, bool) override {}
  [[nodiscard]] Seconds now(int, Queue) const override { return steady_now(); }
};

/// Wall and CPU time of one step of the ranks in `local` (empty: all ranks) in the middle of a run.
void stepped(benchmark::State& state, PipelineShape shape, std::vector<int> local,
             bool virtual_time, bool measured) {
  constexpr std::int64_t kSteps = 100;
  const Schedule schedule = schedule_of(shape, 4);
  ParallelPlan plan;
  plan.pp = shape.ranks;
  const ProcessGrid grid(plan);
  std::size_t instructions = 0;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const bool here = local.empty() || std::find(local.begin(), local.end(), rank) != local.end();
    if (here) instructions += schedule.programs[static_cast<std::size_t>(rank)].instructions.size();
  }
  const int watched = local.empty() ? 0 : local.front();
  double processor = 0;
  for (auto _ : state) {
    RunThreads run_threads;
    NoOpDevice no_op;
    VirtualDevice clocked(run_threads, schedule, grid,
                          [](int, const Instruction&) { return 1_us; });
    Device& device = virtual_time ? static_cast<Device&>(clocked) : no_op;
    Seconds begin;
    Seconds end;
    std::clock_t used = 0;
    const auto step_over = [&](const StepEnd& event) {
      if (event.rank == watched) {
        (event.step == 0 ? begin : end) = steady_now();
        if (event.step == 0) used = std::clock();
      }
      return event.step < kSteps;
    };
    Executor executor(run_threads, schedule, grid, device,
                      {.local = local,
                       .measured = [measured](std::int64_t) { return measured; },
                       .on_step_end = step_over});
    executor.add_threads();
    run_threads.run();
    state.SetIterationTime((end - begin).in(1_s) / kSteps);
    processor += static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC / kSteps;
  }
  const double step = processor / static_cast<double>(state.iterations());
  state.counters["cpu_ms_per_step"] = step * 1e3;
  state.counters["cpu_us_per_instruction"] = step * 1e6 / static_cast<double>(instructions);
  state.SetLabel(fmt::format("{} instructions per step", instructions));
}

constexpr PipelineShape k1F1B{ScheduleKind::one_f_one_b, 4, 1, 16};

BENCHMARK_CAPTURE(stepped, 1f1b_4x16_only_rank_0, k1F1B, {0}, false, false)
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(stepped, 1f1b_4x16_only_rank_0_measured, k1F1B, {0}, false, true)
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(stepped, 1f1b_4x16_all, k1F1B, {}, false, false)
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(stepped, 1f1b_4x16_all_virtual_time, k1F1B, {}, true, false)
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
