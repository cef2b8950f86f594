// The fast path gives exactly the result of the full simulator.
#include "costmodel/schedule/makespan.hpp"

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
      ScheduleSpec spec;
      spec.shape = shape;
      INFO(name_of(shape) << " round " << round);
      REQUIRE(simulate_makespan(shape, costs) ==
              simulate(build_schedule(spec, costs), costs).makespan);
    }
  }
  CHECK(cases > 1000);
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
