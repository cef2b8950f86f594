// Closed forms agree with the simulated schedule where both are exact.
#include <cmath>

#include "costmodel/schedule/makespan.hpp"
#include "costmodel/time/pipeline.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

Seconds simulated(const PipelineShape& shape, const ScheduleCosts& costs) {
  ScheduleSpec spec;
  spec.shape = shape;
  return simulate(build_schedule(spec, costs), costs).makespan;
}

/// Bounds of 1F1B with unequal stages and hops of c: docs/schedules.md, "Bounds".
struct Bounds {
  double low = 0;
  double high = 0;
};
Bounds bounds(const ScheduleCosts& costs, int m, double c) {
  const std::size_t p = costs.stages.size();
  const auto f = [&](std::size_t j) { return costs.stages[j].forward.in(1_s); };
  const auto b = [&](std::size_t j) { return costs.stages[j].backward().in(1_s); };
  double sum = 0;
  double slowest = 0;
  for (std::size_t j = 0; j < p; ++j) {
    sum += f(j) + b(j);
    slowest = std::max(slowest, f(j) + b(j));
  }
  Bounds out;
  out.high = sum + (m - 1) * (slowest + 2 * c) + 2 * static_cast<double>(p - 1) * c;
  double before = 0;
  for (std::size_t i = 0; i < p; ++i) {
    const double hops = static_cast<double>(p - 1 - i);
    double round_trip = 2 * hops * c;
    for (std::size_t j = i; j < p; ++j) round_trip += f(j) + (j > i ? b(j) : 0);
    const double ahead = std::min<double>(m, static_cast<double>(p - i));
    const double stall = std::max(0.0, round_trip - ahead * f(i));
    out.low =
        std::max(out.low, before + 2 * static_cast<double>(i) * c + stall + m * (f(i) + b(i)));
    before += f(i) + b(i);
  }
  return out;
}

/// Stages around 3 seconds, up to 80 % uneven.
ScheduleCosts uneven(const PipelineShape& shape, double c, Numbers& draw) {
  const double spread = draw.between(0, 0.8);
  ScheduleCosts costs = one_second_each(shape, Seconds{c});
  for (ChunkTimes& t : costs.stages) {
    t.forward = Seconds{1 + spread * draw.between(-1, 1)};
    t.backward_input = Seconds{1 + spread * draw.between(-1, 1)};
  }
  return costs;
}

}  // namespace

