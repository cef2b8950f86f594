// The simulator alone, and the deadlocks that timed lowering avoids.
#include "costmodel/schedule/simulator.hpp"

#include <optional>

#include "core/schedule/schedule_check.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// The naive list of each rank: every receive right before its consumer, every send right after its
/// producer, everything else left out. `one`: both directions on one communicator.
Schedule local_lowering(const Schedule& lowered, bool one) {
  Schedule local = lowered;
  for (std::size_t rank = 0; rank < lowered.programs.size(); ++rank) {
    const auto& list = lowered.programs[rank].instructions;
    std::vector<Instruction> out;
    const auto add = [&](Instruction i) {
      i.id = static_cast<std::uint32_t>(out.size());
      i.after = {};
      if (one && i.queue == Queue::p2p_backward) i.queue = Queue::p2p_forward;
      out.push_back(i);
      return i.id;
    };
    const auto message = [&](Op op, const Instruction& of) -> std::optional<Instruction> {
      for (const Instruction& i : list) {
        if (i.op == op && i.chunk == of.chunk && i.microbatch == of.microbatch) return i;
      }
      return std::nullopt;
    };
    for (const Instruction& i : list) {
      const bool forward = i.op == Op::forward;
      if (!forward && i.op != Op::backward && i.op != Op::backward_input &&
          i.op != Op::backward_weight) {
        continue;
      }
      Instruction compute = i;
      const std::optional<Instruction> in =
          message(forward ? Op::recv_activation : Op::recv_gradient, i);
      const bool weight = i.op == Op::backward_weight;
      std::optional<std::uint32_t> received;
      if (!weight && in) received = add(*in);
      const std::uint32_t id = add(compute);
      if (received) out[id].after.push_back(*received);
      const std::optional<Instruction> sent =
          message(forward ? Op::send_activation : Op::send_gradient, i);
      if (!weight && sent) out[add(*sent)].after.push_back(id);
    }
    local.programs[rank].instructions = std::move(out);
  }
  return local;
}

bool runs(const PipelineShape& shape, bool local, bool one) {
  ScheduleSpec spec;
  spec.shape = shape;
  const ScheduleCosts costs = one_second_each(shape, 50_ms);
  const Schedule schedule = build_schedule(spec, costs);
  return simulate(local ? local_lowering(schedule, one) : schedule, costs).complete();
}

/// One rank, written by hand.
Schedule single(std::vector<Instruction> list) {
  Schedule schedule;
  schedule.programs.resize(1);
  for (std::uint32_t at = 0; at < list.size(); ++at) list[at].id = at;
  schedule.programs[0].instructions = std::move(list);
  return schedule;
}

Instruction instruction(Op op, int microbatch, Queue queue, std::vector<std::uint32_t> after = {}) {
  Instruction i;
  i.op = op;
  i.queue = queue;
  i.chunk = 0;
  i.microbatch = microbatch;
  for (const std::uint32_t id : after) i.after.push_back(id);
  return i;
}

}  // namespace

TEST_CASE("queues run concurrently, each in order") {
  const Schedule schedule = single({instruction(Op::load_batch, 0, Queue::host),
                                    instruction(Op::forward, 0, Queue::compute, {0}),
                                    instruction(Op::load_batch, 1, Queue::host),
                                    instruction(Op::forward, 1, Queue::compute, {2})});
  ScheduleCosts costs = ScheduleCosts::uniform(1, 1, {.forward = 3_s});
  costs.ranks = {RankTimes{.load_batch = 2_s}};
  const Timeline timeline = simulate(schedule, costs);
  REQUIRE(timeline.spans.size() == 4);
  CHECK(timeline.spans[1].start.in(1_s) == Approx(2));
  CHECK(timeline.spans[2].end.in(1_s) == Approx(4));
  CHECK(timeline.spans[3].start.in(1_s) == Approx(5));
  CHECK(timeline.makespan.in(1_s) == Approx(8));
}

TEST_CASE("both ends of a message start together, when the later one is ready") {
  ScheduleSpec spec;
  spec.shape = {ScheduleKind::one_f_one_b, 2, 1, 1};
  const ScheduleCosts costs = one_second_each(spec.shape, 500_ms);
  const Schedule schedule = build_schedule(spec, costs);
  const Timeline timeline = simulate(schedule, costs);
  std::vector<Span> ends;
  for (const Span& span : timeline.spans) {
    if (span.queue == Queue::p2p_forward) ends.push_back(span);
  }
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].start.in(1_s) == Approx(1));
  CHECK(ends[1].start == ends[0].start);
  CHECK(ends[1].end.in(1_s) == Approx(1.5));
}

