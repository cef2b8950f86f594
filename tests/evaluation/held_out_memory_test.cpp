// Memory bands from runs that no rate was fitted to.
#include "evaluation/held_out_memory.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

std::vector<MeasuredRun> rows_of(const std::vector<std::string>& publishers) {
  std::vector<MeasuredRun> rows(publishers.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].source = publishers[i];
    rows[i].publisher = publishers[i];
  }
  return rows;
}

MemoryOutcome peak(std::size_t row, const std::string& framework, double error) {
  return {row, framework, -0.5, true, true, error};
}

Calibration calibration_of(const std::string& framework) {
  Calibration out;
  out.framework = framework;
  return out;
}

}  // namespace

TEST_CASE("the logistic fit meets its likelihood equations on counts done by hand") {
  // Two needs. Of ten runs at x = −0.1 nine ran, of ten at +0.1 one. Runs out of memory count
  // twice: 9/11 and 1/19 ran. One in a hundred of either end is odd: 9/11 = 0.01 + 0.98·P gives
  // P = 0.824675, logit 1.548415, and 1/19 gives P = 0.043502, logit −3.090460. The line through
  // both: 0.2 / spread = 4.638875, bias = 0.1 − 1.548415·spread.
  std::vector<FitOutcome> runs;
  for (int i = 0; i < 10; ++i) {
    runs.push_back({-0.1, i != 0});
    runs.push_back({0.1, i == 0});
  }
  std::optional<MemoryBand> band = fit_logistic(runs);
  REQUIRE(band);
  CHECK(band->kind == MemoryBandKind::measured);
  CHECK(band->bias == Approx(0.033242).epsilon(1e-3));
  CHECK(band->spread == Approx(0.043114).epsilon(1e-3));
  // Moved by −0.15 the limit moves too: runs need e^0.15 times as much.
  for (FitOutcome& run : runs) run.log_need -= 0.15;
  band = fit_logistic(runs);
  REQUIRE(band);
  CHECK(band->bias == Approx(0.183242).epsilon(1e-3));
  CHECK(band->spread == Approx(0.043114).epsilon(1e-3));
}

TEST_CASE("a single odd run does not move the limit far") {
  std::vector<FitOutcome> runs;
  for (int i = -20; i <= 20; ++i) runs.push_back({i / 40.0, i < 0 || i == 2});
  for (int i = -20; i <= 20; ++i) runs.push_back({i / 40.0, i < 0 && i != -2});
  const MemoryBand clean = fit_logistic(runs).value();
  runs.push_back({1.0, true});  // far above every limit
  const MemoryBand odd = fit_logistic(runs).value();
  CHECK(odd.bias == Approx(clean.bias).margin(0.01));
  CHECK(odd.spread == Approx(clean.spread).epsilon(0.1));
}

TEST_CASE("ends that do not overlap put the limit in the middle of the gap") {
  const std::vector<FitOutcome> runs = {{-0.5, true}, {-0.2, true}, {-0.1, false}, {0.4, false}};
  const std::optional<MemoryBand> band = fit_logistic(runs);
  REQUIRE(band);
  CHECK(band->bias == Approx(0.15));
  CHECK(band->spread == kLeastLogisticSpread);
}

TEST_CASE("without both ends, or if small runs end out of memory, there is no limit") {
  CHECK_FALSE(fit_logistic(std::vector<FitOutcome>{{-0.5, true}, {-0.2, true}}));
  CHECK_FALSE(fit_logistic(std::vector<FitOutcome>{{-0.5, false}}));
  const std::vector<FitOutcome> reversed = {{-0.5, false}, {-0.4, false}, {-0.3, true},
                                            {-0.2, false}, {-0.1, true},  {0, true}};
  CHECK_FALSE(fit_logistic(reversed));
}

