// Learning rate over the steps of a run.
#pragma once

#include <cstdint>

namespace echelon {

/// Linear warm-up to `peak`, then half a cosine down to `least` at step `total`.
/// Source: GPT-3 (arXiv 2005.14165), appendix B; SGDR (arXiv 1608.03983) for the cosine.
struct LearningRate {
  double peak = 3e-4;
  double min = 3e-5;
  std::int64_t warmup = 0;  ///< steps; step 0 takes peak / warmup
  std::int64_t total = 1;   ///< steps until the rate stays at `least`

  /// Of step `step`, from 0.
  [[nodiscard]] double at(std::int64_t step) const;
};

}  // namespace echelon