TEST_CASE("spans are sorted by rank and id, cover every instruction and never overlap on a queue") {
  Numbers draw(6);
  for (const PipelineShape& shape : shapes(5, 2, {1, 4, 7})) {
    const ScheduleCosts costs = random_costs(shape, draw);
    const Schedule schedule = build_schedule(random_spec(shape, draw), costs);
    const Timeline timeline = simulate(schedule, costs);
    REQUIRE(timeline == simulate(schedule, costs));
    std::size_t at = 0;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      std::array<Seconds, kQueues> free{};
      for (const Instruction& i : schedule.programs[static_cast<std::size_t>(rank)].instructions) {
        const Span& span = timeline.spans[at++];
        Seconds& queue = free[static_cast<std::size_t>(i.queue)];
        REQUIRE((span.rank == rank && span.id == i.id && span.queue == i.queue));
        REQUIRE(span.start >= queue);
        queue = span.end;
      }
    }
    REQUIRE(at == timeline.spans.size());
  }
}

TEST_CASE("a list is in the order in which its instructions start") {
  const PipelineShape shape{ScheduleKind::interleaved, 4, 2, 8};
  ScheduleSpec spec;
  spec.shape = shape;
  const ScheduleCosts costs = one_second_each(shape, 200_ms);
  const Timeline timeline = simulate(build_schedule(spec, costs), costs);
  for (std::size_t k = 1; k < timeline.spans.size(); ++k) {
    if (timeline.spans[k].rank != timeline.spans[k - 1].rank) continue;
    REQUIRE(timeline.spans[k].start >= timeline.spans[k - 1].start);
  }
}

TEST_CASE("ranks that order communications independently deadlock, lowered schedules never do") {
  int deadlocks_of_1f1b = 0;
  int cases = 0;
  for (const int p : {2, 3, 4, 8}) {
    for (const int times : {1, 2, 4}) {
      const PipelineShape chunks{ScheduleKind::interleaved, p, 2, times * p};
      const PipelineShape plain{ScheduleKind::one_f_one_b, p, 1, times * p};
      INFO(name_of(chunks));
      CHECK_FALSE(runs(chunks, true, true));   // one communicator
      CHECK_FALSE(runs(chunks, true, false));  // not even one per direction helps
      CHECK(runs(chunks, false, false));
      CHECK(runs(plain, true, false));
      deadlocks_of_1f1b += runs(plain, true, true) ? 0 : 1;
      ++cases;
    }
  }
  CHECK(deadlocks_of_1f1b > cases / 2);
}

TEST_CASE("a deadlock report names the waiting instructions, and the checker finds the cycle") {
  ScheduleSpec spec;
  spec.shape = {ScheduleKind::interleaved, 2, 2, 2};
  const ScheduleCosts costs = one_second_each(spec.shape, 50_ms);
  const Schedule local = local_lowering(build_schedule(spec, costs), true);
  const Timeline timeline = simulate(local, costs);
  REQUIRE_FALSE(timeline.complete());
  CHECK(timeline.deadlock[0].what.find("waits for") != std::string::npos);
  CHECK(timeline.spans.size() < local.programs[0].instructions.size() * 2);
  bool circle = false;
  for (const ScheduleFault& fault : check_schedule(local)) {
    circle = circle || fault.kind == ScheduleFaultKind::cycle;
  }
  CHECK(circle);
}

TEST_CASE("lowered schedules also run with all communications of a rank one at a time") {
  // NCCL may serialize its kernels: every communication runs on one queue.
  Numbers draw(7);
  for (const PipelineShape& shape : shapes(6, 3, {1, 3, 8})) {
    const ScheduleCosts costs = random_costs(shape, draw);
    Schedule schedule = build_schedule(random_spec(shape, draw), costs);
    for (Program& program : schedule.programs) {
      for (Instruction& i : program.instructions) {
        if (is_communication(i.op)) i.queue = Queue::reduce;
      }
    }
    INFO(name_of(shape));
    REQUIRE(simulate(schedule, costs).complete());
  }
}

TEST_CASE("time that compute queues do not use is idle") {
  Timeline timeline;
  CHECK(idle_share(timeline, 1) == 0);
  timeline.spans = {{0, 0, Queue::compute, Seconds{0}, Seconds{2}},
                    {0, 1, Queue::reduce, Seconds{2}, Seconds{4}},
                    {1, 0, Queue::compute, Seconds{1}, Seconds{2}}};
  timeline.makespan = Seconds{4};
  CHECK(idle_share(timeline, 2) == Approx(1 - 3.0 / 8));
}
