// Errors of the rest of a source after its first runs.
#include "evaluation/first_runs.hpp"

#include <array>
#include <cmath>

#include "evaluation/fit.hpp"
#include "evaluation/site_fit.hpp"
#include "tests/evaluation/site_rows.hpp"

namespace echelon {
namespace {

constexpr std::array kCounts = {1, 3, 1000};

FirstRuns judged(const std::vector<MeasuredRun>& rows) {
  return judge_first_runs(rows, fit_left_out(rows, LeaveOut::publisher), kCounts);
}

TEST_CASE("the first runs of a slow site lower the errors of the rest, more with every run") {
  const auto rows = site_rows([](Calibration& c) { c = with_speed(c, 0.8); }, 8);
  const FirstRuns all = judged(rows);
  REQUIRE(all.sources.size() == 1);
  const FirstRunsSource& source = all.sources.front();
  CHECK(source.source == "mosaic");
  CHECK(source.rows == static_cast<int>(rows.size()));
  REQUIRE(source.errors.size() == kCounts.size());
  for (const std::size_t i : {0U, 1U}) {
    CHECK(source.errors[i].runs == kCounts[i]);
    CHECK(source.errors[i].before == Approx(0.2).epsilon(0.01));  // 1 − 0.8
    CHECK(all.means[i].after == Approx(source.errors[i].after));
    CHECK(all.means[i].rows == 1);
  }
  CHECK(source.errors[0].after < 0.12);
  CHECK(source.errors[1].after < 0.7 * source.errors[0].after);
  CHECK(source.errors[1].in_band > 0.9);
  CHECK(source.errors[2].rows == 0);  // more runs than there are
  CHECK(all.means[2].rows == 0);
}

TEST_CASE("the same table gives the same figures, and small sources are left out") {
  auto rows = site_rows([](Calibration& c) { c = with_speed(c, 0.9); }, 9);
  REQUIRE(rows.size() >= 10);
  CHECK(judged(rows).means[0].after == judged(rows).means[0].after);
  rows.resize(9);
  CHECK(judged(rows).sources.empty());
}

}  // namespace
}  // namespace echelon
