#include "core/schedule/stage_waits.hpp"

#include <utility>

#include "core/plan/cost.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Forwards take a third and backwards two thirds of the time of each chunk; received messages take
/// `hop`.
struct Step {
  Schedule schedule;
  InstructionTime time;
};

Step step_of(ScheduleKind kind, std::vector<std::vector<Seconds>> chunks, int microbatches,
             Seconds hop = {}) {
  Step out;
  Schedule& s = out.schedule;
  s.kind = kind;
  s.ranks = static_cast<std::int32_t>(chunks.size());
  s.chunks = static_cast<std::int32_t>(chunks.front().size());
  s.microbatches = microbatches;
  s.programs.resize(chunks.size());
  for (int rank = 0; rank < s.ranks; ++rank) {
    auto& list = s.programs[static_cast<std::size_t>(rank)].instructions;
    for (int chunk = 0; chunk < s.chunks; ++chunk) {
      for (int m = 0; m < microbatches; ++m) {
        for (const Op op : {Op::recv_activation, Op::forward, Op::recv_gradient, Op::backward}) {
          Instruction i;
          i.op = op;
          i.chunk = chunk;
          i.microbatch = m;
          list.push_back(i);
        }
      }
    }
  }
  out.time = [chunks = std::move(chunks), hop](int rank, const Instruction& i) {
    if (i.op != Op::forward && i.op != Op::backward) return hop;
    const Seconds all = chunks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(*i.chunk)];
    return i.op == Op::forward ? all / 3 : 2 * all / 3;
  };
  return out;
}

/// The waiting times of all ranks in a step of length `whole`.
std::vector<StageWaits> waits(const Step& step, Seconds whole, std::vector<Seconds> busy) {
  std::vector<RankWaiting> ranks;
  for (const Seconds each : busy) ranks.push_back({.waiting = whole - each, .ending = {}});
  return divide_waiting(step.schedule, step.time, ranks);
}

}  // namespace

TEST_CASE("equal stages wait only for what the schedule imposes") {
  // (m + p - 1) t and m t + (p - 1) t / v.
  const Step plain = step_of(ScheduleKind::one_f_one_b, {{3_s}, {3_s}, {3_s}, {3_s}}, 8);
  for (const StageWaits& each : waits(plain, 33_s, {24_s, 24_s, 24_s, 24_s})) {
    CHECK(each.fill_drain.in(1_s) == Approx(9));
    CHECK(each.imbalance.in(1_s) == Approx(0).margin(1e-9));
    CHECK(each.messages.in(1_s) == Approx(0).margin(1e-9));
  }
  const Step chunked = step_of(ScheduleKind::interleaved, {{2_s, 1_s}, {2_s, 1_s}}, 4);
  for (const StageWaits& each : waits(chunked, Seconds{13.5}, {12_s, 12_s})) {
    CHECK(each.fill_drain.in(1_s) == Approx(1.5));
    CHECK(each.imbalance.in(1_s) == Approx(0).margin(1e-9));
  }
}

TEST_CASE("waiting for slower stages is imbalance, and the slowest stage has none") {
  const Step step = step_of(ScheduleKind::one_f_one_b, {{14_s}, {6_s}, {6_s}, {6_s}}, 20);
  // The sum plus 19 times the slowest: 298 s; equal stages of 8 s take 184 s.
  const auto found = waits(step, 298_s, {280_s, 120_s, 120_s, 120_s});
  CHECK(found[0].fill_drain.in(1_s) == Approx(18));
  CHECK(found[0].imbalance.in(1_s) == Approx(0).margin(1e-9));
  Seconds mean;
  for (const StageWaits& each : found) mean += each.imbalance / 4;
  CHECK(mean.in(1_s) == Approx(298 - 184));
  CHECK(found[3].fill_drain.in(1_s) == Approx(26));
  CHECK(found[3].imbalance.in(1_s) == Approx(19 * 8));
}

TEST_CASE("equal stages that wait longer than the schedule imposes wait for messages") {
  const Step step = step_of(ScheduleKind::interleaved, {{1_s, 1_s}, {1_s, 1_s}}, 2, 1_s);
  const auto found = waits(step, 12_s, {4_s, 4_s});
  // (p - 1) t / v, plus the one of two messages that each rank does not receive.
  CHECK(found[0].fill_drain.in(1_s) == Approx(2));
  CHECK(found[0].imbalance == Seconds{});
  CHECK(found[0].messages.in(1_s) == Approx(6));
}

TEST_CASE("chunks that differ between ranks cause imbalance even if the ranks have equal totals") {
  const Step step = step_of(ScheduleKind::interleaved, {{3_s, 1_s}, {1_s, 3_s}}, 2);
  const auto found = waits(step, 14_s, {8_s, 8_s});
  CHECK(found[0].fill_drain.in(1_s) == Approx(2));
  CHECK(found[0].imbalance.in(1_s) == Approx(4));
}

TEST_CASE("a stage with a longer reduction is a slower stage") {
  const Step step = step_of(ScheduleKind::one_f_one_b, {{1_s}, {1_s}}, 4);
  const std::vector<RankWaiting> ranks = {{.waiting = 1_s, .ending = 3_s},
                                          {.waiting = 3_s, .ending = 1_s}};
  const auto found = divide_waiting(step.schedule, step.time, ranks);
  CHECK(found[0].imbalance == Seconds{});
  CHECK(found[1].fill_drain.in(1_s) == Approx(1));
  CHECK(found[1].imbalance.in(1_s) == Approx(2));
}

TEST_CASE("the parts sum to the waiting time, and a pipeline of one rank does not wait") {
  for (const Seconds waiting : {0_s, 1_s, 5_s, 50_s}) {
    for (const Seconds imposed : {0_s, 3_s}) {
      const StageWaits each = divide_waiting(waiting, imposed, 4_s);
      CHECK(each.fill_drain + each.imbalance + each.messages == waiting);
      CHECK(each.fill_drain <= imposed);
      CHECK(each.imbalance <= 4_s);
      CHECK(each.messages >= Seconds{});
    }
  }
  const Step single = step_of(ScheduleKind::one_f_one_b, {{1_s}}, 4);
  const std::vector<RankWaiting> ranks = {{.waiting = 2_s, .ending = 1_s}};
  CHECK(divide_waiting(single.schedule, single.time, ranks).front() == StageWaits{});
}

TEST_CASE("the times of a stage are the parts of its step") {
  CostBreakdown parts;
  double value = 1;
  double sum = 0;
  for (const StepPart& part : kStepParts) {
    part.of(parts) = Seconds{value *= 2};
    sum += value;
  }
  CHECK(parts.total() == Seconds{sum});
  const StageTime stage = stage_time(parts);
  CHECK(stage.total() == parts.total());
  CHECK(stage.fill_drain + stage.imbalance == parts.bubble());
  CHECK(stage.communication_wait == Seconds{8 + 16 + 32 + 64 + 128});
}
