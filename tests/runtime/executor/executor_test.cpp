// The executor: the simulator's timeline, step after step, its records, its failures.
#include <cstdlib>
#include <set>

#include "core/base/content_hash.hpp"
#include "core/base/files.hpp"
#include "core/schedule/schedule_check.hpp"
#include "tests/places.hpp"
#include "tests/runtime/executor/executor_run.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

Schedule small(ScheduleKind kind = ScheduleKind::one_f_one_b) {
  ScheduleSpec spec;
  spec.shape = {.kind = kind, .ranks = 2, .chunks = 1, .microbatches = 3};
  spec.reduce_gradients = true;
  spec.clip = true;
  return build_schedule(spec, one_second_each(spec.shape));
}

/// The first span that differs from the simulator's, or nothing.
std::string difference(const Schedule& schedule, const Timeline& simulated,
                       const std::vector<StepTimes>& ran) {
  for (const StepTimes& rank : ran) {
    for (const Span& expected : simulated.spans) {
      if (expected.rank != rank.pipeline_rank) continue;
      const InstructionSpan& span = rank.spans[expected.id];
      if (span.start == expected.start && span.end == expected.end) continue;
      const Program& program = schedule.programs[static_cast<std::size_t>(expected.rank)];
      return std::to_string(rank.rank) + ": " +
             describe(expected.rank, program.instructions[expected.id]);
    }
  }
  return {};
}

TEST_CASE("in virtual time the executor's spans are the simulator's, instruction for instruction") {
  Numbers draw(11);
  int runs = 0;
  for (const PipelineShape& shape : shapes(4, 2, {1, 3})) {
    CAPTURE(name_of(shape));
    const ScheduleSpec spec = random_spec(shape, draw);
    const ScheduleCosts costs = random_costs(shape, draw);
    const Schedule schedule = build_schedule(spec, costs);
    REQUIRE(check_schedule(schedule).empty());
    const ProcessGrid grid = grid_of(schedule, 1 + draw.upto(1), 1 + draw.upto(1));
    const auto ran = measured_steps(schedule, grid, takes_of(schedule, grid, costs));
    CHECK(difference(schedule, simulate(schedule, costs), ran) == "");
    ++runs;
  }
  CHECK(runs > 30);
}

TEST_CASE("steps follow one another: with equal ends, each is the first one shifted in time") {
  const Schedule schedule = small();
  ScheduleCosts costs = one_second_each({.ranks = 2, .chunks = 1, .microbatches = 3}, 1_s);
  costs.ranks.assign(2, {.optimizer = 2_s});
  const ProcessGrid grid = grid_of(schedule, 1, 2);
  const auto takes = takes_of(schedule, grid, costs);
  const auto first = measured_steps(schedule, grid, takes);
  const auto third = measured_steps(schedule, grid, takes, {}, 3);
  const Seconds step = simulate(schedule, costs).makespan;
  for (std::size_t rank = 0; rank < first.size(); ++rank) {
    CHECK(third[rank].step == 2);
    CHECK(third[rank].begin == 2 * step);
    CHECK(third[rank].end == 3 * step);
    for (std::size_t id = 0; id < first[rank].spans.size(); ++id) {
      REQUIRE(third[rank].spans[id].start == first[rank].spans[id].start + 2 * step);
      REQUIRE(third[rank].spans[id].end == first[rank].spans[id].end + 2 * step);
    }
  }
}

TEST_CASE("the executed program has the hash of the plan's program, on every replica") {
  const Schedule schedule = small(ScheduleKind::zero_bubble_h1);
  const ProcessGrid grid = grid_of(schedule, 2, 2);
  RunThreads run_threads;
  EmptyDevice device;
  std::vector<Program> executed(static_cast<std::size_t>(grid.ranks()));
  Executor executor(run_threads, schedule, grid, device,
                    {.local = {}, .measured = {}, .on_step_end = [&](const StepEnd& over) {
                       executed[static_cast<std::size_t>(over.rank)] = over.record.executed();
                       CHECK(over.times == nullptr);
                       return over.step < 1;
                     }});
  executor.add_threads();
  run_threads.run();
  const std::string planned = content_hash(to_text(schedule));
  for (int tp = 0; tp < 2; ++tp) {
    for (int dp = 0; dp < 2; ++dp) {
      std::vector<Program> pipeline;
      for (const int rank :
           grid.group(Axis::pp, grid.rank({.tp = tp, .cp = 0, .dp = dp, .pp = 0}))) {
        pipeline.push_back(executed[static_cast<std::size_t>(rank)]);
      }
      CHECK(executed_hash(schedule, pipeline) == planned);
    }
  }
}

