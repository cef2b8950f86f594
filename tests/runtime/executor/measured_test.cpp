// Over 400 lines because every part of a measured step has its case, all on the same few timelines.
// Measured parts in virtual time against numbers worked out by hand and the closed forms.
#include "runtime/executor/measured.hpp"

#include "runtime/executor/measured_stages.hpp"

#include "tests/runtime/executor/executor_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

CostBreakdown parts_of_run(const ScheduleSpec& spec, const ScheduleCosts& costs, int dp = 1,
                           const VirtualDevice::TakesWithin& within = {}) {
  const Schedule schedule = build_schedule(spec, costs);
  const ProcessGrid grid = grid_of(schedule, 1, dp);
  const auto times = measured_steps(schedule, grid, takes_of(schedule, grid, costs), within);
  const MeasuredStep step = measured_step(schedule, times);
  Seconds last;
  for (const StepTimes& rank : times) last = std::max(last, rank.end - rank.begin);
  CHECK(step.parts.total().in(1_s) == Approx(last.in(1_s)));
  CHECK(step.stages.size() == static_cast<std::size_t>(schedule.ranks));
  for (const StageTime& stage : step.stages) CHECK(stage.total().in(1_s) == Approx(last.in(1_s)));
  return step.parts;
}

/// Forward t/3, input gradient t/3, weight gradient t/3 of a stage that takes `t` over its chunks.
ScheduleCosts thirds(const PipelineShape& s, double t, Seconds hop = {}) {
  const Seconds part{t / 3 / s.chunks};
  return ScheduleCosts::uniform(
      s.ranks, s.chunks,
      {.forward = part, .backward_input = part, .backward_weight = part, .recompute = {}}, hop);
}

TEST_CASE("without communication the bubble is the closed form, and the rest is compute") {
  using enum ScheduleKind;
  for (int p = 1; p <= 5; ++p) {
    for (const int m : {p, 2 * p, 4 * p}) {
      const auto bubble = [&](ScheduleKind kind, int v) {
        CAPTURE(name_of(kind), p, m, v);
        const PipelineShape shape{.kind = kind, .ranks = p, .chunks = v, .microbatches = m};
        ScheduleSpec spec;
        spec.shape = shape;
        const CostBreakdown parts = parts_of_run(spec, thirds(shape, 6));
        CHECK(parts.compute.in(1_s) == Approx(6.0 * m));
        CHECK(parts.total().in(1_s) == Approx((parts.compute + parts.bubble()).in(1_s)));
        CHECK(parts.imbalance.in(1_s) == Approx(0).margin(1e-9));
        return parts.bubble().in(1_s);
      };
      CHECK(bubble(gpipe, 1) == Approx(6.0 * (p - 1)));
      CHECK(bubble(one_f_one_b, 1) == Approx(6.0 * (p - 1)));
      CHECK(bubble(zero_bubble_h1, 1) == Approx(2.0 * (p - 1)));
      if (p > 1) {
        CHECK(bubble(interleaved, 2) == Approx(3.0 * (p - 1)));
        CHECK(bubble(interleaved, 3) == Approx(2.0 * (p - 1)));
      }
    }
  }
}

TEST_CASE("transfers that a rank waits for are exposed, the waiting before them is bubble") {
  // GPipe, two ranks, one microbatch, hop 1: rank 0 runs F 0-1, send 1-2; rank 1 F 2-3, B 3-5, send
  // 5-6; rank 0 B 6-8. Between F and B rank 0 waits 1-5 and sees the transfer 5-6. The forward
  // transfer 1-2 is on the other queue: waiting for what is not yet sent. Rank 1 waits 0-1, sees
  // the transfer 1-2, and has nothing to do 5-8: the transfer 5-6 is rank 0's to wait for.
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .ranks = 2, .microbatches = 1};
  ScheduleSpec spec;
  spec.shape = shape;
  const CostBreakdown parts = parts_of_run(spec, one_second_each(shape, 1_s));
  CHECK(parts.compute == 3_s);
  CHECK(parts.exposed[Axis::pp] == 1_s);
  CHECK(parts.bubble() == 4_s);
  CHECK(parts.imbalance == Seconds{});
  CHECK(parts.total() == 8_s);

  const Schedule schedule = build_schedule(spec, one_second_each(shape, 1_s));
  const ProcessGrid grid = grid_of(schedule);
  const auto times =
      measured_steps(schedule, grid, takes_of(schedule, grid, one_second_each(shape, 1_s)));
  const MeasuredStep step = measured_step(schedule, times);
  for (const StageTime& stage : step.stages) {
    CHECK(stage.fill_drain == 4_s);
    CHECK(stage.communication_wait == 1_s);
  }
}

