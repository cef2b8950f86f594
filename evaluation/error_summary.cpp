#include "evaluation/error_summary.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

#include "core/base/expects.hpp"
#include "core/base/quantile.hpp"

namespace echelon {

namespace {

/// Ranks from 0, equal values sharing the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) ++last;
    const double shared = static_cast<double>(first + last) / 2;
    for (std::size_t i = first; i <= last; ++i) ranks[order[i]] = shared;
    first = last + 1;
  }
  return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

/// A number in 0 .. n-1, n below 2^32. The raw output of the engine is the same everywhere, that of
/// the standard's distributions is not.
std::size_t below(std::mt19937_64& draws, std::size_t n) {
  return static_cast<std::size_t>((draws() >> 32) * n >> 32);
}

/// Sum and count of one fold's rows.
struct FoldSum {
  double sum = 0;
  double rows = 0;
};

std::vector<FoldSum> sums_of(std::span<const double> sizes, std::span<const std::string> folds) {
  std::map<std::string_view, FoldSum> by_fold;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    FoldSum& fold = by_fold[folds[i]];
    fold.sum += sizes[i];
    ++fold.rows;
  }
  std::vector<FoldSum> sums;
  if (by_fold.size() == 1) {
    for (const double size : sizes) sums.push_back({size, 1});
  } else {
    for (const auto& [fold, sum] : by_fold) sums.push_back(sum);
  }
  return sums;
}

}  // namespace

ErrorSummary summarize(std::vector<double> errors) {
  if (errors.empty()) return {};
  const auto n = static_cast<double>(errors.size());
  ErrorSummary out;
  out.rows = static_cast<int>(errors.size());
  out.bias = std::accumulate(errors.begin(), errors.end(), 0.0) / n;
  for (double& error : errors) error = std::abs(error);
  std::ranges::sort(errors);
  out.mean_abs = std::accumulate(errors.begin(), errors.end(), 0.0) / n;
  out.median_abs = quantile(errors, 0.5);
  out.p90_abs = quantile(errors, 0.9);
  return out;
}

bool misses_band(const ErrorSummary& errors) {
  constexpr int kTelling = 30;
  return errors.in_band && errors.rows >= kTelling &&
         (*errors.in_band < 0.75 || *errors.in_band > 0.85);
}

Ranking rank_group(std::string group, const std::vector<double>& predicted,
                   const std::vector<double>& measured) {
  EXPECTS(!predicted.empty() && predicted.size() == measured.size(), "one prediction per run");
  std::vector<std::size_t> order(predicted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return predicted[i]; });
  const double best = *std::ranges::min_element(measured);
  double best_of_three = measured[order.front()];
  for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i) {
    best_of_three = std::min(best_of_three, measured[order[i]]);
  }
  return {.group = std::move(group),
          .rows = static_cast<int>(predicted.size()),
          .regret = measured[order.front()] / best - 1,
          .regret3 = best_of_three / best - 1,
          .spearman = correlation(ranks_of(predicted), ranks_of(measured))};
}

RankingSummary summarize_ranking(std::span<const Ranking> ranking) {
  std::vector<double> regrets;
  std::vector<double> regrets3;
  std::vector<double> correlations;
  for (const Ranking& group : ranking) {
    regrets.push_back(group.regret);
    regrets3.push_back(group.regret3);
    correlations.push_back(group.spearman);
  }
  const ErrorSummary first = summarize(std::move(regrets));
  const ErrorSummary three = summarize(std::move(regrets3));
  return {.groups = static_cast<int>(ranking.size()),
          .regret_mean = first.mean_abs,
          .regret_median = first.median_abs,
          .regret3_mean = three.mean_abs,
          .regret3_median = three.median_abs,
          .spearman_mean = summarize(std::move(correlations)).bias};
}

MeanIntervals bootstrap_mean(std::span<const double> sizes, std::span<const std::string> folds) {
  EXPECTS(sizes.size() == folds.size(), "one fold per error");
  if (sizes.empty()) return {};
  constexpr int kResamples = 2000;
  const std::vector<FoldSum> sums = sums_of(sizes, folds);
  std::mt19937_64 draws(20240229);
  std::vector<double> means;
  means.reserve(kResamples);
  for (int i = 0; i < kResamples; ++i) {
    FoldSum drawn;
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const FoldSum& one = sums[below(draws, sums.size())];
      drawn.sum += one.sum;
      drawn.rows += one.rows;
    }
    means.push_back(drawn.sum / drawn.rows);
  }
  std::ranges::sort(means);
  return {.at_80 = {quantile(means, 0.1), quantile(means, 0.9)},
          .at_95 = {quantile(means, 0.025), quantile(means, 0.975)}};
}

}  // namespace echelon