TEST_CASE("equal stages take exactly the time of the closed form") {
  for (const PipelineShape& shape : shapes(8, 4, {1, 2, 3, 5, 8, 16, 21})) {
    const ScheduleCosts costs = one_second_each(shape);
    // 1F1B is exact for any ratio of forward and backward; ZB-H1 for equal thirds.
    const std::vector<Seconds> stages(static_cast<std::size_t>(shape.ranks), 3_s * shape.chunks);
    const double expected =
        pipeline_time(shape.kind, stages, shape.chunks, shape.microbatches).in(1_s);
    INFO(name_of(shape));
    REQUIRE(simulated(shape, costs).in(1_s) == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("equal stages of sixteen ranks take exactly the time of the closed form") {
  for (const PipelineShape& shape : {PipelineShape{ScheduleKind::gpipe, 16, 1, 40},
                                     PipelineShape{ScheduleKind::one_f_one_b, 16, 1, 40},
                                     PipelineShape{ScheduleKind::interleaved, 16, 3, 48},
                                     PipelineShape{ScheduleKind::zero_bubble_h1, 16, 1, 40},
                                     PipelineShape{ScheduleKind::zero_bubble_h1, 16, 1, 7}}) {
    const std::vector<Seconds> stages(16, 3_s * shape.chunks);
    INFO(name_of(shape));
    CHECK(simulated(shape, one_second_each(shape)).in(1_s) ==
          Approx(pipeline_time(shape.kind, stages, shape.chunks, shape.microbatches).in(1_s)));
  }
}

TEST_CASE("forward and backward of 1F1B and GPipe may differ: only their sum counts") {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    const PipelineShape shape{kind, 5, 1, 9};
    const ScheduleCosts costs = ScheduleCosts::uniform(
        5, 1, {.forward = 1_s, .backward_input = 2_s, .backward_weight = 1_s, .recompute = 1_s});
    CHECK(simulated(shape, costs).in(1_s) == Approx((9 + 5 - 1) * 5));
  }
}

TEST_CASE("ZB-H1 leaves a third of the bubble of 1F1B") {
  for (const int p : {2, 4, 8}) {
    const PipelineShape shape{ScheduleKind::zero_bubble_h1, p, 1, 4 * p};
    const double bubble = simulated(shape, one_second_each(shape)).in(1_s) - 3.0 * 4 * p;
    CHECK(bubble == Approx(p - 1));
  }
}

TEST_CASE("unequal 1F1B stages lie between the bounds, whatever the time of a hop") {
  Numbers draw(3);
  for (int round = 0; round < 4000; ++round) {
    const PipelineShape shape{ScheduleKind::one_f_one_b, 1 + draw.upto(9), 1, 1 + draw.upto(30)};
    const double c = draw.between(0, round % 2 == 0 ? 4 : 0.2);
    const ScheduleCosts costs = uneven(shape, c, draw);
    const double time = simulate_makespan(shape, costs, Messages::passing).in(1_s);
    const Bounds expected = bounds(costs, shape.microbatches, c);
    INFO(name_of(shape) << " c " << c);
    REQUIRE(time >= expected.low * (1 - 1e-12));
    REQUIRE(time <= expected.high * (1 + 1e-12));
  }
}

TEST_CASE("one message at a time costs at most two more hops per microbatch") {
  // The lower bound holds unchanged. The upper one holds for hops of up to a tenth of a stage: a
  // send may queue behind a receive in each direction, once per microbatch.
  Numbers draw(8);
  for (int round = 0; round < 4000; ++round) {
    const PipelineShape shape{ScheduleKind::one_f_one_b, 1 + draw.upto(9), 1, 1 + draw.upto(30)};
    const double c = draw.between(0, 0.3);
    const ScheduleCosts costs = uneven(shape, c, draw);
    const double time = simulate_makespan(shape, costs).in(1_s);
    const Bounds expected = bounds(costs, shape.microbatches, c);
    INFO(name_of(shape) << " c " << c);
    REQUIRE(time >= simulate_makespan(shape, costs, Messages::passing).in(1_s));
    REQUIRE(time >= expected.low * (1 - 1e-12));
    REQUIRE(time <= (expected.high + 2 * (shape.microbatches - 1) * c) * (1 + 1e-12));
  }
}

TEST_CASE("hops of a fifth of a forward cost as much as in the prototype of the lowering") {
  using enum ScheduleKind;
  const auto slowdown = [](ScheduleKind kind, double x) {
    const int v = kind == interleaved ? 2 : 1;
    const Seconds third = 1_s / v;
    const PipelineShape shape{kind, 8, v, 32};
    const auto time = [&](Seconds hop) {
      return simulate_makespan(
          shape,
          ScheduleCosts::uniform(
              8, v, {.forward = third, .backward_input = third, .backward_weight = third}, hop));
    };
    return time(Seconds{x}) / time({});
  };
  CHECK(slowdown(one_f_one_b, 0.05) == Approx(1.029).margin(5e-4));
  CHECK(slowdown(interleaved, 0.05) == Approx(1.014).margin(5e-4));
  CHECK(slowdown(zero_bubble_h1, 0.05) == Approx(1.014).margin(5e-4));
  CHECK(slowdown(one_f_one_b, 0.2) == Approx(1.116).margin(5e-4));
  CHECK(slowdown(interleaved, 0.2) == Approx(1.057).margin(5e-4));
  CHECK(slowdown(zero_bubble_h1, 0.2) == Approx(1.054).margin(5e-4));
}

TEST_CASE("the bounds meet for equal stages without hops") {
  const PipelineShape shape{ScheduleKind::one_f_one_b, 6, 1, 20};
  const ScheduleCosts costs = one_second_each(shape);
  const Bounds expected = bounds(costs, 20, 0);
  CHECK(expected.low == Approx(expected.high));
  CHECK(expected.low == Approx(simulate_makespan(shape, costs).in(1_s)));
}
