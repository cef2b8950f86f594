// Built schedules are sound, run, are read back from their text, and meet their memory bound.
#include <map>
#include <optional>

#include "core/schedule/schedule_check.hpp"
#include "costmodel/time/pipeline.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// The first fault, or "sound".
std::string verdict(const Schedule& schedule) {
  const std::vector<ScheduleFault> faults = check_schedule(schedule);
  return faults.empty() ? "sound" : std::string(name_of(faults[0].kind)) + ": " + faults[0].what;
}

/// Pairs of chunk and microbatch between forward and last backward, at most, on each rank.
std::vector<std::int64_t> peaks(const Schedule& schedule) {
  std::vector<std::int64_t> all;
  for (const Program& program : schedule.programs) {
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const Instruction& i : program.instructions) {
      if (i.op == Op::forward && i.unit.value_or(0) == 0) peak = std::max(peak, ++now);
      if ((i.op == Op::backward || i.op == Op::backward_weight) && i.unit.value_or(0) == 0) --now;
    }
    all.push_back(peak);
  }
  return all;
}

std::int64_t buffers(const Program& program, BufferKind kind) {
  return std::count_if(program.buffers.begin(), program.buffers.end(),
                       [&](const Buffer& b) { return b.kind == kind; });
}

int count(const Program& program, Op op) {
  return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                        [&](const Instruction& i) { return i.op == op; }));
}

}  // namespace

TEST_CASE("every schedule is sound, never deadlocks and is read back from its text") {
  Numbers draw(1);
  int built = 0;
  for (const PipelineShape& shape : shapes(10, 4, {1, 2, 3, 4, 5, 6, 8, 13})) {
    for (int round = 0; round < 3; ++round, ++built) {
      const ScheduleCosts costs =
          round == 0 ? one_second_each(shape, 0_s)
                     : (round == 1 ? one_second_each(shape, 1_s) : random_costs(shape, draw));
      const Schedule schedule = build_schedule(random_spec(shape, draw), costs);
      INFO(name_of(shape) << " round " << round);
      REQUIRE(verdict(schedule) == "sound");
      REQUIRE(simulate(schedule, costs).complete());
      const Result<Schedule> again = parse_schedule_text(to_text(schedule), "text");
      REQUIRE(again.ok());
      REQUIRE(*again == schedule);
    }
  }
  CHECK(built > 1000);
}

TEST_CASE("a large pipeline is sound") {
  for (const PipelineShape& shape : {PipelineShape{ScheduleKind::one_f_one_b, 64, 1, 128},
                                     PipelineShape{ScheduleKind::zero_bubble_h1, 32, 1, 100},
                                     PipelineShape{ScheduleKind::interleaved, 16, 6, 64}}) {
    ScheduleSpec spec;
    spec.shape = shape;
    INFO(name_of(shape));
    CHECK(verdict(build_schedule(spec, one_second_each(shape, 100_ms))) == "sound");
  }
}

TEST_CASE("the chunks in flight equal the closed form, on every rank") {
  for (const PipelineShape& shape : shapes(8, 4, {1, 2, 3, 7, 16})) {
    ScheduleSpec spec;
    spec.shape = shape;
    const std::vector<std::int64_t> found =
        peaks(build_schedule(spec, one_second_each(shape, 50_ms)));
    INFO(name_of(shape));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      REQUIRE(found[static_cast<std::size_t>(rank)] ==
              chunks_in_flight(shape.kind, shape.ranks, shape.chunks, rank, shape.microbatches));
    }
  }
}

TEST_CASE("saved activations have exactly as many buffers as chunks are in flight") {
  for (const PipelineShape& shape : shapes(6, 3, {1, 4, 9})) {
    ScheduleSpec spec;
    spec.shape = shape;
    spec.stages.assign(static_cast<std::size_t>(shape.stages()), {.boundary = 10, .saved = 100});
    const Schedule schedule = build_schedule(spec, one_second_each(shape, 50_ms));
    INFO(name_of(shape));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      REQUIRE(buffers(schedule.programs[static_cast<std::size_t>(rank)], BufferKind::saved) ==
              chunks_in_flight(shape.kind, shape.ranks, shape.chunks, rank, shape.microbatches));
    }
  }
}

TEST_CASE("a 1F1B rank receives at most two inputs ahead of those in flight") {
  const PipelineShape shape{ScheduleKind::one_f_one_b, 8, 1, 32};
  ScheduleSpec spec;
  spec.shape = shape;
  const Schedule schedule = build_schedule(spec, one_second_each(shape, 100_ms));
  for (int rank = 1; rank < 8; ++rank) {
    const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
    CHECK(buffers(program, BufferKind::input) <= 8 - rank + 2);
    CHECK(buffers(program, BufferKind::output) <= 2);
  }
}

TEST_CASE("buffers and their order never delay the timing of the lowering") {
  // The same programs without buffers and without the waits that only buffers need run no faster.
  Numbers draw(2);
  for (const PipelineShape& shape : shapes(5, 3, {2, 7})) {
    const ScheduleCosts costs = random_costs(shape, draw);
    ScheduleSpec spec = random_spec(shape, draw);
    Schedule schedule = build_schedule(spec, costs);
    const Seconds with = simulate(schedule, costs).makespan;
    for (Program& program : schedule.programs) {
      for (Instruction& i : program.instructions) {
        // Receives and loads wait for nothing but a free buffer and, loads, for the throttle.
        const bool receives = i.op == Op::recv_activation || i.op == Op::recv_gradient;
        if (receives) i.after = {};
      }
    }
    INFO(name_of(shape));
    REQUIRE(simulate(schedule, costs).makespan == with);
  }
}

