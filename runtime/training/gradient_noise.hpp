// How large a batch is worth its price: the gradient noise scale, from gradients a step has anyway.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/run_report.hpp"

namespace echelon {

/// Estimates tr(Σ)/|G|² from the squared norms of the gradient of a small and of a large batch of
/// the same step (both means over their samples):
///   |G|² ≈ (B·|g_B|² − b·|g_b|²) / (B − b)      tr(Σ) ≈ (|g_b|² − |g_B|²) / (1/b − 1/B)
/// Both are unbiased; they are averaged over steps before the division.
/// Source: McCandlish et al., arXiv 1812.06162, appendix A.1.
class NoiseScale {
 public:
  /// `small`: |g_b|², the mean over all ranks' gradients of `small_batch` samples; large_batch > b.
  void add(double small, double small_batch, double large, double large_batch);
  [[nodiscard]] GradientNoise estimate() const;

 private:
  std::int64_t count_ = 0;
  double signal_ = 0;
  double noise_ = 0;
};

/// Sentences on batch and learning rate for a run with this peak rate and global batch: Adam's rate
/// goes with the square root of the batch below the noise scale and does not gain above it.
/// Source: arXiv 1812.06162 section 2.2 and appendix; square root rule for Adam: arXiv 2205.10287.
[[nodiscard]] std::vector<std::string> batch_advice(const GradientNoise& noise, double batch,
                                                    double peak_rate);

}  // namespace echelon
