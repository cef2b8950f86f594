// Interleaved schedules in groups of more microbatches than ranks (Megatron-LM:
// --microbatch-group-size-per-virtual-pipeline-stage): order, soundness, memory, time.
#include "core/schedule/schedule_check.hpp"
#include "costmodel/schedule/makespan.hpp"
#include "costmodel/time/pipeline.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Every legal group of some numbers of microbatches: those of a last group of no or ≥ p
/// microbatches.
std::vector<PipelineShape> grouped(int ranks, int chunks, int most) {
  std::vector<PipelineShape> all;
  for (int p = 2; p <= ranks; ++p) {
    for (int v = 2; v <= chunks; ++v) {
      for (int m = p; m <= most; ++m) {
        for (int g = p; g <= m; ++g) {
          if (m % g != 0 && m % g < p) continue;
          all.push_back({ScheduleKind::interleaved, p, v, m, g});
        }
      }
    }
  }
  return all;
}

std::string described(const PipelineShape& s) {
  return name_of(s) + " groups of " + std::to_string(s.group);
}

/// The largest sum of weights between forward and backward, instruction by instruction.
double fullest(const std::vector<ComputeStep>& order, const std::vector<double>& weights) {
  double now = 0;
  double most = 0;
  for (const ComputeStep& step : order) {
    const double weight = weights[static_cast<std::size_t>(step.chunk)];
    now += step.op == Op::forward ? weight : -weight;
    most = std::max(most, now);
  }
  return most;
}

/// Chunks of unit time per forward, input gradient and weight gradient.
double time_of(const PipelineShape& shape, double hop) {
  return simulate_makespan(shape, one_second_each(shape, Seconds{hop})).in(1_s);
}

}  // namespace

TEST_CASE("the forwards of a rank are those of Megatron-LM's schedule table") {
  // get_schedule_table(num_microbatches=5, num_model_chunks=2, group_size=3): the example of its
  // documentation.
  const PipelineShape shape{ScheduleKind::interleaved, 2, 2, 5, 3};
  const std::vector<int> microbatches{0, 1, 2, 0, 1, 2, 3, 4, 3, 4};
  const std::vector<int> chunks{0, 0, 0, 1, 1, 1, 0, 0, 1, 1};
  for (int rank = 0; rank < 2; ++rank) {
    std::size_t forwards = 0;
    std::size_t backwards = 0;
    std::size_t head = 0;
    for (const ComputeStep& step : compute_order(shape, rank)) {
      std::size_t& at = step.op == Op::forward ? forwards : backwards;
      CHECK(step.microbatch == microbatches[at]);
      CHECK(step.chunk == (step.op == Op::forward ? chunks[at] : 1 - chunks[at]));
      ++at;
      if (backwards == 0) head = forwards;
    }
    CHECK(forwards == 10);
    CHECK(backwards == 10);
    // 2(p − s − 1) + (v − 1)·group, and the forward before the first backward.
    CHECK(head == 2U * (2 - static_cast<std::size_t>(rank) - 1) + 3 + 1);
  }
}

TEST_CASE("schedules in any legal group are sound, run and read back from their text") {
  Numbers draw(11);
  int built = 0;
  for (const PipelineShape& shape : grouped(6, 4, 13)) {
    const ScheduleCosts costs =
        built++ % 2 == 0 ? one_second_each(shape, 1_s) : random_costs(shape, draw);
    const Schedule schedule = build_schedule(random_spec(shape, draw), costs);
    INFO(described(shape));
    const std::vector<ScheduleFault> faults = check_schedule(schedule);
    REQUIRE((faults.empty() ? "sound" : faults.front().what) == "sound");
    REQUIRE(simulate(schedule, costs).complete());
    const Result<Schedule> again = parse_schedule_text(to_text(schedule), "text");
    REQUIRE(again.ok());
    REQUIRE(*again == schedule);
    // The limit of the checker follows from the group, not from pp.
    REQUIRE(max_in_flight(schedule, 0) == chunks_in_flight(shape.kind, shape.ranks, shape.chunks, 0,
                                                           shape.microbatches, shape.group));
  }
  CHECK(built > 300);
}

TEST_CASE("the checker refuses a schedule that holds more than its group allows") {
  const PipelineShape shape{ScheduleKind::interleaved, 2, 2, 8, 4};
  ScheduleSpec spec;
  spec.shape = shape;
  Schedule schedule = build_schedule(spec, one_second_each(shape));
  REQUIRE(check_schedule(schedule).empty());
  schedule.group = 2;
  REQUIRE(check_schedule(schedule).size() >= 1);
  CHECK(check_schedule(schedule).front().kind == ScheduleFaultKind::too_many_in_flight);
  schedule.group = 9;
  REQUIRE(check_schedule(schedule).size() == 1);
  CHECK(check_schedule(schedule).front().kind == ScheduleFaultKind::malformed);
}