TEST_CASE("loading, gathering, reducing and the end of a step have their parts") {
  // One rank, two units, buffers for one gathered unit, one microbatch: load 0-1 and gather u0 0-2;
  // zero 0-1; F u0 2-3; gather u1 3-5, F u1 5-6, B u1 6-8, gather u0 8-10, B u0 10-12; reduce u1
  // 8-11 beside it, reduce u0 12-15; step 15-20.
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .ranks = 1, .microbatches = 1};
  ScheduleSpec spec;
  spec.shape = shape;
  spec.units = 2;
  spec.reduce_gradients = spec.reduce_every_microbatch = true;
  spec.gather_slots = 1;
  ScheduleCosts costs = ScheduleCosts::uniform(
      1, 1, {.forward = 2_s, .backward_input = 2_s, .backward_weight = 2_s, .recompute = {}});
  costs.ranks = {{.load_batch = 1_s,
                  .gather_unit = 2_s,
                  .reduce_bucket = 3_s,
                  .optimizer = 5_s,
                  .zero_gradients = 1_s}};
  const auto within = [](int, const Instruction& i) {
    WithinTimes times{};
    if (i.op == Op::backward) {
      times[static_cast<std::size_t>(Within::recompute)] = Seconds{0.5};
      times[static_cast<std::size_t>(Within::tp_comm)] = Seconds{0.25};
    }
    return times;
  };
  const CostBreakdown parts = parts_of_run(spec, costs, 2, within);
  CHECK(parts.compute == Seconds{1 + 1 + 2 + 2 - 2 * 0.75});
  CHECK(parts.recompute == 1_s);
  CHECK(parts.exposed[Axis::tp] == Seconds{0.5});
  CHECK(parts.exposed[Axis::dp] == Seconds{1 + 2 + 2 + 3});
  CHECK(parts.optimizer == 6_s);
  CHECK(parts.bubble() + parts.data + parts.host == Seconds{});
  CHECK(parts.total() == 20_s);

  costs.ranks[0].load_batch = 4_s;  // now it ends after the gather
  const CostBreakdown slow = parts_of_run(spec, costs, 2, within);
  CHECK(slow.data == 3_s);
  CHECK(slow.exposed[Axis::dp] == Seconds{2 + 2 + 3});
}

TEST_CASE("the wait for updated parameters is after the last instruction") {
  const PipelineShape shape{.kind = ScheduleKind::one_f_one_b, .ranks = 2, .microbatches = 2};
  ScheduleSpec spec;
  spec.shape = shape;
  spec.reduce_gradients = spec.gather_updated = spec.clip = true;
  ScheduleCosts costs = one_second_each(shape);
  costs.ranks.assign(2, {.reduce_bucket = 2_s,
                         .norm_reduce = 1_s,
                         .clip = 1_s,
                         .optimizer = 3_s,
                         .gather_updated = 4_s});
  // F, F, B, B of three times 2 seconds and a stage more: 9. Rank 1 is over at 8, but the norm is
  // there at 9 + 2; both end at 9 + 2 + 1 + 1 + 3 + 4, rank 0 counts.
  const CostBreakdown parts = parts_of_run(spec, costs, 2);
  CHECK(parts.compute == 6_s);
  CHECK(parts.bubble() == 3_s);
  CHECK(parts.exposed[Axis::dp] == 6_s);
  CHECK(parts.optimizer == 5_s);  // with the norm
  CHECK(parts.total() == 20_s);

  const Schedule schedule = build_schedule(spec, costs);
  const ProcessGrid grid = grid_of(schedule);
  const auto times = measured_steps(schedule, grid, takes_of(schedule, grid, costs));
  const CostBreakdown other = step_parts_of(schedule.programs[1], times[1]);
  CHECK(other.bubble() == 3_s);  // 1 before its first forward, 2 until rank 0 joins the norm
  CHECK(other.total() == 20_s);
}

