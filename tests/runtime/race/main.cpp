// One small plan under ThreadSanitizer: four ranks, all queues, fifty steps, with occasional
// sleeps. A missing synchronisation in threads, executor, hazard checker or device is reported as a
// race. Built with -fsanitize=thread from the sources themselves (tests/CMakeLists.txt), in any
// build.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/base/content_hash.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/executor/virtual_device.hpp"

namespace {

using namespace echelon;

int add_line(const std::string& what) {
  std::printf("%s\n", what.c_str());
  return 1;
}

/// Some microseconds that differ from instruction to instruction and rank to rank.
Seconds nap(int rank, const Instruction& i) {
  const int microseconds = (rank * 7 + static_cast<int>(i.id) * 13) % 5 * 40;
  if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  return Seconds{1e-6 * microseconds};
}

/// Runs fifty steps; the records of pipeline ranks 0 and 1 of the first replica.
std::vector<Program> run(const Schedule& schedule) {
  ParallelPlan plan;
  plan.dp = 2;
  plan.pp = schedule.ranks;
  const ProcessGrid grid(plan);
  RunThreads run_threads(Seconds{60});
  VirtualDevice device(run_threads, schedule, grid, nap);
  std::vector<Program> executed(static_cast<std::size_t>(grid.ranks()));
  Executor executor(run_threads, schedule, grid, device,
                    {.local = {},
                     .measured = [](std::int64_t step) { return step % 2 == 1; },
                     .on_step_end =
                         [&](const StepEnd& over) {
                           executed[static_cast<std::size_t>(over.rank)] = over.record.executed();
                           return over.step < 49;
                         }});
  executor.add_threads();
  run_threads.run();
  std::vector<Program> first;
  for (const int rank : grid.group(Axis::pp, 0)) {
    first.push_back(executed[static_cast<std::size_t>(rank)]);
  }
  return first;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return add_line("race SCHEDULE");
  std::ifstream file(arguments[1]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Result<Schedule> schedule = parse_schedule_text(text, arguments[1]);
  if (!schedule) return add_line(schedule.error().message());
  try {
    const bool same = executed_hash(*schedule, run(*schedule)) == content_hash(text);
    return same ? 0 : add_line("what was executed is not the program");
  } catch (const RunFailure& failure) {
    return add_line(failure.what());
  }
}
