// Quantiles of numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/base/expects.hpp"

namespace echelon {

/// Of sorted values, interpolated linearly between order statistics; `q` in [0, 1]; at least one
/// value.
[[nodiscard]] inline double quantile(std::span<const double> sorted, double q) {
  EXPECTS(!sorted.empty(), "a quantile of something");
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = at - static_cast<double>(below);
  return (1 - weight) * sorted[below] + weight * sorted[above];
}

}  // namespace echelon