/// Times of a step of data-parallel ranks without a pipeline, written by hand: F 0-1, B 1-3,
/// `reduce`, `norm`, then clip and step of one second each.
StepTimes step_with(const Program& program, InstructionSpan reduce, InstructionSpan norm) {
  StepTimes times;
  times.spans.resize(program.instructions.size());
  Seconds at = norm.end;
  for (const Instruction& i : program.instructions) {
    InstructionSpan& span = times.spans[i.id];
    switch (i.op) {
      case Op::forward: span = {.start = 0_s, .end = 1_s}; break;
      case Op::backward: span = {.start = 1_s, .end = 3_s}; break;
      case Op::reduce_gradients: span = reduce; break;
      case Op::norm_reduce: span = norm; break;
      case Op::load_batch:
      case Op::zero_gradients: break;
      default: span = {.start = at, .end = at + 1_s}; at += 1_s;
    }
    times.end = std::max(times.end, span.end);
  }
  return times;
}

Schedule without_pipeline(bool reduces) {
  ScheduleSpec spec;
  spec.shape = {.kind = ScheduleKind::gpipe, .ranks = 1, .microbatches = 1};
  spec.reduce_gradients = reduces;
  spec.clip = true;
  return build_schedule(spec, one_second_each(spec.shape));
}

WithinTimes spent_on(Within part, Seconds time) {
  WithinTimes within{};
  within[static_cast<std::size_t>(part)] = time;
  return within;
}

TEST_CASE("the norm of one rank is optimizer, and nothing is communication or bubble") {
  const Schedule schedule = without_pipeline(false);
  const Program& program = schedule.programs[0];
  const InstructionSpan norm{.start = 3_s, .end = 5_s, .within = spent_on(Within::norm, 2_s)};
  const CostBreakdown parts = step_parts_of(program, step_with(program, {}, norm));
  CHECK(parts.compute == 3_s);
  CHECK(parts.optimizer == 2_s + 2_s);
  CHECK(parts.exposed[Axis::dp] == Seconds{});
  CHECK(parts.bubble() == Seconds{});
  CHECK(parts.total() == 7_s);
}

TEST_CASE("without a pipeline there is no bubble: waiting counts as the operation it happens in") {
  // The reduction is taken up at 3, its peers come at 5, it moves data until 6; the norm's own pass
  // 6-8, its peers arrive at 9, it ends at 9.5.
  const Schedule schedule = without_pipeline(true);
  const Program& program = schedule.programs[0];
  const InstructionSpan reduce{.start = 5_s, .end = 6_s, .waited = 2_s};
  const InstructionSpan norm{
      .start = 9_s, .end = Seconds{9.5}, .within = spent_on(Within::norm, 2_s), .waited = 3_s};
  const CostBreakdown parts = step_parts_of(program, step_with(program, reduce, norm));
  CHECK(parts.bubble() == Seconds{});
  CHECK(parts.compute == 3_s);
  CHECK(parts.exposed[Axis::dp] == 3_s);
  CHECK(parts.optimizer == Seconds{3.5 + 2});
  CHECK(parts.host == Seconds{});
  CHECK(parts.total() == Seconds{11.5});
}

TEST_CASE("waking up after a gather of ZeRO-3 counts as that gather, not as host") {
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .ranks = 1, .microbatches = 1};
  ScheduleSpec spec;
  spec.shape = shape;
  spec.reduce_gradients = spec.reduce_every_microbatch = true;
  spec.gather_slots = 1;
  const Schedule schedule = build_schedule(spec, one_second_each(shape));
  const Program& program = schedule.programs[0];
  StepTimes times;
  times.spans.resize(program.instructions.size());
  for (const Instruction& i : program.instructions) {
    InstructionSpan& span = times.spans[i.id];
    switch (i.op) {
      case Op::zero_gradients: span = {.start = 0_s, .end = 1_s}; break;
      case Op::gather_parameters: span = {.start = 0_s, .end = 2_s}; break;
      case Op::forward: span = {.start = Seconds{2.25}, .end = 3_s}; break;
      case Op::backward:
        span = {.start = 3_s, .end = 5_s, .within = spent_on(Within::dp_comm, Seconds{0.5})};
        break;
      case Op::reduce_gradients: span = {.start = 5_s, .end = 6_s}; break;
      case Op::optimizer_step: span = {.start = 6_s, .end = 7_s}; break;
      default: break;
    }
  }
  times.end = 7_s;
  const CostBreakdown parts = step_parts_of(program, times);
  CHECK(parts.host == Seconds{});
  CHECK(parts.bubble() == Seconds{});
  CHECK(parts.total() == 7_s);
  CHECK(parts.exposed[Axis::dp] ==
        Seconds{1 + 0.25 + 0.5 + 1});  // gather, waking up, a gradient buffer, reduce
}

