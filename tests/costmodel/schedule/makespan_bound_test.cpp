#include "costmodel/schedule/makespan_bound.hpp"

#include <array>

#include "costmodel/schedule/makespan.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("the lower bound is the makespan of equal stages without messages") {
  using enum ScheduleKind;
  for (const PipelineShape& shape : shapes(8, 4, {1, 2, 3, 8, 21})) {
    const ScheduleCosts costs = one_second_each(shape);
    INFO(name_of(shape));
    const double ratio = simulate_makespan(shape, costs) / least_makespan(shape, costs);
    CHECK(ratio == Approx(1.0).epsilon(1e-12));
  }
}

TEST_CASE("what is known before a partition bounds all partitions of the same layers") {
  Numbers draw(10);
  MakespanSimulator simulator;
  for (int round = 0; round < 3000; ++round) {
    using enum ScheduleKind;
    const ScheduleKind kind =
        std::array{gpipe, one_f_one_b, one_f_one_b, zero_bubble_h1}[draw.below(4)];
    const PipelineShape shape{kind, 2 + draw.upto(6), 1, 1 + draw.upto(20)};
    // Any partition and any division into forward and backward.
    ScheduleCosts costs = one_second_each(shape, Seconds{draw.coin() ? 0.0 : draw.between(0, 2)});
    for (ChunkTimes& t : costs.stages) {
      const double time = draw.between(0.2, 3);
      const double forward = kind == zero_bubble_h1 ? 0.33 * time : draw.between(0, time);
      t = {.forward = Seconds{forward}, .backward_input = Seconds{time - forward}};
    }
    PipelineOutline outline = outline_of(shape, costs);
    const Seconds time = simulator.run(shape, costs);
    INFO(name_of(shape) << " round " << round);
    REQUIRE(time >= least_pipeline_time(outline) * (1 - 1e-12));
    outline.slowest = {};
    REQUIRE(time >= least_pipeline_time(outline) * (1 - 1e-12));
  }
}

TEST_CASE(
    "before a partition the bound of equal 1F1B stages is exact for more microbatches than "
    "stages") {
  for (const int p : {2, 5, 8}) {
    const PipelineShape shape{ScheduleKind::one_f_one_b, p, 1, 3 * p};
    const ScheduleCosts costs = one_second_each(shape);
    const double ratio =
        simulate_makespan(shape, costs) / least_pipeline_time(outline_of(shape, costs));
    CHECK(ratio == Approx(1.0).epsilon(1e-12));
  }
}

TEST_CASE("no pipeline is faster than its lower bound, whatever its stages and messages take") {
  Numbers draw(9);
  MakespanSimulator simulator;
  int tight = 0;
  int cases = 0;
  for (const PipelineShape& shape : shapes(9, 5, {1, 2, 3, 6, 11, 40})) {
    for (int round = 0; round < 4; ++round, ++cases) {
      ScheduleCosts costs = round == 0 ? one_second_each(shape) : random_costs(shape, draw);
      const ScheduleCosts other = random_costs(shape, draw);
      if (round == 1) costs.stages.assign(costs.stages.size(), other.stages[0]);
      const double slower = std::array{0.0, 0.1, 1.0, 10.0}[draw.below(4)];
      for (std::size_t i = 0; i < costs.hops.size(); ++i) costs.hops[i] = slower * other.hops[i];
      INFO(name_of(shape) << " round " << round);
      const Seconds bound = least_makespan(shape, costs);
      const Seconds outlined = least_pipeline_time(outline_of(shape, costs));
      for (const Messages messages : {Messages::passing, Messages::one_at_a_time}) {
        const Seconds time = simulator.run(shape, costs, messages);
        REQUIRE(time >= bound * (1 - 1e-12));
        REQUIRE(time >= outlined * (1 - 1e-12));
        tight += time <= 1.01 * bound ? 1 : 0;
      }
    }
  }
  CHECK(tight > cases);
}
