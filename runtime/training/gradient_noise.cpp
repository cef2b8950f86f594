#include "runtime/training/gradient_noise.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/expects.hpp"

namespace echelon {

void NoiseScale::add(double small, double small_batch, double large, double large_batch) {
  EXPECTS(large_batch > small_batch && small_batch > 0, "the large batch is the larger one");
  signal_ += (large_batch * large - small_batch * small) / (large_batch - small_batch);
  noise_ += (small - large) / (1 / small_batch - 1 / large_batch);
  ++count_;
}

GradientNoise NoiseScale::estimate() const {
  GradientNoise out{count_, 0};
  if (count_ > 0 && signal_ > 0 && noise_ > 0) out.batch = noise_ / signal_;
  return out;
}

std::vector<std::string> batch_advice(const GradientNoise& noise, double batch, double peak_rate) {
  if (noise.batch <= 0) {
    return {
        noise.estimates == 0
            ? "no estimate of the critical batch: one microbatch makes the whole batch"
            : "no estimate of the critical batch yet: the gradients are mostly noise or too few"};
  }
  std::vector<std::string> out;
  const double share = batch / noise.batch;
  out.push_back(
      fmt::format("critical batch about {:.2g} samples ({} estimates): a batch of {:.0f} needs "
                  "about {:.2g} % more "
                  "tokens than very small batches would",
                  noise.batch, noise.estimates, batch, 100 * share));
  if (share < 1) {
    out.push_back(fmt::format(
        "the batch may grow to about {:.2g}; Adam's peak learning rate then goes with the square "
        "root: {:.2g} instead of {:.2g}",
        noise.batch, peak_rate * std::sqrt(1 / share), peak_rate));
  } else {
    out.push_back("a larger batch would mostly cost tokens; keep the learning rate");
  }
  return out;
}

}  // namespace echelon