TEST_CASE("an operation that ended just before, not yet reported by its thread, was waited for") {
  ScheduleSpec spec;
  spec.shape = {.kind = ScheduleKind::gpipe, .ranks = 1, .microbatches = 1};
  spec.clip = true;
  const Schedule schedule = build_schedule(spec, one_second_each(spec.shape));
  const Program& program = schedule.programs[0];
  const auto parts_with = [&](double loaded) {
    StepTimes times;
    times.spans.resize(program.instructions.size());
    Seconds at = 10_s;  // zero is over, the forward starts at 12
    for (const Instruction& i : program.instructions) {
      InstructionSpan& span = times.spans[i.id];
      if (i.op == Op::zero_gradients) span = {.start = 0_s, .end = at};
      if (i.op == Op::load_batch) span = {.start = 0_s, .end = Seconds{loaded}};
      if (i.op == Op::zero_gradients || i.op == Op::load_batch) continue;
      if (i.op == Op::forward) at += 2_s;
      span = {.start = at, .end = at + 1_s};
      at = span.end;
    }
    times.end = at;
    return step_parts_of(program, times);
  };
  CHECK(parts_with(9).data == 2_s);
  CHECK(parts_with(9).host == Seconds{});
  CHECK(parts_with(7).data == Seconds{});
  CHECK(parts_with(7).host == 2_s);
}

TEST_CASE("waiting for a rank without a core is compute, as in the prediction") {
  // Two tensor-parallel ranks on one core. In the backward the first computes a second and waits a
  // second for the other, which has no core meanwhile; then both take 0.125 s to add up, of which
  // one waits 0.0625 s for a core.
  const Schedule schedule = without_pipeline(false);
  const Program& program = schedule.programs[0];
  const InstructionSpan norm{.start = 3_s, .end = 4_s};
  StepTimes first = step_with(program, {}, norm);
  StepTimes second = first;
  second.rank = 1;
  std::size_t backward = 0;
  while (program.instructions[backward].op != Op::backward) ++backward;
  const auto set = [&](StepTimes& rank, Within part, double seconds) {
    rank.spans[backward].within[static_cast<std::size_t>(part)] = Seconds{seconds};
  };
  set(first, Within::tp_comm, 1.125);
  set(first, Within::tp_peers, 1);
  set(first, Within::tp_without_core, 0.0625);
  set(second, Within::tp_comm, 0.125);
  set(second, Within::kernels_without_core, 0.75);
  const StepTimes bare = first;
  CHECK(step_parts_of(program, bare).exposed[Axis::tp] == Seconds{1.125});
  StepTimes* const peers[] = {&first, &second};
  count_turns_as_compute(peers);
  const CostBreakdown parts = step_parts_of(program, first);
  CHECK(parts.exposed[Axis::tp] == Seconds{1.125 - 0.75 - 0.0625});
  CHECK(parts.compute == Seconds{3 - 0.3125});
  CHECK(parts.total() == step_parts_of(program, bare).total());
  CHECK(step_parts_of(program, second).exposed[Axis::tp] == Seconds{0.125});
}

