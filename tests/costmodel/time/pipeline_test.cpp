#include "costmodel/time/pipeline.hpp"

#include <vector>

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("equal 1F1B stages take m + p - 1 microbatch times") {
  for (const int p : {1, 2, 8, 64}) {
    const std::vector<Seconds> stages(static_cast<std::size_t>(p), 3_s);
    for (const std::int64_t m : {1, 8, 100}) {
      const double expected = static_cast<double>(m + p - 1) * 3;
      CHECK(pipeline_time(ScheduleKind::one_f_one_b, stages, 1, m).in(1_s) == Approx(expected));
      CHECK(pipeline_time(ScheduleKind::gpipe, stages, 1, m).in(1_s) == Approx(expected));
    }
  }
}

TEST_CASE("v chunks divide the bubble by v") {
  const std::vector<Seconds> stages(8, 4_s);
  for (const int v : {2, 4}) {
    const double total = pipeline_time(ScheduleKind::interleaved, stages, v, 16).in(1_s);
    CHECK(total - 16 * 4 == Approx((8 - 1) * 4.0 / v));
  }
}

TEST_CASE("a slower stage costs its extra time once per microbatch") {
  const std::vector<Seconds> even{2_s, 2_s, 2_s};
  const std::vector<Seconds> uneven{2_s, 3_s, 2_s};
  const Seconds grew = pipeline_time(ScheduleKind::one_f_one_b, uneven, 1, 10) -
                       pipeline_time(ScheduleKind::one_f_one_b, even, 1, 10);
  CHECK(grew.in(1_s) == Approx(10));
}

TEST_CASE("1F1B holds p - s microbatches, GPipe all of them") {
  CHECK(chunks_in_flight(ScheduleKind::one_f_one_b, 8, 1, 0, 100) == 8);
  CHECK(chunks_in_flight(ScheduleKind::one_f_one_b, 8, 1, 7, 100) == 1);
  CHECK(chunks_in_flight(ScheduleKind::one_f_one_b, 8, 1, 0, 3) == 3);
  CHECK(chunks_in_flight(ScheduleKind::gpipe, 8, 1, 7, 100) == 100);
}

TEST_CASE("passes that meet no partner are the head start and the drain") {
  // 39 of 512 forwards of the first of 8 ranks with 4 chunks and 128 microbatches, 25 of the last.
  const auto alone = [](int stage) {
    return chunks_in_flight(ScheduleKind::interleaved, 8, 4, stage, 128);
  };
  CHECK(alone(0) == 39);
  CHECK(alone(7) == 25);
  CHECK(unpaired_share(ScheduleKind::interleaved, 8, 4, 128) == Approx(32.0 / 512));
  CHECK(unpaired_share(ScheduleKind::one_f_one_b, 1, 1, 16) == Approx(1.0 / 16));
  CHECK(unpaired_share(ScheduleKind::gpipe, 4, 1, 16) == Approx(1));
}

TEST_CASE("ZB-H1 leaves a third of the bubble and holds p microbatches on every stage") {
  const std::vector<Seconds> stages(8, 3_s);
  CHECK(pipeline_time(ScheduleKind::zero_bubble_h1, stages, 1, 16).in(1_s) == Approx(16 * 3 + 7));
  // One microbatch: forward and input gradient there and back, then one weight gradient.
  CHECK(pipeline_time(ScheduleKind::zero_bubble_h1, stages, 1, 1).in(1_s) == Approx(8 + 8 + 1));
  for (const int s : {0, 7}) {
    CHECK(chunks_in_flight(ScheduleKind::zero_bubble_h1, 8, 1, s, 100) == 8);
    CHECK(chunks_in_flight(ScheduleKind::zero_bubble_h1, 8, 1, s, 5) == 5);
  }
}

TEST_CASE("interleaving holds L(1 + (p - 1)/(pv)) layers on the first stage") {
  // Korthikanti et al. (arXiv 2205.05198), section 4.2.3.
  const int p = 8;
  const int v = 3;
  const double layers = 48;
  const double held =
      static_cast<double>(chunks_in_flight(ScheduleKind::interleaved, p, v, 0, 1000)) * layers /
      (p * v);
  CHECK(held == Approx(layers * (1 + (p - 1.0) / (p * v))));
}
