#include "costmodel/calibration/memory_band.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/expects.hpp"
#include "costmodel/calibration/calibration.hpp"

namespace echelon {
namespace {

/// Φ(z) of the standard normal distribution.
double normal_below(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

/// The z with Φ(z) = probability: bisected until it is known to 0.02, where Newton's steps double
/// its digits.
double normal_quantile(double probability) {
  double low = -10;
  double high = 10;
  while (high - low > 0.02) {
    const double middle = (low + high) / 2;
    (normal_below(middle) < probability ? low : high) = middle;
  }
  double z = (low + high) / 2;
  for (int i = 0; i < 4; ++i) {
    const double density = std::exp(-z * z / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    z = std::clamp(z - (normal_below(z) - probability) / density, low, high);
  }
  return z;
}

}  // namespace

std::string_view name_of(MemoryBandKind kind) {
  return kMemoryBandKinds[static_cast<std::size_t>(kind)];
}

std::string_view MemoryBand::distribution() const {
  return kind == MemoryBandKind::measured ? "logistic" : "normal";
}

const MemoryBand& memory_band_of(const Calibration& calibration, const Framework& framework) {
  static const MemoryBand kFixedBlocks{MemoryBandKind::assumed, 0, 0.01,
                                       "assumption: all blocks are planned before the first step"};
  static const MemoryBand kOthers{
      MemoryBandKind::assumed, 0, 0.05,
      "assumption: analytic memory models miss published peaks by 5 to 15 %"};
  if (calibration.memory_band) return *calibration.memory_band;
  return framework.fixed_blocks ? kFixedBlocks : kOthers;
}

double fit_probability(const MemoryBand& band, Bytes need, Bytes capacity) {
  EXPECTS(band.spread > 0, "a band has a width");
  const double z = (std::log(capacity / need) - band.bias) / band.spread;
  if (band.kind == MemoryBandKind::measured) return 1 / (1 + std::exp(-z));
  return normal_below(z);
}

Bytes most_need(const MemoryBand& band, double probability, Bytes capacity) {
  EXPECTS(probability > 0 && probability < 1, "a probability that can be reached");
  const double z = band.kind == MemoryBandKind::measured ? std::log(probability / (1 - probability))
                                                         : normal_quantile(probability);
  return capacity * std::exp(-band.bias - band.spread * z);
}

}  // namespace echelon