TEST_CASE("waits in groups of several kinds share the time for which another rank had no core") {
  // A rank with 1 s of each kind of communication, in which it waits 0.25, 0 and 0.75 s for others;
  // the longest that one of them is without a core is 0.5 s. The rank itself is without one for
  // 0.125 s of its context-parallel transfer.
  const Schedule schedule = without_pipeline(false);
  const Program& program = schedule.programs[0];
  StepTimes first = step_with(program, {}, {.start = 3_s, .end = 4_s});
  StepTimes second = first;
  StepTimes third = first;
  second.rank = 1;
  third.rank = 2;
  std::size_t backward = 0;
  while (program.instructions[backward].op != Op::backward) ++backward;
  const auto of = [&](StepTimes& rank, Within part) -> Seconds& {
    return rank.spans[backward].within[static_cast<std::size_t>(part)];
  };
  for (const PassComm& each : kPassComms) of(first, each.comm) = 1_s;
  of(first, Within::tp_peers) = Seconds{0.25};
  of(first, Within::ep_peers) = Seconds{0.75};
  of(first, Within::cp_without_core) = Seconds{0.125};
  of(second, Within::kernels_without_core) = Seconds{0.25};
  of(second, Within::ep_without_core) = Seconds{0.25};
  of(third, Within::kernels_without_core) = Seconds{0.375};
  StepTimes* const peers[] = {&first, &second, &third};
  count_turns_as_compute(peers);
  CHECK(of(first, Within::tp_comm) == Seconds{1 - 0.125});
  CHECK(of(first, Within::cp_comm) == Seconds{1 - 0.125});
  CHECK(of(first, Within::ep_comm) == Seconds{1 - 0.375});
}

TEST_CASE("a pipeline rank's wait for one without a core is core sharing, not bubble") {
  // As above: GPipe, two ranks, one microbatch, hop 1; rank 0 waits 1-5 for rank 1, which in its
  // backward 3-5 has no core for 1.5 s.
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .ranks = 2, .microbatches = 1};
  ScheduleSpec spec;
  spec.shape = shape;
  const ScheduleCosts costs = one_second_each(shape, 1_s);
  const Schedule schedule = build_schedule(spec, costs);
  const ProcessGrid grid = grid_of(schedule);
  const auto within = [](int rank, const Instruction& i) {
    return rank == 1 && i.op == Op::backward ? spent_on(Within::kernels_without_core, Seconds{1.5})
                                             : WithinTimes{};
  };
  const auto times = measured_steps(schedule, grid, takes_of(schedule, grid, costs), within);
  const CostBreakdown parts = step_parts_of(schedule.programs[0], times[0], times);
  CHECK(parts.bubble() == Seconds{4 - 1.5});
  CHECK(parts.compute == Seconds{3 + 1.5});
  CHECK(parts.exposed[Axis::pp] == 1_s);
}

/// 1F1B of six microbatches over four stages that take `takes` seconds each.
MeasuredStep step_of_stages(const std::vector<double>& takes) {
  const PipelineShape shape{.kind = ScheduleKind::one_f_one_b, .ranks = 4, .microbatches = 6};
  ScheduleSpec spec;
  spec.shape = shape;
  ScheduleCosts costs = thirds(shape, 3);
  for (std::size_t s = 0; s < takes.size(); ++s) {
    const Seconds part{takes[s] / 3};
    costs.stages[s] = {
        .forward = part, .backward_input = part, .backward_weight = part, .recompute = {}};
  }
  const Schedule schedule = build_schedule(spec, costs);
  const ProcessGrid grid = grid_of(schedule, 1, 2);
  const auto times = measured_steps(schedule, grid, takes_of(schedule, grid, costs));
  const MeasuredStep step = measured_step(schedule, times);
  for (std::size_t s = 0; s < takes.size(); ++s) {
    CAPTURE(s);
    CHECK(step.stages[s].compute.in(1_s) == Approx(6 * takes[s]));
    CHECK(step.stages[s].communication_wait.in(1_s) == Approx(0).margin(1e-9));
    CHECK(step.stages[s].total().in(1_s) == Approx(step.parts.total().in(1_s)));
  }
  return step;
}

TEST_CASE("waiting for a last stage with more work is imbalance") {
  // Σt + (m − 1)·max t: stage s fills and drains for Σt − t_s and waits (m − 1)·(max t − t_s) for
  // the slowest.
  const std::vector<double> takes{3, 3, 3, 9};
  const MeasuredStep step = step_of_stages(takes);
  CHECK(step.parts.total().in(1_s) == Approx(18 + 5 * 9));
  for (std::size_t s = 0; s < takes.size(); ++s) {
    CAPTURE(s);
    CHECK(step.stages[s].fill_drain.in(1_s) == Approx(18 - takes[s]));
    CHECK(step.stages[s].imbalance.in(1_s) == Approx(5 * (9 - takes[s])).margin(1e-9));
  }
  CHECK(step.parts.fill_drain.in(1_s) == Approx(3 * 15 / 4. + 9 / 4.));
  CHECK(step.parts.imbalance.in(1_s) == Approx(0.75 * 5 * 6));
}