TEST_CASE("no pass is issued between what a gather of parameters waits for and the gather") {
  // The host may wait in a pass for the counts of experts' rows: a gather issued behind it could
  // not run beside it.
  int gathers = 0;
  for (const PipelineShape& shape : shapes(3, 2, {1, 2, 5})) {
    for (const Seconds gather : {0_s, 100_ms, 3_s}) {
      ScheduleSpec spec;
      spec.shape = shape;
      spec.units = 4;
      spec.reduce_gradients = spec.reduce_every_microbatch = true;
      spec.gather_slots = 2;
      ScheduleCosts costs = one_second_each(shape, 50_ms);
      costs.ranks.resize(static_cast<std::size_t>(shape.ranks));
      for (RankTimes& rank : costs.ranks) rank.gather_unit = gather;
      if (runs_both_ways(shape.kind)) continue;
      const Schedule schedule = build_schedule(spec, costs);
      for (const Program& program : schedule.programs) {
        std::optional<std::uint32_t> before;  // the last gather
        std::optional<std::uint32_t> pass;    // … and the last pass
        for (const Instruction& i : program.instructions) {
          if (i.op == Op::gather_parameters) {
            for (const std::uint32_t id : i.after) before = std::max(before, std::optional(id));
            INFO(name_of(shape) << ", gathers of " << gather.in(1_s) << " s: #" << i.id);
            REQUIRE((!pass || (before && *pass < *before)));
            before = i.id;
            ++gathers;
          } else if (i.queue == Queue::compute && i.op != Op::release_parameters &&
                     i.op != Op::zero_gradients) {
            pass = i.id;
          }
        }
      }
    }
  }
  CHECK(gathers > 1000);
}

TEST_CASE("an instruction waits for at most one other on each queue, and only if necessary") {
  ScheduleSpec spec;
  spec.shape = {ScheduleKind::one_f_one_b, 4, 1, 16};
  const Schedule schedule = build_schedule(spec, one_second_each(spec.shape, 10_ms));
  int waits = 0;
  int instructions = 0;
  for (const Program& program : schedule.programs) {
    for (const Instruction& i : program.instructions) {
      std::map<Queue, int> per_queue;
      for (const std::uint32_t id : i.after) ++per_queue[program.instructions[id].queue];
      for (const auto& [queue, times] : per_queue) CHECK(times == 1);
      waits += i.after.size();
      ++instructions;
    }
  }
  CHECK(waits < instructions);
}

TEST_CASE("gathers stay within their slots, and units still held at a turn are reused") {
  ScheduleSpec spec;
  spec.shape = {ScheduleKind::one_f_one_b, 1, 1, 3};
  spec.units = 6;
  spec.gather_slots = 2;
  const ScheduleCosts costs = one_second_each(spec.shape);
  const Schedule schedule = build_schedule(spec, costs);
  CHECK(verdict(schedule) == "sound");
  CHECK(buffers(schedule.programs[0], BufferKind::parameters) == 2);
  // 2·6 uses a microbatch; each of the 3 turns at the top (4 5 5 4) and of the 2 at the bottom
  // finds two of them held.
  CHECK(count(schedule.programs[0], Op::gather_parameters) == 3 * 12 - 3 * 2 - 2 * 2);
  spec.gather_slots = 4;  // four at each turn
  CHECK(count(build_schedule(spec, costs).programs[0], Op::gather_parameters) ==
        3 * 12 - 3 * 4 - 2 * 4);
  spec.gather_slots = 6;
  CHECK(count(build_schedule(spec, costs).programs[0], Op::gather_parameters) == 6);
}

TEST_CASE("a gather hides behind the unit before it") {
  ScheduleSpec spec;
  spec.shape = {ScheduleKind::one_f_one_b, 1, 1, 1};
  spec.units = 4;
  spec.gather_slots = 2;
  ScheduleCosts costs = ScheduleCosts::uniform(
      1, 1, {.forward = 4_s, .backward_input = 4_s, .backward_weight = 4_s, .recompute = {}});
  costs.ranks = {RankTimes{.gather_unit = 1_s}};
  CHECK(simulate(build_schedule(spec, costs), costs).makespan.in(1_s) == Approx(13));
  spec.gather_slots = 1;  // nothing to gather into while a unit runs
  CHECK(simulate(build_schedule(spec, costs), costs).makespan.in(1_s) == Approx(12 + 7));
}

TEST_CASE("buckets are reduced during the rest of the backward") {
  ScheduleSpec spec;
  spec.shape = {ScheduleKind::one_f_one_b, 1, 1, 2};
  spec.reduce_gradients = true;
  ScheduleCosts costs = ScheduleCosts::uniform(
      1, 1, {.forward = 4_s, .backward_input = 4_s, .backward_weight = 4_s, .recompute = {}});
  costs.ranks = {RankTimes{.reduce_bucket = 4_s}};
  CHECK(simulate(build_schedule(spec, costs), costs).makespan.in(1_s) == Approx(24 + 4));
  spec.units = 4;
  costs.ranks = {RankTimes{.reduce_bucket = 1_s}};
  CHECK(simulate(build_schedule(spec, costs), costs).makespan.in(1_s) == Approx(24 + 1));
}

TEST_CASE("only the last microbatch is reduced unless all must be") {
  ScheduleSpec spec;
  spec.shape = {ScheduleKind::interleaved, 2, 2, 4};
  spec.units = 3;
  spec.reduce_gradients = true;
  const ScheduleCosts costs = one_second_each(spec.shape);
  CHECK(count(build_schedule(spec, costs).programs[0], Op::reduce_gradients) == 2 * 3);
  spec.reduce_every_microbatch = true;
  CHECK(count(build_schedule(spec, costs).programs[0], Op::reduce_gradients) == 2 * 3 * 4);
}
