// Learning rate over the steps of a run.
#pragma once

namespace echelon {

/// Linear warm-up to `peak`, then half a cosine down to `min` at step `total`.
/// Source: GPT-3 (arXiv 2005.14165), appendix B; SGDR (arXiv 1608.03983) for the cosine.
struct LearningRate {
  double peak = 3e-4;
  double min = 3e-5;
  double warmup = 0;  ///< steps; step 0 takes peak / warmup
  double total = 1;   ///< steps until the rate stays at `min`

  /// Of step `step`, from 0. Steps are samples over the global batch, so they are no whole numbers
  /// in a run that goes on with another global batch.
  [[nodiscard]] double at(double step) const;
};

}  // namespace echelon
