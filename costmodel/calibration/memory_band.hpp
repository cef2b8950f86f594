// The memory band: how far the memory that runs need lies from the predicted need, and the
// probability that a plan fits which follows from it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/units.hpp"
#include "core/framework/framework.hpp"

namespace echelon {

struct Calibration;

/// What a memory band was read from. Also its distribution: logistic where the limit between runs
/// that ran and runs that ended out of memory was measured, else normal.
enum class MemoryBandKind : std::uint8_t {
  measured,      ///< runs that ended out of memory, next to runs that ran
  extrapolated,  ///< peaks of runs that ran: the limit itself was not seen
  assumed,       ///< no figure of the framework's memory
};
inline constexpr std::array<std::string_view, 3> kMemoryBandKinds = {"measured", "extrapolated",
                                                                     "assumed"};
[[nodiscard]] std::string_view name_of(MemoryBandKind kind);

/// ln(needed / predicted memory) of runs is distributed with this location and scale:
///
///   extrapolated, assumed   normal     bias: mean, spread: standard deviation
///   measured                logistic   bias: median, spread: scale (standard deviation · √3/π)
struct MemoryBand {
  MemoryBandKind kind = MemoryBandKind::assumed;
  double bias = 0;
  double spread = 0;
  std::string source;

  /// "logistic" or "normal".
  [[nodiscard]] std::string_view distribution() const;
  /// The standard deviation of that distribution.
  [[nodiscard]] double deviation() const;
  bool operator==(const MemoryBand&) const = default;
};

/// Ranges of the two numbers in a file.
inline constexpr double kMostMemoryBias = 1;
inline constexpr double kLeastMemorySpread = 1e-4;
inline constexpr double kMostMemorySpread = 1;

/// The band of plans for `framework` priced with `calibration`: that of the calibration, where it
/// has one. Else assumed:
///
///   frameworks with fixed blocks   no bias, spread 1 %: all blocks are planned before the first
///                                  step, and measured within 2 % on processor cores
///                                  (predicted_memory_test); on GPUs nothing was measured
///   others                         bias and standard deviation of the widest band that the shipped
///                                  calibrations have for the framework on GPUs with runs, of
///                                  software without one for any; at least 5 %, the least that
///                                  analytic memory models without a replay of the allocator miss
///                                  by, 5 to 15 % on published runs
[[nodiscard]] const MemoryBand& memory_band_of(const Calibration& calibration,
                                               const Framework& framework);

/// Probability that a plan predicted to need `need` bytes on its fullest GPU runs within `capacity`
/// bytes, with x = ln(need / capacity):
///
///   normal     P = Φ((−x − bias) / spread)
///   logistic   P = 1 / (1 + exp((x + bias) / spread))
///
/// Both sizes are positive. Assumes that the error's distribution does not depend on the size.
/// Checked by: tests/costmodel/calibration/memory_band_test.cpp.
[[nodiscard]] double fit_probability(const MemoryBand& band, Bytes need, Bytes capacity);
/// The largest need that fits within `capacity` with a probability of at least `probability`, in
/// (0, 1): the inverse of fit_probability.
[[nodiscard]] Bytes most_need(const MemoryBand& band, double probability, Bytes capacity);

}  // namespace echelon
