// The executor's own time: steps of the real threads and executor whose instructions do nothing.
#include <fmt/format.h>

#include <numeric>
#include <string>
#include <utility>

#include "core/base/expects.hpp"
#include "runtime/comm/thread_communicator.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

/// The program of a rank without neighbours, as `plan` writes it: batches are loaded two ahead of
/// the forward that reads them.
Schedule empty_step(int microbatches) {
  std::string lines;
  int id = 0;
  const auto add_line = [&](const std::string& line) {
    lines += fmt::format("{} {}\n", id++, line);
  };
  // The buffers of the loads: two batch buffers, 0 and 2; 1 is for saved activations.
  std::vector<int> load(static_cast<std::size_t>(microbatches));
  std::vector<int> forward(load.size());
  const auto buffer = [](int microbatch) { return microbatch % 2 == 0 ? 0 : 2; };
  const auto load_of = [&](int m) {
    load[static_cast<std::size_t>(m)] = id;
    // The batch before last is read until its backward, the instruction before the last forward.
    const std::string after =
        m < 2 ? "" : fmt::format(" @{}", forward[static_cast<std::size_t>(m - 1)] - 1);
    add_line(fmt::format("load c0 m{} b8 >{}{}", m, buffer(m), after));
  };
  add_line("zero");
  for (int m = 0; m < microbatches; ++m) {
    if (m == 0) load_of(0);
    forward[static_cast<std::size_t>(m)] = id;
    add_line(fmt::format("F c0 m{} <{} >1 @{}", m, buffer(m), load[static_cast<std::size_t>(m)]));
    if (m + 1 < microbatches) load_of(m + 1);
    add_line(fmt::format("B c0 m{} <1,{}", m, buffer(m)));
  }
  const int last = id - 1;
  add_line(fmt::format("norm b4 s0 @{}", last));
  add_line(fmt::format("clip @{}", id - 1));
  add_line("step");
  const std::string text = fmt::format(
      "echelon-schedule 1\npipeline 1f1b ranks 1 chunks 1 microbatches {} units 1\nprogram 0\n"
      "buffer batch 8 at 0\nbuffer saved 8 at 256\nbuffer batch 8 at 512\n{}end\n",
      microbatches, lines);
  const Result<Schedule> schedule = parse_schedule_text(text, "an empty step");
  EXPECTS(schedule.ok(), schedule.ok() ? "" : schedule.error().message());
  return *schedule;
}

class Idle final : public Device {
 public:
  void execute(Work& work) override { work.report_done(work.instruction); }
  void begin_step(int, std::int64_t, bool) override {}
  [[nodiscard]] Seconds now(int, Queue) const override { return steady_now(); }
};

/// Time from the end of one step to that of the next on rank 0; in between the ranks agree as in
/// runs.
Seconds time_of(const Schedule& schedule, int ranks) {
  constexpr std::int64_t kSteps = 300;
  ParallelPlan plan;
  plan.dp = ranks;
  const ProcessGrid grid(plan);
  RunThreads run_threads;
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto ends = thread_communicators(run_threads, Group{"measured", members});
  Idle device;
  std::vector<Seconds> times;
  Seconds before = steady_now();
  const auto over = [&](const StepEnd& step_end) {
    std::int32_t flag = 0;
    Communicator& all = *ends[static_cast<std::size_t>(step_end.rank)];
    if (ranks > 1) all.all_reduce(&flag, 1, Element::i32, Reduction::max);
    if (step_end.rank == 0) {
      const Seconds now = steady_now();
      times.push_back(now - before);
      before = now;
    }
    return step_end.step + 1 < kSteps;
  };
  Executor executor(run_threads, schedule, grid, device,
                    {.local = {},
                     .measured = [](std::int64_t) { return true; },
                     .first_step = 0,
                     .on_step_end = over});
  executor.add_threads();
  run_threads.run();
  return undisturbed(std::move(times));
}

}  // namespace

std::vector<Measurement> measure_host(int ranks, int cores) {
  constexpr std::int64_t kOfMicrobatch = 2;  // F and B
  std::vector<Measurement> out;
  for (const int microbatches : {2, 8, 32}) {
    out.push_back({"empty step",
                   ranks,
                   cores,
                   {kOfMicrobatch * microbatches},
                   time_of(empty_step(microbatches), ranks)});
  }
  return out;
}

}  // namespace echelon
