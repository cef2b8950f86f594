#include "runtime/training/gradient_noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Of Student's t, 80 % of which lie between −t and t; the first terms of its expansion in
/// 1/degrees of freedom, right to 0.1 % from 14 on.
double quantile(double degrees) {
  constexpr double kNormal = 1.2815516;
  return kNormal * (1 + (kNormal * kNormal + 1) / (4 * degrees));
}

/// Two means and the covariances of those means.
struct Means {
  double noise = 0, signal = 0;
  double noise_noise = 0, noise_signal = 0, signal_signal = 0;
};

template <class Estimate>
Means means_of(std::span<const Estimate> all) {
  const auto n = static_cast<double>(all.size());
  Means m;
  for (const Estimate& each : all) {
    m.noise += each.noise / n;
    m.signal += each.signal / n;
  }
  const double share = 1 / (n * (n - 1));
  for (const Estimate& each : all) {
    const double noise = each.noise - m.noise;
    const double signal = each.signal - m.signal;
    m.noise_noise += share * noise * noise;
    m.noise_signal += share * noise * signal;
    m.signal_signal += share * signal * signal;
  }
  return m;
}

struct Interval {
  double low = 0;
  double high = kInfinite;
};

/// Fieller's: where a·R² − 2b·R + c ≤ 0, of the ratios that are not negative.
Interval fieller(const Means& m, double t) {
  const double a = m.signal * m.signal - t * t * m.signal_signal;
  const double b = m.noise * m.signal - t * t * m.noise_signal;
  const double c = m.noise * m.noise - t * t * m.noise_noise;
  const double root = b * b - a * c;
  if (root < 0 || a == 0) return {};  // any ratio
  const double one = (b - std::sqrt(root)) / a;
  const double other = (b + std::sqrt(root)) / a;
  const double low = std::max(0.0, std::min(one, other));
  const double high = std::max(0.0, std::max(one, other));
  if (a > 0) return {low, high};
  return {high, kInfinite};  // outside the roots
}

std::string scale_of(const GradientNoise& noise) {
  if (std::isinf(noise.high)) return fmt::format("at least {:.3g} samples", noise.low);
  if (noise.low <= 0) return fmt::format("at most {:.3g} samples", noise.high);
  return fmt::format("{:.3g} samples, {:.3g} to {:.3g}", noise.batch, noise.low, noise.high);
}

}  // namespace

void NoiseScale::add(double small, double small_batch, double large, double large_batch) {
  EXPECTS(large_batch > small_batch && small_batch > 0, "the large batch is the larger one");
  if (!std::isfinite(small) || !std::isfinite(large)) return;  // the run ends
  all_.push_back(
      {.noise = (small - large) / (1 / small_batch - 1 / large_batch),
       .signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)});
}

GradientNoise NoiseScale::estimate() const {
  GradientNoise out;
  out.estimates = static_cast<std::int64_t>(all_.size());
  if (out.estimates < GradientNoise::kMinEstimates) return out;
  const std::span<const Estimate> window = std::span(all_).subspan(all_.size() / 2);
  const Means means = means_of(window);
  const Interval interval = fieller(means, quantile(static_cast<double>(window.size() - 1)));
  out.window = static_cast<std::int64_t>(window.size());
  out.low = interval.low;
  out.high = interval.high;
  out.batch = means.signal > 0 ? std::max(0.0, means.noise / means.signal) : kInfinite;
  return out;
}

double rate_factor(double from, double to, double noise_scale) {
  if (std::isinf(noise_scale)) return std::sqrt(to / from);
  return std::sqrt((1 + noise_scale / from) / (1 + noise_scale / to));
}

std::vector<std::string> batch_advice(const GradientNoise& noise, double batch, double peak_rate) {
  if (noise.estimates == 0) {
    return {
        "critical batch: no estimate; it needs several microbatches per step, a schedule other "
        "than ZB-H1 and no context parallelism"};
  }
  if (!noise.known()) {
    return {fmt::format("critical batch: not enough steps, {} of the {} required estimates",
                        noise.estimates, GradientNoise::kMinEstimates)};
  }
  if (noise.low <= 0 && std::isinf(noise.high)) {
    return {fmt::format("critical batch: the latest {} of {} estimates are too noisy", noise.window,
                        noise.estimates)};
  }
  std::vector<std::string> out;
  out.push_back(
      fmt::format("critical batch: {} (from the gradient noise scale, accurate to a factor of "
                  "about {:.0f}; 80 % "
                  "interval, from the latest {} of {} estimates)",
                  scale_of(noise), kNoiseFactor, noise.window, noise.estimates));
  const double max_batch = noise.low / kNoiseFactor;
  if (batch < max_batch) {
    out.push_back(fmt::format(
        "the batch of {:.0f} may grow to {:.3g} for about the same tokens; if {:.3g} "
        "is the best peak "
        "learning rate now, Adam's is then about {:.3g}",
        batch, max_batch, peak_rate, peak_rate * rate_factor(batch, max_batch, noise.batch)));
  } else if (batch > kNoiseFactor * noise.high) {
    out.push_back(fmt::format(
        "the batch of {:.0f} is far above the critical one: a smaller one needs fewer tokens, in "
        "more "
        "steps, and at {:.3g} Adam's best learning rate is about {:.3g} if it is {:.3g} now",
        batch, kNoiseFactor * noise.high,
        peak_rate * rate_factor(batch, kNoiseFactor * noise.high, noise.batch), peak_rate));
  } else {
    out.push_back(fmt::format("the batch of {:.0f} and the learning rate need no change", batch));
  }
  return out;
}

}  // namespace echelon
