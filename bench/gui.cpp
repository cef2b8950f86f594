// Latency of the window without a display: opening it, updating it after an edit, scrolling and
// zooming the timeline. p95 over many single times; each ends when everything visible has been
// painted.
#include <benchmark/benchmark.h>

#include <QApplication>
#include <QEventLoop>
#include <QSettings>
#include <QTemporaryDir>
#include <QWheelEvent>
#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "gui/app/window.hpp"
#include "gui/canvas/timeline_view.hpp"

namespace {

using namespace echelon;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void report(benchmark::State& state, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  state.counters["p50_ms"] = at(0.5);
  state.counters["p95_ms"] = at(0.95);
  state.counters["worst_ms"] = times.back();
}

gui::Query question(const char* model, int gpus) {
  gui::Query query;
  query.request.set("model", {model, "--model"});
  query.request.set("gpus", {std::to_string(gpus), "--gpus"});
  return query;
}

/// A window on `model` after its search.
std::unique_ptr<gui::Window> searched_window(const char* model, int gpus) {
  auto window = std::make_unique<gui::Window>();
  window->resize(1440, 900);
  window->show();
  window->session().reset(question(model, gpus));
  while (window->session().searching()) QApplication::processEvents(QEventLoop::WaitForMoreEvents);
  QApplication::processEvents();
  return window;
}

/// Time until a new window is painted and waits for its search.
void start(benchmark::State& state) {
  std::vector<double> times;
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    gui::Window window;
    window.session().reset(question("7b", 64));
    window.show();
    QApplication::processEvents();
    benchmark::DoNotOptimize(window.grab());
    times.push_back(milliseconds_since(begin));
    window.session().cancel_search();
  }
  report(state, std::move(times));
}

/// Time from one slider step until everything is painted, with all plans found in the scatter plot
/// and `view` below it.
void edit(benchmark::State& state, const char* view) {
  const auto window = searched_window("7b", 64);
  window->raise_view(view);
  QApplication::processEvents();
  const std::size_t points = window->session().space()->report.candidates.size();
  std::vector<double> times;
  int turn = 0;
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    window->session().set_plan_flag("microbatch", ++turn % 2 == 0 ? "1" : "2");
    QApplication::processEvents();
    window->repaint();
    times.push_back(milliseconds_since(begin));
  }
  state.SetLabel(std::to_string(points) + " plans");
  report(state, std::move(times));
}

/// One notch of the wheel, with 64 stages x 512 microbatches.
void timeline(benchmark::State& state) {
  gui::Query query = question("megatron-1t", 512);
  for (const auto& [flag, value] : {std::pair("global-batch", "512"), std::pair("seq", "2048")}) {
    query.request.set(flag, {value, std::string("--") + flag});
  }
  for (const auto& [flag, value] : {std::pair("tp", "8"), std::pair("pp", "64"),
                                    std::pair("microbatch", "1"), std::pair("recompute", "full")}) {
    query.plan.set(flag, {value, std::string("--") + flag});
  }
  query.follows_best = false;
  gui::PlanningSession session;
  session.reset(query);
  session.cancel_search();
  if (!session.plan()) {
    state.SkipWithError(session.plan_error() ? session.plan_error()->message().c_str() : "no plan");
    return;
  }
  gui::TimelineView view;
  view.resize(1400, 700);
  view.show();
  view.show_plan(session.plan());
  while (view.gantt() == nullptr) QApplication::processEvents(QEventLoop::WaitForMoreEvents);
  view.repaint();
  std::vector<double> times;
  int turn = 0;
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    const int notch = (turn / 10) % 2 == 0 ? 120 : -120;
    const Qt::KeyboardModifiers zoom =
        turn % 2 == 0 ? Qt::KeyboardModifiers(Qt::ControlModifier) : Qt::NoModifier;
    ++turn;
    QWheelEvent wheel(QPointF(700, 350), QPointF(700, 350), {}, {0, notch}, Qt::NoButton, zoom,
                      Qt::NoScrollPhase, false);
    QApplication::sendEvent(&view, &wheel);
    view.repaint();
    times.push_back(milliseconds_since(begin));
  }
  report(state, std::move(times));
}

BENCHMARK(start)->Unit(benchmark::kMillisecond)->Iterations(10);
BENCHMARK_CAPTURE(edit, memory, "Memory")->Unit(benchmark::kMillisecond)->Iterations(200);
BENCHMARK_CAPTURE(edit, timeline, "Timeline")->Unit(benchmark::kMillisecond)->Iterations(200);
BENCHMARK_CAPTURE(edit, step, "Step")->Unit(benchmark::kMillisecond)->Iterations(200);
BENCHMARK(timeline)->Unit(benchmark::kMillisecond)->Iterations(200);

}  // namespace

int main(int argc, char** argv) {
  qputenv("QT_QPA_PLATFORM", "offscreen");
  const QTemporaryDir settings;  // an empty layout, not the user's
  QSettings::setPath(QSettings::IniFormat, QSettings::UserScope, settings.path());
  const QApplication application(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