/// ZB-H1 on two ranks with ZeRO-3 and tied embeddings: every queue has something to do.
Schedule of_every_queue() {
  ScheduleSpec spec;
  spec.shape = {.kind = ScheduleKind::zero_bubble_h1, .ranks = 2, .chunks = 1, .microbatches = 3};
  spec.units = 2;
  spec.reduce_gradients = spec.reduce_every_microbatch = true;
  spec.gather_slots = 2;
  spec.tied_embedding = spec.clip = true;
  spec.batch_bytes = 64;
  spec.tied_bytes = 512;
  for (const std::int64_t boundary : {0, 256}) {
    spec.stages.push_back({.boundary = boundary,
                           .saved = 1024,
                           .weight_inputs = 256,
                           .parameters = 512,
                           .gradients = 512});
  }
  const ChunkTimes chunk{
      .forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms, .recompute = {}};
  ScheduleCosts costs = ScheduleCosts::uniform(2, 1, chunk, Seconds{1e-4});
  RankTimes rank;
  rank.gather_unit = rank.reduce_bucket = Seconds{2e-4};
  costs.ranks.assign(2, rank);
  return build_schedule(spec, costs);
}

TEST_CASE("the schedule of the run under ThreadSanitizer is sound and has every queue") {
  const std::string path = ECHELON_SOURCE_DIR "/tests/runtime/race/zero3_zb_h1.txt";
  const std::string built = to_text(of_every_queue());
  if (std::getenv("ECHELON_UPDATE_GOLDENS") != nullptr) REQUIRE(write_file(path, built).ok());
  CHECK(slurp(path) == built);
  const Result<Schedule> schedule = parse_schedule_text(slurp(path), path);
  REQUIRE(schedule);
  CHECK(check_schedule(*schedule).empty());
  for (const Program& program : schedule->programs) {
    std::array<int, kQueues> used{};
    for (const Instruction& i : program.instructions) ++used[static_cast<std::size_t>(i.queue)];
    CHECK(std::find(used.begin(), used.end(), 0) == used.end());
  }
}

TEST_CASE("a record shows skipped, repeated or mistaken instructions") {
  const Schedule schedule = small();
  const Program& program = schedule.programs[0];
  const auto hash = [&](std::size_t id, const Instruction& done, int times) {
    Record record(program);
    for (const Instruction& i : program.instructions) {
      if (i.id == id)
        record.add(i, done, times);
      else
        record.add(i, i, 1);
    }
    CHECK((record.first_irregular() == nullptr) ==
          (times == 1 && done == program.instructions[id]));
    const std::vector<Program> all = {record.executed(), schedule.programs[1]};
    return executed_hash(schedule, all);
  };
  const std::string planned = content_hash(to_text(schedule));
  CHECK(hash(5, program.instructions[5], 1) == planned);
  CHECK(hash(5, program.instructions[5], 0) != planned);
  CHECK(hash(5, program.instructions[5], 2) != planned);
  CHECK(hash(5, program.instructions[6], 1) != planned);
}

TEST_CASE("a device that skips, repeats or mistakes an instruction ends the run") {
  const Schedule schedule = small();
  const ProcessGrid grid = grid_of(schedule);
  class Careless : public EmptyDevice {
   public:
    int times = 0;
    void execute(Work& work) override {
      const bool first_irregular = work.rank == 1 && work.instruction.op == Op::backward;
      Instruction done = work.instruction;
      if (first_irregular && times == 1) done.microbatch = 7;
      for (int k = 0; k < (first_irregular ? times : 1); ++k) work.report_done(done);
    }
  };
  for (const auto& [times, reported] :
       {std::pair(0, "the device did it 0 times"), std::pair(2, "the device did it 2 times"),
        std::pair(1, "the device did rank 1 #")}) {
    RunThreads run_threads;
    Careless device;
    device.times = times;
    Executor executor(run_threads, schedule, grid, device);
    executor.add_threads();
    const std::string what = outcome(run_threads);
    CAPTURE(what);
    CHECK(what.find(reported) != std::string::npos);
    CHECK(what.find("step 0, rank 1 #") == 0);
    CHECK(what.find("B c0 m") != std::string::npos);
  }
}

TEST_CASE("a device that fails on one rank ends all, and the message names rank and instruction") {
  const Schedule schedule = small();
  const ProcessGrid grid = grid_of(schedule, 1, 2);
  for (const bool memory : {false, true}) {
    RunThreads run_threads;
    VirtualDevice device(run_threads, schedule, grid, [&](int rank, const Instruction& i) {
      if (rank == 3 && i.op == Op::forward && i.microbatch == 1) {
        if (memory) throw std::bad_alloc();
        throw RunFailure(RunFailure::Kind::diverged, "the loss is NaN");
      }
      return 1_s;
    });
    Executor executor(run_threads, schedule, grid, device);
    executor.add_threads();
    try {
      run_threads.run();
      FAIL("the run went on");
    } catch (const RunFailure& failure) {
      CHECK(failure.kind() ==
            (memory ? RunFailure::Kind::out_of_memory : RunFailure::Kind::diverged));
      const std::string what = failure.what();
      CAPTURE(what);
      CHECK(what.find("step 0, rank 3 #") == 0);
      CHECK(what.find(memory ? "F c0 m1: out of memory" : "F c0 m1: the loss is NaN") !=
            std::string::npos);
    }
  }
}

