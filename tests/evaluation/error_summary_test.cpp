#include "evaluation/error_summary.hpp"
#include "core/base/quantile.hpp"

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

TEST_CASE("a bootstrap interval contains the mean and widens with the confidence") {
  std::vector<double> sizes;
  std::vector<std::string> folds;
  for (int i = 0; i < 60; ++i) {
    sizes.push_back(0.01 * (i % 10));
    folds.push_back("fold " + std::to_string(i));
  }
  const MeanIntervals mean = bootstrap_mean(sizes, folds);
  CHECK(mean.at_95.low < mean.at_80.low);
  CHECK(mean.at_80.low < 0.045);
  CHECK(mean.at_80.high > 0.045);
  CHECK(mean.at_95.high > mean.at_80.high);
  // A normal mean of 60 draws with this spread: ±1.28 · 0.0287 / √60.
  CHECK(mean.at_80.high - mean.at_80.low == Approx(2 * 1.2816 * 0.02872 / 7.746).epsilon(0.15));
}

TEST_CASE("rows of one fold count as one piece of evidence") {
  std::vector<double> sizes;
  std::vector<std::string> apart;
  std::vector<std::string> together;
  for (int i = 0; i < 40; ++i) {
    sizes.push_back(i < 20 ? 0.0 : 0.2);
    apart.push_back(std::to_string(i));
    together.push_back(std::to_string(i / 5));
  }
  const auto width = [](const Interval& interval) { return interval.high - interval.low; };
  CHECK(width(bootstrap_mean(sizes, together).at_80) >
        1.5 * width(bootstrap_mean(sizes, apart).at_80));
}

TEST_CASE("a bootstrap gives the same interval every time, and none without rows") {
  const std::vector<double> sizes = {0.1, 0.2, 0.4};
  const std::vector<std::string> folds = {"a", "b", "c"};
  CHECK(bootstrap_mean(sizes, folds).at_95.low == bootstrap_mean(sizes, folds).at_95.low);
  CHECK(bootstrap_mean({}, {}).at_95.high == 0);
}

TEST_CASE("a single fold is resampled row by row") {
  const std::vector<double> sizes = {0.1, 0.2, 0.4};
  const std::vector<std::string> folds = {"a", "a", "a"};
  CHECK(bootstrap_mean(sizes, folds).at_80.low < bootstrap_mean(sizes, folds).at_80.high);
}

TEST_CASE("quantiles interpolate between order statistics") {
  const std::vector<double> sorted = {1, 2, 3, 4};
  CHECK(quantile(sorted, 0) == 1);
  CHECK(quantile(sorted, 0.5) == Approx(2.5));
  CHECK(quantile(sorted, 1) == 4);
}

TEST_CASE("a band is missed below 75 % and above 85 % of 30 rows and more") {
  ErrorSummary errors;
  errors.rows = 30;
  CHECK_FALSE(misses_band(errors));  // memory has no band
  for (const double share : {0.75, 0.80, 0.85}) {
    errors.in_band = share;
    CHECK_FALSE(misses_band(errors));
  }
  for (const double share : {0.74, 0.86, 1.0}) {
    errors.in_band = share;
    errors.rows = 30;
    CHECK(misses_band(errors));
    errors.rows = 29;
    CHECK_FALSE(misses_band(errors));
  }
}

TEST_CASE("the groups of a set are summarized by mean and median, an empty set by nothing") {
  const std::vector<Ranking> ranking = {
      {.group = "a", .rows = 3, .regret = 0, .regret3 = 0, .spearman = 1},
      {.group = "b", .rows = 4, .regret = 0.02, .regret3 = 0, .spearman = 0.5},
      {.group = "c", .rows = 5, .regret = 0.1, .regret3 = 0.06, .spearman = -1.2}};
  const RankingSummary all = summarize_ranking(ranking);
  CHECK(all.groups == 3);
  CHECK(all.regret_mean == Approx(0.04));
  CHECK(all.regret_median == Approx(0.02));
  CHECK(all.regret3_mean == Approx(0.02));
  CHECK(all.regret3_median == 0);
  CHECK(all.spearman_mean == Approx(0.1));
  CHECK(summarize_ranking({}).groups == 0);
  CHECK(summarize_ranking({}).regret_mean == 0);
}

}  // namespace
}  // namespace echelon
