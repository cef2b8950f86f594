#include "runtime/training/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace echelon {

double LearningRate::at(double step) const {
  if (step < warmup) return peak * (step + 1) / warmup;
  if (step >= total) return min;
  const double done = (step - warmup) / std::max(1.0, total - warmup);
  return min + 0.5 * (peak - min) * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace echelon
