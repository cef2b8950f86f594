// The fast path gives exactly the result of the full simulator.
#include "costmodel/schedule/makespan.hpp"

#include <array>

#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("the makespan without a schedule is that of the schedule, to the last bit") {
  Numbers draw(4);
  int cases = 0;
  for (const PipelineShape& shape : shapes(9, 4, {1, 2, 3, 6, 11})) {
    for (int round = 0; round < 4; ++round, ++cases) {
      ScheduleCosts costs =
          round < 3 ? one_second_each(shape, Seconds{0.1 * round}) : random_costs(shape, draw);
      costs.ranks.clear();
      costs = on_exact_grid(costs, shape.chunks, shape.microbatches);
      ScheduleSpec spec;
      spec.shape = shape;
      INFO(name_of(shape) << " round " << round);
      REQUIRE(simulate_makespan(shape, costs) ==
              simulate(build_schedule(spec, costs), costs).makespan);
    }
  }
  CHECK(cases > 1000);
}

TEST_CASE("rounds that repeat are multiplied exactly") {
  Numbers draw(6);
  MakespanSimulator simulator;
  int shortened = 0;
  for (int round = 0; round < 600; ++round) {
    using enum ScheduleKind;
    const ScheduleKind kind = std::array{one_f_one_b, interleaved, zero_bubble_h1}[draw.below(3)];
    const int p = 2 + draw.upto(round % 10 == 0 ? 30 : 6);
    const int v = kind == interleaved ? 1 + draw.upto(7) : 1;
    PipelineShape shape{kind, p, v, 1 + draw.upto(250)};
    if (kind == interleaved) shape.microbatches = p * (1 + draw.upto(40));
    // Equal stages, any, or all but the ends equal; hops from none to longer than a stage.
    ScheduleCosts costs = one_second_each(shape);
    const ScheduleCosts any = random_costs(shape, draw);
    const int likeness = draw.upto(3);
    for (std::size_t i = 0; i < costs.stages.size(); ++i) {
      const bool end = i == 0 || i + 1 == costs.stages.size();
      if (likeness == 0 || (likeness == 1 && end)) costs.stages[i] = any.stages[i];
      if (likeness == 2) costs.stages[i] = any.stages[i % 3 == 0 ? 0 : 1];
    }
    const double hop = std::array{0.0, 0.01, 0.1, 1.0, 4.0}[draw.below(5)];
    costs.hops = draw.coin() ? any.hops : std::vector(any.hops.size(), Seconds{hop});
    INFO(name_of(shape) << " round " << round);
    for (const Messages messages : {Messages::passing, Messages::one_at_a_time}) {
      const Seconds all = simulator.run(shape, costs, messages, Rounds::all);
      REQUIRE(simulator.run(shape, costs, messages) == all);
      shortened += simulator.simulated() < shape.chunks * shape.microbatches ? 1 : 0;
    }
  }
  CHECK(shortened > 400);
}

TEST_CASE("GPipe sees hops only while it fills and drains") {
  const PipelineShape shape{ScheduleKind::gpipe, 4, 1, 16};
  const double without = simulate_makespan(shape, one_second_each(shape)).in(1_s);
  const double with = simulate_makespan(shape, one_second_each(shape, 100_ms)).in(1_s);
  CHECK(with - without == Approx(2 * 3 * 0.1));
}

TEST_CASE("a pipeline is never faster than its busiest rank, whatever the hops and stages") {
  Numbers draw(5);
  for (int round = 0; round < 200; ++round) {
    const PipelineShape shape{ScheduleKind::zero_bubble_h1, 1 + draw.upto(7), 1, 1 + draw.upto(20)};
    const ScheduleCosts costs = random_costs(shape, draw);
    Seconds busiest;
    for (const ChunkTimes& t : costs.stages) busiest = std::max(busiest, t.total());
    CHECK(simulate_makespan(shape, costs) >= shape.microbatches * busiest * (1 - 1e-12));
  }
}
