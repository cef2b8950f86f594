// The buffer hazard checker on runs in every order that the waits allow, and in some that they do
// not.
#include <array>
#include <optional>

#include "core/schedule/schedule_check.hpp"
#include "tests/runtime/executor/executor_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

TEST_CASE("any order that the waits allow passes the buffer hazard checker") {
  Numbers draw(5);
  for (const PipelineShape& shape : shapes(3, 2, {1, 3})) {
    const ScheduleCosts costs = random_costs(shape, draw);
    const Schedule schedule = build_schedule(random_spec(shape, draw), costs);
    const ProcessGrid grid = grid_of(schedule, 1 + draw.upto(1), 1 + draw.upto(1));
    for (int run = 0; run < 3; ++run) {
      CAPTURE(name_of(shape), run);
      RunThreads run_threads(any_order(draw));
      VirtualDevice device(run_threads, schedule, grid, takes_of(schedule, grid, costs));
      Executor executor(run_threads, schedule, grid, device,
                        {.local = {}, .measured = {}, .on_step_end = [](const StepEnd& o) {
                           return o.step < 1;
                         }});
      executor.add_threads();
      REQUIRE(outcome(run_threads) == "");
    }
  }
}

struct Wait {
  std::uint32_t first = 0;   ///< is over before
  std::uint32_t second = 0;  ///< starts
};

std::vector<Wait> waits_of(const Program& program) {
  std::vector<Wait> all;
  for (const Instruction& i : program.instructions) {
    for (const std::uint32_t id : i.after) all.push_back({id, i.id});
  }
  return all;
}

Schedule without(const Schedule& schedule, int rank, const Wait& wait) {
  Schedule out = schedule;
  Instruction& i = out.programs[static_cast<std::size_t>(rank)].instructions[wait.second];
  Few<std::uint32_t, kQueues - 1> after;
  for (const std::uint32_t id : i.after) {
    if (id != wait.first) after.push_back(id);
  }
  i.after = after;
  return out;
}

/// Runs one rank, whose peers are always ready, and holds `late` back as long as any other
/// instruction can proceed.
std::optional<std::string> run_with_late(const Schedule& schedule, int rank, std::uint32_t late) {
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  std::array<std::vector<std::uint32_t>, kQueues> lines;
  for (const Instruction& i : program.instructions) {
    lines[static_cast<std::size_t>(i.queue)].push_back(i.id);
  }
  std::vector<std::size_t> members;  // queue of each
  for (std::size_t queue = 0; queue < kQueues; ++queue) {
    if (!lines[queue].empty()) members.push_back(queue);
  }
  std::array<std::size_t, kQueues> begun{};
  RunThreads run_threads([&](const std::vector<int>& ready) {
    for (std::size_t k = 0; k < ready.size(); ++k) {
      const std::size_t queue = members[static_cast<std::size_t>(ready[k])];
      const std::vector<std::uint32_t>& line = lines[queue];
      if (begun[queue] == line.size() || line[begun[queue]] != late) return k;
    }
    return std::size_t{0};
  });
  EmptyDevice device;
  device.before = [&](Work& work) { ++begun[static_cast<std::size_t>(work.instruction.queue)]; };
  Executor executor(run_threads, schedule, grid_of(schedule), device,
                    {.local = {rank}, .measured = {}, .on_step_end = {}});
  executor.add_threads();
  try {
    run_threads.run();
  } catch (const RunFailure& failure) {
    CHECK(failure.kind() == RunFailure::Kind::defect);
    return failure.what();
  }
  return std::nullopt;
}

bool share_a_buffer(const Instruction& a, const Instruction& b) {
  const auto uses = [&](std::int32_t buffer) {
    return b.reads.contains(buffer) || b.writes.contains(buffer);
  };
  return std::any_of(a.reads.begin(), a.reads.end(), uses) ||
         std::any_of(a.writes.begin(), a.writes.end(), uses);
}

/// Waits that bound memory and guard no value: microbatches loaded ahead, units held at a time.
bool bounds_memory(const Instruction& first, const Instruction& second) {
  const bool ahead = second.op == Op::load_batch && first.op == Op::forward;
  const bool held = second.op == Op::gather_parameters && first.op == Op::release_parameters;
  return (ahead || held) && !share_a_buffer(first, second);
}

ScheduleSpec spec_of(const PipelineShape& shape, int zero) {
  ScheduleSpec spec;
  spec.shape = shape;
  spec.units = 3;
  spec.reduce_gradients = true;
  spec.reduce_every_microbatch = zero >= 2;
  spec.gather_slots = zero == 3 ? 2 : 0;
  spec.gather_updated = zero == 1 || zero == 2;
  spec.tied_embedding = zero < 2;
  spec.clip = true;
  return spec;
}

