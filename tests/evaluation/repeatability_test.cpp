#include "evaluation/repeatability.hpp"

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

MeasuredRun measured(double seconds) {
  MeasuredRun row;
  row.source = "here";
  row.layers = 32;
  row.hidden = 4096;
  row.seq = 4096;
  row.tp = row.pp = row.dp = row.microbatch = 1;
  row.global_batch = 8;
  row.step_seconds = seconds;
  return row;
}

TEST_CASE("the noise floor is the spread of measurements of one configuration") {
  std::vector<MeasuredRun> rows = {measured(1.0), measured(1.1), measured(2.0), measured(2.0)};
  rows[2].tp = rows[3].tp = 2;
  const auto noise = noise_of(rows);
  REQUIRE(noise.contains("here"));
  CHECK(noise.at("here").groups == 2);
  CHECK(noise.at("here").rows == 4);
  CHECK(noise.at("here").mean == Approx(0.05));
  CHECK(noise.at("here").largest == Approx(0.1));
}

TEST_CASE("rows that differ in the job, or do not describe it, are not repetitions") {
  std::vector<MeasuredRun> rows = {measured(1.0), measured(1.1)};
  rows[1].overlap_detail = "something else";
  CHECK(noise_of(rows).empty());
  rows = {measured(1.0), measured(1.1)};
  rows[0].microbatch.reset();
  rows[1].microbatch.reset();
  CHECK(noise_of(rows).empty());
}

TEST_CASE("measurements of different sources are not compared") {
  std::vector<MeasuredRun> rows = {measured(1.0), measured(1.1)};
  rows[1].source = "there";
  CHECK(noise_of(rows).empty());
}

}  // namespace
}  // namespace echelon
