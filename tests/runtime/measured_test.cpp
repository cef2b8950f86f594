// Measured parts in virtual time against numbers worked out by hand and the closed forms.
#include "runtime/executor/measured.hpp"

#include "tests/runtime/executor_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

CostBreakdown parts_of_run(const ScheduleSpec& spec, const ScheduleCosts& costs, int dp = 1,
                           const VirtualDevice::TakesWithin& within = {}) {
  const Schedule schedule = build_schedule(spec, costs);
  const ProcessGrid grid = grid_of(schedule, 1, dp);
  const auto times = measured_steps(schedule, grid, takes_of(schedule, grid, costs), within);
  const CostBreakdown parts = measured_parts(schedule, times);
  Seconds last;
  for (const StepTimes& rank : times) last = std::max(last, rank.end - rank.begin);
  CHECK(parts.total().in(1_s) == Approx(last.in(1_s)));
  return parts;
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

TEST_CASE("transfers that are waited for are exposed, the waiting before them is bubble") {
  // GPipe, two ranks, one microbatch, hop 1: rank 0 runs F 0-1, send 1-2; rank 1 F 2-3, B 3-5, send
  // 5-6; rank 0 B 6-8. Rank 0 is last; between F and B it waits 1-5 and sees the transfer 5-6. The
  // forward transfer 1-2 is on the other queue: waiting for what is not yet sent.
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .ranks = 2, .microbatches = 1};
  ScheduleSpec spec;
  spec.shape = shape;
  const CostBreakdown parts = parts_of_run(spec, one_second_each(shape, 1_s));
  CHECK(parts.compute == 3_s);
  CHECK(parts.pp_comm_exposed == 1_s);
  CHECK(parts.bubble() == 4_s);
  CHECK(parts.total() == 8_s);
}

TEST_CASE("loading, gathering, reducing and the end of a step have their parts") {
  // One rank, two units, slots for one gathered unit, one microbatch: load 0-1 and gather u0 0-2;
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
  CHECK(parts.tp_comm_exposed == Seconds{0.5});
  CHECK(parts.dp_comm_exposed == Seconds{1 + 2 + 2 + 3});
  CHECK(parts.optimizer == 6_s);
  CHECK(parts.bubble() + parts.data + parts.host == Seconds{});
  CHECK(parts.total() == 20_s);

  costs.ranks[0].load_batch = 4_s;  // now it ends after the gather
  const CostBreakdown slow = parts_of_run(spec, costs, 2, within);
  CHECK(slow.data == 3_s);
  CHECK(slow.dp_comm_exposed == Seconds{2 + 2 + 3});
}

TEST_CASE("updated parameters are waited for after the last instruction") {
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
  CHECK(parts.dp_comm_exposed == 7_s);
  CHECK(parts.optimizer == 4_s);
  CHECK(parts.total() == 20_s);

  const Schedule schedule = build_schedule(spec, costs);
  const ProcessGrid grid = grid_of(schedule);
  const auto times = measured_steps(schedule, grid, takes_of(schedule, grid, costs));
  const CostBreakdown other = parts_of(schedule.programs[1], times[1]);
  CHECK(other.bubble() == 3_s);  // 1 before its first forward, 2 until rank 0 joins the norm
  CHECK(other.total() == 20_s);
}

TEST_CASE("an instruction that starts late though nothing holds it up waited for its host") {
  ScheduleSpec spec;
  spec.shape = {.kind = ScheduleKind::gpipe, .ranks = 1, .microbatches = 1};
  const Schedule schedule = build_schedule(spec, one_second_each(spec.shape));
  const Program& program = schedule.programs[0];
  StepTimes times;
  times.laps.resize(program.instructions.size());
  Seconds at;
  for (const Instruction& i : program.instructions) {
    at += 1_s;  // late
    times.laps[i.id] = {.start = at, .end = at + 2_s};
    at += 2_s;
  }
  times.end = at + 1_s;
  const CostBreakdown parts = parts_of(program, times);
  CHECK(parts.total() == times.end);
  CHECK(parts.data == 3_s);
  CHECK(parts.host == 5_s);
  CHECK(parts.optimizer == 4_s);
  CHECK(parts.compute == 4_s);
}

}  // namespace
}  // namespace echelon