TEST_CASE("a slow stage with forwards to do while the pipeline fills waits less") {
  // Stage 1 gets its first microbatch at 1, is busy for 6·9 s, because its three forwards take
  // longer than the way of the first microbatch through the stages behind it, and stage 0 has 2 s
  // of backward left: 57 s, not 63.
  const std::vector<double> takes{3, 9, 3, 3};
  const MeasuredStep step = step_of_stages(takes);
  CHECK(step.parts.total().in(1_s) == Approx(57));
  CHECK(step.stages[1].fill_drain.in(1_s) == Approx(3));
  CHECK(step.stages[1].imbalance.in(1_s) == Approx(0).margin(1e-9));
  for (const std::size_t s : {0U, 2U, 3U}) {
    CAPTURE(s);
    CHECK(step.stages[s].fill_drain.in(1_s) == Approx(15));
    CHECK(step.stages[s].imbalance.in(1_s) == Approx(57 - 18 - 15));
  }
}

TEST_CASE("compute, reduction and waiting of a stage are means over its ranks") {
  const PipelineShape shape{.kind = ScheduleKind::one_f_one_b, .ranks = 2, .microbatches = 4};
  ScheduleSpec spec;
  spec.shape = shape;
  spec.reduce_gradients = spec.clip = true;
  ScheduleCosts costs = one_second_each(shape, Seconds{0.125});
  costs.ranks.assign(2, {.reduce_bucket = 2_s, .norm_reduce = 1_s, .optimizer = 3_s});
  costs.ranks[1].optimizer = 1_s;
  const Schedule schedule = build_schedule(spec, costs);
  const ProcessGrid grid = grid_of(schedule, 1, 2);
  // The second data-parallel rank of each stage recomputes what the first one saves.
  const auto within = [&](int rank, const Instruction& i) {
    return grid.coordinates(rank).dp == 1 && i.op == Op::backward
               ? spent_on(Within::recompute, Seconds{0.5})
               : WithinTimes{};
  };
  const auto times = measured_steps(schedule, grid, takes_of(schedule, grid, costs), within);
  const MeasuredStep step = measured_step(schedule, times);
  CHECK(step.stages[0].recompute == 1_s);  // of 2 in one of two ranks
  CHECK(step.stages[0].compute == Seconds{12 - 1});
  CHECK(step.stages[0].optimizer == 4_s);
  CHECK(step.stages[1].optimizer == 2_s);
  CHECK(step.stages[0].communication_wait >= 2_s);
  CHECK(step.parts.optimizer == 3_s);
  CHECK(step.stages[0].total().in(1_s) == Approx(step.parts.total().in(1_s)));
  CHECK(step.stages[1].total().in(1_s) == Approx(step.parts.total().in(1_s)));
  // The ends of the stages are imbalance: the second has two seconds less to do.
  CHECK(step.stages[1].imbalance.in(1_s) == Approx(2));
}

TEST_CASE("an instruction that starts late although it is ready waited for its host") {
  ScheduleSpec spec;
  spec.shape = {.kind = ScheduleKind::gpipe, .ranks = 1, .microbatches = 1};
  const Schedule schedule = build_schedule(spec, one_second_each(spec.shape));
  const Program& program = schedule.programs[0];
  StepTimes times;
  times.spans.resize(program.instructions.size());
  std::vector<Instruction> in_turn = program.instructions;
  REQUIRE(in_turn[1].op == Op::zero_gradients);
  std::swap(in_turn[0], in_turn[1]);  // the load is the last thing that the forward waits for
  Seconds at;
  for (const Instruction& i : in_turn) {
    at += 1_s;  // late
    times.spans[i.id] = {.start = at, .end = at + 2_s};
    at += 2_s;
  }
  times.end = at + 1_s;
  const CostBreakdown parts = step_parts_of(program, times);
  CHECK(parts.total() == times.end);
  CHECK(parts.data == 4_s);  // and the first forward starts late behind its load
  CHECK(parts.host == 4_s);
  CHECK(parts.optimizer == 4_s);
  CHECK(parts.compute == 4_s);
}

}  // namespace
}  // namespace echelon