/// Rank 0 loses its first send and the instructions that waited for it.
Schedule without_a_send() {
  Schedule schedule = small();
  Program& program = schedule.programs[0];
  std::size_t lost = 0;
  while (program.instructions[lost].op != Op::send_activation) ++lost;
  program.instructions.erase(program.instructions.begin() + static_cast<std::ptrdiff_t>(lost));
  for (Instruction& i : program.instructions) {
    if (i.id > lost) --i.id;
    Few<std::uint32_t, kQueues - 1> after;
    for (const std::uint32_t id : i.after) {
      if (id != lost) after.push_back(id > lost ? id - 1 : id);
    }
    i.after = after;
  }
  return schedule;
}

TEST_CASE("a missing send is a hang that names the waiting instructions") {
  const Schedule schedule = without_a_send();
  const ProcessGrid grid = grid_of(schedule);
  Numbers numbers(3);
  RunThreads directed(any_order(numbers));
  RunThreads real(Seconds{0.2});
  for (RunThreads* run_threads : {&directed, &real}) {
    VirtualDevice device(*run_threads, schedule, grid, [](int, const Instruction&) { return 1_s; });
    Executor executor(*run_threads, schedule, grid, device);
    executor.add_threads();
    const std::string what = outcome(*run_threads);
    CAPTURE(what);
    CHECK(what.find("rank 1 p2p_forward: step 0 #") != std::string::npos);
    CHECK(what.find("recv_f c0 m") != std::string::npos);
    CHECK(what.find("rank 1 compute: step 0 #") != std::string::npos);
    CHECK(what.find("waits for") != std::string::npos);
  }
}

/// Records the calls of one rank: "b0" begins step 0, "c0" closes it, "e0" ends it.
class StepOrder final : public EmptyDevice {
 public:
  void begin_step(int, std::int64_t step, bool) override { note("b", open_ = step); }
  void close_step(int) override { note("c", open_); }
  void end_step(int, std::int64_t step, StepTimes*) override { note("e", step); }
  std::string noted;

 private:
  void note(const char* what, std::int64_t step) { noted += what + std::to_string(step) + " "; }
  std::int64_t open_ = 0;
};

/// `stop`: the step whose end asks for the end of the run.
std::string order_of_steps(std::int64_t steps, const std::set<std::int64_t>& awaited,
                           std::int64_t stop, std::string* issued = nullptr) {
  ScheduleSpec spec;
  spec.shape = {.kind = ScheduleKind::one_f_one_b, .ranks = 1, .chunks = 1, .microbatches = 1};
  const Schedule schedule = build_schedule(spec, one_second_each(spec.shape));
  RunThreads run_threads;
  StepOrder device;
  ExecutorOptions options;
  options.in_order = true;
  options.awaited = [&](std::int64_t step) { return awaited.contains(step) || step + 1 == steps; };
  options.on_step_end = [&](const StepEnd& over) {
    if (issued != nullptr) *issued += over.next_issued ? "+" : ".";
    return over.step + 1 < steps && over.step < stop;
  };
  Executor executor(run_threads, schedule, grid_of(schedule), device, options);
  executor.add_threads();
  CHECK(outcome(run_threads) == "");
  return device.noted;
}

TEST_CASE(
    "a step is issued before the end of the one before is awaited, except where it is asked") {
  std::string issued;
  CHECK(order_of_steps(4, {}, 9, &issued) == "b0 c0 b1 c1 e0 b2 c2 e1 b3 c3 e2 e3 ");
  CHECK(issued == "+++.");
  CHECK(order_of_steps(4, {1}, 9) == "b0 c0 b1 c1 e0 e1 b2 c2 b3 c3 e2 e3 ");
  CHECK(order_of_steps(3, {0, 1}, 9) == "b0 c0 e0 b1 c1 e1 b2 c2 e2 ");
}

TEST_CASE("a run that is to end after a step also ends the next one, if that runs already") {
  CHECK(order_of_steps(9, {}, 0) == "b0 c0 b1 c1 e0 e1 ");
  CHECK(order_of_steps(9, {0}, 0) == "b0 c0 e0 ");
  CHECK(order_of_steps(9, {2}, 2) == "b0 c0 b1 c1 e0 b2 c2 e1 e2 ");
}

}  // namespace
}  // namespace echelon
