// Statistics of errors: size, confidence, ranking.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace echelon {

struct Interval {
  double low = 0;
  double high = 0;
};

/// Of signed errors e: mean |e|, median |e|, 90th percentile of |e|, and the bias, mean e.
/// Quantiles interpolate linearly between order statistics. All zero without rows.
struct ErrorSummary {
  int rows = 0;
  double mean_abs = 0;
  double median_abs = 0;
  double p90_abs = 0;
  double bias = 0;
  Interval mean_80;               ///< interval of mean |e| with 80 % confidence (bootstrap_mean)
  Interval mean_95;               ///< … 95 %
  std::optional<double> in_band;  ///< share of the rows inside their 80 % band; time only
};
[[nodiscard]] ErrorSummary summarize(std::vector<double> errors);

/// Whether a band said to hold 80 % of the rows holds less than 75 % or more than 85 % of them.
/// False below 30 rows, which are too few: with independent rows a sound band of 30 leaves the
/// range one time in two, one of 100 one time in six.
[[nodiscard]] bool misses_band(const ErrorSummary& errors);

/// Bootstrap of the mean of `sizes`, the |e|: rows of one fold are not independent evidence, so
/// whole folds are drawn with replacement, 2,000 times; rows, if there is only one fold. `folds`
/// names the fold of every row. The seed is fixed: same input, same interval. Source: Efron and
/// Tibshirani, "An Introduction to the Bootstrap", percentile intervals.
struct MeanIntervals {
  Interval at_80, at_95;
};
[[nodiscard]] MeanIntervals bootstrap_mean(std::span<const double> sizes,
                                           std::span<const std::string> folds);

/// Rows of one `group` are the same job under different plans: does the order come out right?
struct Ranking {
  std::string group;
  int rows = 0;
  double regret = 0;    ///< measured time of our first choice / best measured − 1
  double regret3 = 0;   ///< … of the best measured among our first three choices
  double spearman = 0;  ///< rank correlation, ties averaged; 0 if either side is constant
};
/// `predicted` and `measured` step times of one group's rows, in the same order; not empty.
[[nodiscard]] Ranking rank_group(std::string group, const std::vector<double>& predicted,
                                 const std::vector<double>& measured);

/// Summary over the groups of a set. All zero without groups.
struct RankingSummary {
  int groups = 0;
  double regret_mean = 0, regret_median = 0;    ///< of our first choice
  double regret3_mean = 0, regret3_median = 0;  ///< of the best of our first three
  double spearman_mean = 0;
};
[[nodiscard]] RankingSummary summarize_ranking(std::span<const Ranking> ranking);

}  // namespace echelon
