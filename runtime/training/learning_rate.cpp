#include "runtime/training/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace echelon {

double LearningRate::at(std::int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= total) return min;
  const double done = static_cast<double>(step - warmup) /
                      static_cast<double>(std::max<std::int64_t>(1, total - warmup));
  return min + 0.5 * (peak - min) * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace echelon
