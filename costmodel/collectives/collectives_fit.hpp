// Two numbers per machine: factors on the bandwidth and on the latency.
#pragma once

#include <optional>
#include <span>

#include "costmodel/calibration/calibration.hpp"
#include "costmodel/collectives/collective_table.hpp"

namespace echelon {

/// Factors on the rates of a calibration.
struct CollectiveFit {
  double bandwidth = 1;  ///< on link_efficiency and nic_efficiency
  double latency = 1;    ///< on collective_base, intra_hop, inter_hop and switch_base
};
[[nodiscard]] Calibration fitted(const Calibration& calibration, const CollectiveFit& fit);

/// The smallest size of fits and their errors: below it, times are a constant per machine and
/// noise.
inline constexpr Bytes kFitFrom = 1_MiB;

/// exp(mean |ln(predicted / measured)|) − 1 over the rows of at least `least` and less than `most`;
/// nothing if there are none.
[[nodiscard]] std::optional<double> log_mean_error(std::span<const PlacedCollective> rows,
                                                   const Calibration& calibration,
                                                   Bytes least = kFitFrom,
                                                   Bytes most = Bytes{1e18});

/// The two numbers with the least mean |ln(predicted / measured)| over the rows from kFitFrom,
///
///   min over (b, l)  mean |ln(t(b, l) / t_measured)| + 0.003·(|ln b| + |ln l|)
///
/// by compass search in (ln b, ln l) from (0, 0): steps of 1 halved down to 1/256. The small weight
/// keeps a number the rows do not determine (latency, from large messages alone) at the prior.
/// Absolute values, not squares: public tables contain sizes disturbed by other jobs.
/// Bounds: efficiencies stay at most 1.2; 1/50 ≤ l ≤ 50. Without such rows: the prior.
/// Source: Hooke & Jeeves, J. ACM 8 (1961). Checked by:
/// tests/costmodel/collectives/collective_table_test.cpp.
[[nodiscard]] CollectiveFit fit_collectives(std::span<const PlacedCollective> rows,
                                            const Calibration& calibration);

/// The error of a fit on rows it has not seen, the rows from kFitFrom in two ways.
struct LeftOut {
  std::optional<double> sizes;  ///< every second size left out, then the others
  std::optional<double> kinds;  ///< each collective left out in turn; nothing if there is only one
};
[[nodiscard]] LeftOut left_out_errors(std::span<const PlacedCollective> rows,
                                      const Calibration& calibration);

}  // namespace echelon
