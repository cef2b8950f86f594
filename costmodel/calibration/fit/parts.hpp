// Shared by the fits of measured machines.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/run/measurements.hpp"

namespace echelon {

using Rows = std::vector<const Measurement*>;

/// Σ (log predicted − log measured)².
template <class Predict>
[[nodiscard]] double misfit(const Rows& rows, Predict predict) {
  double sum = 0;
  for (const Measurement* row : rows) {
    const double error = std::log(predict(*row) / row->seconds);
    sum += error * error;
  }
  return sum;
}

/// The minimum of f over a grid of ratios between two numbers, refined twice.
template <class F>
[[nodiscard]] double best_between(double low, double high, F f) {
  double best = low;
  for (int round = 0; round < 3; ++round) {
    constexpr int kSteps = 24;
    const double ratio = std::pow(high / low, 1.0 / kSteps);
    std::optional<double> least;
    double at = low;
    for (int i = 0; i <= kSteps; ++i, at *= ratio) {
      const double value = f(at);
      if (!least || value < *least) {
        least = value;
        best = at;
      }
    }
    low = best / ratio;
    high = best * ratio;
  }
  return best;
}

[[nodiscard]] inline double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A line through the times of empty steps: the time per instruction, and the fixed time of a step.
/// At least two steps.
struct ExecutorTimes {
  Seconds instruction, step;
};
[[nodiscard]] ExecutorTimes executor_times(const Rows& empty_steps);

}  // namespace echelon