TEST_CASE("twenty runs of either end give a measured band, without the part left out") {
  std::vector<std::string> publishers(80, "one");
  HeldOutMemory held(rows_of(publishers));
  std::vector<MemoryOutcome> first;
  for (std::size_t i = 0; i < 20; ++i) {
    first.push_back({i, "nanotron", -0.3, true, true, {}});
    first.push_back({i, "nanotron", -0.1, false, true, {}});
  }
  held.add(first, 0);
  std::vector<MemoryOutcome> second = first;
  for (MemoryOutcome& one : second) one.log_need += 0.1;
  held.add(second, 1);
  Calibration c = calibration_of("nanotron");
  held.set_band(c, 1);
  REQUIRE(c.memory_band);
  CHECK(c.memory_band->kind == MemoryBandKind::measured);
  CHECK(c.memory_band->bias == Approx(0.2));
  held.set_band(c, 0);
  CHECK(c.memory_band->bias == Approx(0.1));
  // Nineteen are too few; the band that was there stays.
  HeldOutMemory few(rows_of(publishers));
  few.add(std::span(first).subspan(0, 39), 0);
  Calibration prior = calibration_of("nanotron");
  prior.memory_band = MemoryBand{MemoryBandKind::assumed, 0.3, 0.05, "prior"};
  few.set_band(prior);
  CHECK(prior.memory_band->bias == 0.3);
}

TEST_CASE("peaks of several publishers give mean and deviation, each publisher by the root") {
  // Publisher a: sixteen peaks of +0.1, weight 1/4 each, 4 in all; b and c: nine of −0.1 and of 0,
  // 3 in all; d and e: four of 0, 2 in all.
  std::vector<std::string> publishers(16, "a");
  publishers.insert(publishers.end(), 9, "b");
  publishers.insert(publishers.end(), 9, "c");
  publishers.insert(publishers.end(), 4, "d");
  publishers.insert(publishers.end(), 4, "e");
  HeldOutMemory held(rows_of(publishers));
  std::vector<MemoryOutcome> outcomes;
  for (std::size_t i = 0; i < publishers.size(); ++i) {
    outcomes.push_back(peak(i, "torchtitan", i < 16 ? 0.1 : i < 25 ? -0.1 : 0.0));
  }
  held.add(outcomes, 0);
  Calibration c = calibration_of("torchtitan");
  held.set_band(c);
  REQUIRE(c.memory_band);
  CHECK(c.memory_band->kind == MemoryBandKind::extrapolated);
  const double mean = (4 * 0.1 - 3 * 0.1) / 14;
  CHECK(c.memory_band->bias == Approx(mean));
  const double variance =
      (4 * std::pow(0.1 - mean, 2) + 3 * std::pow(0.1 + mean, 2) + 7 * mean * mean) / 14;
  CHECK(c.memory_band->spread == Approx(std::sqrt(variance)));
  CHECK(c.memory_band->source.find("of the same software") != std::string::npos);
  // Software without peaks of its own borrows those of all software, but not where every block is
  // planned before the step.
  Calibration other = calibration_of("deepspeed");
  held.set_band(other);
  REQUIRE(other.memory_band);
  CHECK(other.memory_band->source.find("of all software") != std::string::npos);
  Calibration planned = calibration_of("echelon");
  held.set_band(planned);
  CHECK_FALSE(planned.memory_band);
}

TEST_CASE("peaks of four publishers do not tell how another one differs") {
  std::vector<std::string> four(40, "a");
  std::fill(four.begin() + 10, four.end(), "b");
  std::fill(four.begin() + 20, four.end(), "c");
  std::fill(four.begin() + 30, four.end(), "d");
  HeldOutMemory few(rows_of(four));
  std::vector<MemoryOutcome> outcomes;
  for (std::size_t i = 0; i < four.size(); ++i) outcomes.push_back(peak(i, "torchtitan", 0.1));
  few.add(outcomes, 0);
  Calibration d = calibration_of("torchtitan");
  few.set_band(d);
  CHECK_FALSE(d.memory_band);
}

}  // namespace echelon