TEST_CASE("chunks in flight of groups are counted exactly, with and without a remainder") {
  for (const PipelineShape& shape : grouped(6, 5, 20)) {
    const std::vector<double> ones(static_cast<std::size_t>(shape.chunks), 1.0);
    INFO(described(shape));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const double held = fullest(compute_order(shape, rank), ones);
      REQUIRE(held == static_cast<double>(chunks_in_flight(shape.kind, shape.ranks, shape.chunks,
                                                           rank, shape.microbatches, shape.group)));
    }
  }
}

TEST_CASE(
    "the fullest set of chunks that grow from the first to the last is that of the schedule") {
  Numbers draw(12);
  std::vector<PipelineShape> all = grouped(6, 5, 16);
  for (const int m : {40, 44, 80, 83}) {
    for (int g = 4; g <= 11; ++g) {
      if (m % g == 0 || m % g >= 4) all.push_back({ScheduleKind::interleaved, 4, 3, m, g});
    }
  }
  for (const PipelineShape& shape : all) {
    INFO(described(shape));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      std::vector<double> weights{static_cast<double>(draw.upto(4))};
      while (weights.size() < static_cast<std::size_t>(shape.chunks)) {
        weights.push_back(weights.back() + draw.upto(2));
      }
      // The loss takes the place of a layer of the very last chunk.
      if (rank + 1 == shape.ranks && draw.upto(1) > 0) {
        weights.back() = std::max(0.0, weights.front() - draw.upto(1));
      }
      double sum = 0;
      for (const double weight : weights) sum += weight;
      const Bytes held =
          fullest_in_flight(Bytes{sum}, Bytes{weights.front()}, Bytes{weights.back()}, shape.ranks,
                            shape.chunks, rank, shape.microbatches, shape.group);
      const double most = fullest(compute_order(shape, rank), weights);
      // A smaller last group may hold a little more of the large chunks later on.
      if (shape.microbatches % shape.group == 0) {
        REQUIRE(held.in(kByte) == most);
      } else {
        REQUIRE(held.in(kByte) <= most);
      }
    }
  }
}

TEST_CASE("without hops every group takes the time of the closed form") {
  for (const PipelineShape& shape : grouped(6, 4, 18)) {
    const std::vector<Seconds> stages(static_cast<std::size_t>(shape.ranks), 3_s * shape.chunks);
    INFO(described(shape));
    REQUIRE(time_of(shape, 0) ==
            Approx(pipeline_time(shape.kind, stages, shape.chunks, shape.microbatches).in(1_s)));
  }
}

TEST_CASE("groups of pp expose pp hops in each round, larger ones hide them") {
  // Hops of up to a fifth of a forward of one second, p up to 8: the closed form is within 1 % of
  // the simulated step, and the larger group saves what the closed form says, within two hops per
  // rank.
  for (const int p : {2, 4, 8}) {
    for (const int v : {2, 4, 8}) {
      for (const double hop : {0.02, 0.1, 0.2}) {
        for (const int m : {2 * p, 4 * p, 8 * p}) {
          const auto closed = [&](int g) {
            return 3.0 * v * m + 3.0 * (p - 1) + 2 * (p - 1) * hop +
                   exposed_rounds(p, v, g, Seconds{hop}, 3_s).in(1_s);
          };
          const auto simulated = [&](int g) {
            return time_of({ScheduleKind::interleaved, p, v, m, g}, hop);
          };
          INFO("p " << p << " v " << v << " m " << m << " hop " << hop);
          for (const int g : {p, 2 * p, m}) {
            INFO("group " << g << ": " << simulated(g) << " simulated, " << closed(g) << " closed");
            CHECK(simulated(g) == Approx(closed(g)).epsilon(0.01));
          }
          CHECK(simulated(p) - simulated(2 * p) ==
                Approx(closed(p) - closed(2 * p)).margin(2 * p * hop));
          CHECK(closed(p) - closed(2 * p) == Approx(2.0 * (v - 1) * p * hop));
        }
      }
    }
  }
}

TEST_CASE("one round of two microbatches through 32 chunks waits for 64 hops") {
  // 2 ranks, 16 chunks each, 2 microbatches: all of it is head start and drain.
  const double hop = 0.1;
  const double waits = time_of({ScheduleKind::interleaved, 2, 16, 2, 2}, hop) -
                       time_of({ScheduleKind::interleaved, 2, 16, 2, 2}, 0);
  CHECK(waits == Approx(62 * hop));
  CHECK(exposed_rounds(2, 16, 2, Seconds{hop}, 3_s).in(1_s) + 2 * hop == Approx(62 * hop));
}
