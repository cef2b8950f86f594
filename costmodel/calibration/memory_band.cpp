#include "costmodel/calibration/memory_band.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

#include "core/base/embedded.hpp"
#include "core/base/expects.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "costmodel/calibration/calibration_io.hpp"

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

/// The widest band that a shipped calibration of `software`, fitted to runs, has; "": of any.
std::optional<MemoryBand> widest_shipped(const std::string& software) {
  std::optional<MemoryBand> widest;
  for (const EmbeddedFile& file : embedded_calibrations()) {
    if (file.name.starts_with("prior-") || !file.name.ends_with(software)) continue;
    const std::optional<Calibration> shipped = shipped_calibration(std::string(file.name));
    if (!shipped->memory_band) continue;
    if (!widest || shipped->memory_band->deviation() > widest->deviation()) {
      widest = shipped->memory_band;
    }
  }
  return widest;
}

/// The band of plans for `software` on a GPU of which no run is known.
MemoryBand band_without_runs(const std::string& software) {
  constexpr double kLeast = 0.05;
  std::optional<MemoryBand> known = widest_shipped("-" + software);
  const std::string of = known ? "of " + software : "of all software, the widest";
  if (!known) known = widest_shipped("");
  EXPECTS(known.has_value(), "a shipped calibration has a memory band");
  return {MemoryBandKind::assumed, known->bias, std::max(kLeast, known->deviation()),
          "assumption: as on the GPUs with runs " + of + " (" + known->source + ")"};
}

}  // namespace

std::string_view name_of(MemoryBandKind kind) {
  return kMemoryBandKinds[static_cast<std::size_t>(kind)];
}

std::string_view MemoryBand::distribution() const {
  return kind == MemoryBandKind::measured ? "logistic" : "normal";
}

double MemoryBand::deviation() const {
  return kind == MemoryBandKind::measured ? spread * std::numbers::pi / std::numbers::sqrt3
                                          : spread;
}

const MemoryBand& memory_band_of(const Calibration& calibration, const Framework& framework) {
  static const MemoryBand kFixedBlocks{
      MemoryBandKind::assumed, 0, 0.01,
      "assumption: all blocks are planned before the first step and were measured within 2 % on "
      "processor cores; on GPUs, whose drivers and libraries take memory too, nothing was"};
  static const std::map<std::string, MemoryBand> kWithoutRuns = [] {
    std::map<std::string, MemoryBand> out;
    for (const Framework& each : frameworks()) {
      if (!each.fixed_blocks) out[each.name] = band_without_runs(each.calibration_key());
    }
    return out;
  }();
  if (calibration.memory_band) return *calibration.memory_band;
  return framework.fixed_blocks ? kFixedBlocks : kWithoutRuns.at(framework.name);
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
