// The gradient noise scale, which gives the largest efficient batch, from gradients that a step
// computes anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/run/run_report.hpp"

namespace echelon {

/// Estimates tr(Σ)/|G|² from the squared norms of the gradient of a small and of a large batch of
/// the same step (both means over their samples; the small batch is part of the large one):
///   |G|² ≈ (B·|g_B|² − b·|g_b|²) / (B − b)      tr(Σ) ≈ (|g_b|² − |g_B|²) / (1/b − 1/B)
/// Both are unbiased, their ratio in one step is not: they are averaged over a window before the
/// division. The gradient shrinks by orders of magnitude in the first steps, which would dominate
/// an average over all of them; so the window is the later half of the estimates. Source:
/// McCandlish et al., arXiv 1812.06162, appendix A.1.
///
/// The interval is Fieller's for a ratio of two means of correlated numbers: all ratios R with
///   (S − R·G)² ≤ t²·(v_SS − 2R·v_SG + R²·v_GG)
/// S and G the means of tr(Σ) and |G|², v their covariances, t the quantile of Student's t. It has
/// no upper end if G cannot be distinguished from 0.
/// Source: Fieller, Journal of the Royal Statistical Society B 16 (1954), 175-185.
/// Checked by: tests/runtime/training/training_parts_test.cpp.
class NoiseScale {
 public:
  /// `small`: |g_b|², the mean over all ranks' gradients of `small_batch` samples; large_batch > b.
  void add(double small, double small_batch, double large, double large_batch);
  /// Nothing but their count below GradientNoise::kMinEstimates estimates.
  [[nodiscard]] GradientNoise estimate() const;

 private:
  struct Estimate {
    double noise = 0;   ///< tr(Σ)
    double signal = 0;  ///< |G|²
  };
  std::vector<Estimate> all_;
};

/// Factor on Adam's best learning rate from one batch to another:
///   √((1 + B_noise/from) / (1 + B_noise/to))
/// Source: arXiv 1812.06162, section 2.2 (for SGD without the root) and appendix E.2 (for Adam with
/// powers of 1/2 to 1); the root: arXiv 2205.10287.
[[nodiscard]] double rate_factor(double from, double to, double noise_scale);

/// Factor by which the noise scale and the critical batch may differ: they were measured within a
/// factor of a few of each other (arXiv 1812.06162, section 3), and with Adam small and large
/// batches of gpt2-tiny, 4 and 16 at a noise scale of 16, need the same tokens to the same loss
/// (2.72 and 2.74).
inline constexpr double kNoiseFactor = 4;

/// Sentences on batch and learning rate for a run with this peak rate and global batch. They ask
/// for a change only where both ends of the interval do, by more than kNoiseFactor.
[[nodiscard]] std::vector<std::string> batch_advice(const GradientNoise& noise, double batch,
                                                    double peak_rate);

}  // namespace echelon
