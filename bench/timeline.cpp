// Speed of the timeline: 64 pipeline ranks, 512 microbatches, 2560 x 1440 pixels.
#include <benchmark/benchmark.h>

#include <QApplication>
#include <QPalette>

#include "costmodel/schedule/build.hpp"
#include "costmodel/schedule/simulator.hpp"
#include "gui/gantt_painter.hpp"

namespace {

using namespace echelon;

constexpr QSizeF kScreen(2560, 1440);

SimulatedStep step_of(PipelineShape shape) {
  ScheduleSpec spec;
  spec.shape = shape;
  SimulatedStep step;
  step.costs = ScheduleCosts::uniform(
      shape.ranks, shape.chunks, {.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms},
      50_us);
  step.schedule = build_schedule(spec, step.costs);
  step.timeline = simulate(step.schedule, step.costs);
  return step;
}

const gui::Gantt& longest() {
  static const gui::GanttShown gantt = gui::gantt_of(step_of(
      {.kind = ScheduleKind::zero_bubble_h1, .ranks = 64, .chunks = 1, .microbatches = 512}));
  return *gantt;
}

/// Frames of a window that shows `share` of the step and moves on by a hundredth of itself.
void frame(benchmark::State& state, double share) {
  const gui::Gantt& gantt = longest();
  const gui::GanttWindow first{.from = 0,
                               .to = share * gantt.makespan,
                               .scroll = 0,
                               .per_unit = kScreen.height() / gantt.height,
                               .size = kScreen};
  gui::GanttWindow window = first;
  QImage image;
  const QPalette palette;
  std::size_t bars = 0;
  for (const gui::GanttRow& row : gantt.rows) bars += row.bars.size();
  for (auto _ : state) {
    gui::paint(gantt, window, palette, 1, image);
    benchmark::DoNotOptimize(image.constBits());
    const double by = 0.01 * (window.to - window.from);
    window.from += by;
    window.to += by;
    if (window.to > 1.1 * gantt.makespan) window = first;
  }
  state.counters["bars"] = static_cast<double>(bars);
}

void arranged(benchmark::State& state) {
  const SimulatedStep step =
      step_of({.kind = ScheduleKind::one_f_one_b, .ranks = 64, .chunks = 1, .microbatches = 512});
  for (auto _ : state) benchmark::DoNotOptimize(gui::gantt_of(step));
}

BENCHMARK_CAPTURE(frame, whole_step, 1.0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(frame, tenth_of_the_step, 0.1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(frame, hundredth_of_the_step, 0.01)->Unit(benchmark::kMillisecond);
BENCHMARK(arranged)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  qputenv("QT_QPA_PLATFORM", "offscreen");
  const QApplication application(argc, argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