struct Count {
  int broken = 0;
  int bounds = 0;
};

/// Deletes each wait of each rank in turn.
Count delete_each(const Schedule& schedule) {
  Count count;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
    for (const Wait& wait : waits_of(program)) {
      const Instruction& first = program.instructions[wait.first];
      const Instruction& second = program.instructions[wait.second];
      CAPTURE(describe(rank, first), describe(rank, second));
      REQUIRE_FALSE(run_with_late(schedule, rank, wait.first));
      const auto reported = run_with_late(without(schedule, rank, wait), rank, wait.first);
      CAPTURE(reported.value_or("went well"));
      REQUIRE(reported.has_value() == !bounds_memory(first, second));
      if (reported) REQUIRE(reported->find(describe(rank, second) + " ") == 0);
      ++(reported ? count.broken : count.bounds);
    }
  }
  return count;
}

TEST_CASE("if any one of its waits is removed, a schedule can be driven into a violation") {
  Count all;
  for (const PipelineShape& shape : {PipelineShape{ScheduleKind::gpipe, 2, 1, 3},
                                     PipelineShape{ScheduleKind::one_f_one_b, 3, 1, 4},
                                     PipelineShape{ScheduleKind::interleaved, 2, 2, 4},
                                     PipelineShape{ScheduleKind::zero_bubble_h1, 3, 1, 4}}) {
    for (int zero = 0; zero <= 3; ++zero) {
      CAPTURE(name_of(shape), zero);
      ScheduleCosts costs = one_second_each(shape, Seconds{0.25});
      costs.ranks.assign(static_cast<std::size_t>(shape.ranks), {.load_batch = Seconds{0.5},
                                                                 .gather_unit = Seconds{0.25},
                                                                 .reduce_bucket = Seconds{0.75}});
      const Schedule schedule = build_schedule(spec_of(shape, zero), costs);
      REQUIRE(check_schedule(schedule).empty());
      const Count count = delete_each(schedule);
      CHECK(count.broken > 10);
      all.broken += count.broken;
      all.bounds += count.bounds;
    }
  }
  CAPTURE(all.broken, all.bounds);
  CHECK(all.broken > 20 * all.bounds);
}

TEST_CASE("the hazard checker names instruction, buffer, its content and the expected content") {
  ScheduleSpec spec = spec_of({ScheduleKind::one_f_one_b, 2, 1, 2}, 0);
  spec.units = 1;
  const Schedule schedule = build_schedule(spec, one_second_each(spec.shape));
  const Program& program = schedule.programs[1];
  const BufferHazardRules rules(schedule, 1);
  const auto first = [&](Op op) {
    return *std::find_if(program.instructions.begin(), program.instructions.end(),
                         [&](const Instruction& i) { return i.op == op; });
  };
  const auto reported = [&](Op op, std::initializer_list<Op> before, bool finish) {
    BufferHazardChecker hazard_checker(rules, 5);
    for (const Op b : before) {
      hazard_checker.begin(first(b));
      if (finish) hazard_checker.end(first(b));
    }
    try {
      hazard_checker.begin(first(op));
    } catch (const RunFailure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  const std::string receive = describe(0, first(Op::recv_activation)).substr(7);
  CHECK(reported(Op::forward, {Op::load_batch, Op::recv_activation}, true) == "");
  const std::string early = reported(Op::forward, {Op::load_batch}, true);
  CAPTURE(early);
  CHECK(early.find(describe(5, first(Op::forward)) + " reads input buffer ") == 0);
  CHECK(early.find(", which holds nothing yet and should hold what " + receive + " writes") !=
        std::string::npos);
  CHECK(reported(Op::recv_activation, {Op::recv_activation}, false)
            .find("which " + receive + " is still writing") != std::string::npos);
  CHECK(reported(Op::norm_reduce, {}, true).find("rank 5 #") == 0);
  CHECK(reported(Op::norm_reduce, {}, true).find("norm reads all backwards") != std::string::npos);
  const std::string zero = describe(0, first(Op::zero_gradients)).substr(7);
  CHECK(reported(Op::reduce_gradients, {Op::zero_gradients}, true)
            .find("writes gradients c0 u0, which holds what " + zero +
                  " wrote and should hold what #") != std::string::npos);
  CHECK(reported(Op::clip, {}, true).find("reads the gradient norm, which holds nothing yet") !=
        std::string::npos);
  CHECK(reported(Op::optimizer_step, {Op::zero_gradients}, true).find("should hold what") !=
        std::string::npos);
}

}  // namespace
}  // namespace echelon
