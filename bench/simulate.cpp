// Speed of building, checking and simulating schedules, and of computing only the makespan.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "core/schedule/schedule_check.hpp"
#include "costmodel/schedule/build.hpp"
#include "costmodel/schedule/makespan.hpp"
#include "costmodel/schedule/simulator.hpp"

namespace {

using namespace echelon;

/// Equal stages; a hop takes a twentieth of a forward pass.
ScheduleCosts costs_of(const PipelineShape& shape) {
  return ScheduleCosts::uniform(shape.ranks, shape.chunks,
                                {.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms},
                                50_us);
}

Schedule schedule_of(const PipelineShape& shape) {
  ScheduleSpec spec;
  spec.shape = shape;
  return build_schedule(spec, costs_of(shape));
}

std::size_t instructions(const Schedule& schedule) {
  std::size_t total = 0;
  for (const Program& program : schedule.programs) total += program.instructions.size();
  return total;
}

void simulated(benchmark::State& state, PipelineShape shape) {
  const ScheduleCosts costs = costs_of(shape);
  const Schedule schedule = schedule_of(shape);
  Seconds makespan;
  for (auto _ : state) {
    const Timeline timeline = simulate(schedule, costs);
    benchmark::DoNotOptimize(timeline.spans.data());
    makespan = timeline.makespan;
  }
  state.SetLabel(
      fmt::format("{} instructions, makespan {} ms", instructions(schedule), makespan.in(1_ms)));
}

void makespan_of(benchmark::State& state, PipelineShape shape, Rounds rounds) {
  const ScheduleCosts costs = costs_of(shape);
  Seconds makespan;
  MakespanSimulator simulator;
  for (auto _ : state) {
    makespan = simulator.run(shape, costs, Messages::one_at_a_time, rounds);
    benchmark::ClobberMemory();
  }
  state.SetLabel(fmt::format("makespan {} ms, simulated {} of {} forwards of a rank",
                             makespan.in(1_ms), simulator.simulated(),
                             shape.chunks * shape.microbatches));
}
void makespan_only(benchmark::State& state, PipelineShape shape) {
  makespan_of(state, shape, Rounds::skip_repeated);
}
void makespan_of_all(benchmark::State& state, PipelineShape shape) {
  makespan_of(state, shape, Rounds::all);
}

void built(benchmark::State& state, PipelineShape shape) {
  for (auto _ : state) benchmark::DoNotOptimize(schedule_of(shape));
}

void checked(benchmark::State& state, PipelineShape shape) {
  const Schedule schedule = schedule_of(shape);
  for (auto _ : state) benchmark::DoNotOptimize(check_schedule(schedule));
}

void write_and_read(benchmark::State& state, PipelineShape shape) {
  const Schedule schedule = schedule_of(shape);
  std::size_t bytes = 0;
  for (auto _ : state) {
    const std::string text = to_text(schedule);
    bytes = text.size();
    benchmark::DoNotOptimize(parse_schedule_text(text, "text"));
  }
  state.SetLabel(fmt::format("{} bytes", bytes));
}

constexpr PipelineShape kLarge{ScheduleKind::one_f_one_b, 64, 1, 512};
constexpr PipelineShape kChunks{ScheduleKind::interleaved, 16, 8, 128};
constexpr PipelineShape kMany{ScheduleKind::interleaved, 16, 8, 512};
constexpr PipelineShape kZeroBubble{ScheduleKind::zero_bubble_h1, 16, 1, 128};
constexpr PipelineShape kUsual{ScheduleKind::one_f_one_b, 8, 1, 64};

BENCHMARK_CAPTURE(simulated, 1f1b_64x512, kLarge)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulated, interleaved_16x8x128, kChunks)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulated, zb_h1_16x128, kZeroBubble)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulated, 1f1b_8x64, kUsual)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(makespan_only, 1f1b_64x512, kLarge)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(makespan_only, interleaved_16x8x128, kChunks)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(makespan_only, interleaved_16x8x512, kMany)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(makespan_of_all, interleaved_16x8x512, kMany)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(makespan_of_all, 1f1b_64x512, kLarge)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(makespan_only, zb_h1_16x128, kZeroBubble)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(makespan_only, 1f1b_8x64, kUsual)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(built, 1f1b_64x512, kLarge)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(checked, 1f1b_64x512, kLarge)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(write_and_read, 1f1b_64x512, kLarge)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
