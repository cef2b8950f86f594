// Collectives on a machine, for `plan topo collectives`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/calibration/calibration.hpp"
#include "costmodel/collectives/collectives_fit.hpp"
#include "report/terminal_style.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// Where a time comes from.
enum class CollectiveLayer {
  bound,     ///< data-sheet rates, no latency: nothing can be faster
  model,     ///< our formulas with a calibration
  measured,  ///< a table of nccl-tests for this machine
};
[[nodiscard]] std::string_view name_of(CollectiveLayer layer);

/// One collective of one size. Bytes and bandwidths as nccl-tests counts them.
struct CollectiveRow {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 1;
  int nodes = 1;
  std::int64_t bytes = 0;
  Seconds time;
  BytesPerSecond algorithm_bandwidth;  ///< bytes / time
  BytesPerSecond bus_bandwidth;        ///< × 2(n−1)/n, (n−1)/n or 1, by collective
  std::string_view algorithm;          ///< "ring", "tree", "nvls", "direct"; "any" of a bound,
                                       ///< "unreported" of a measurement
  std::string_view protocol;           ///< "ll", "ll128", "simple"; likewise
  CollectiveLayer layer = CollectiveLayer::model;
};

/// Bound, model and, where `measured` has the size, measurement of one collective of all GPUs of
/// `cluster`. Source of sizes and factors: nccl-tests doc/PERFORMANCE.md.
[[nodiscard]] std::vector<CollectiveRow> collective_rows(
    CollectiveKind kind, std::int64_t bytes, const ClusterTopology& cluster,
    const Calibration& calibration, std::span<const MeasuredCollective> measured);

/// A fit and its errors.
struct CollectiveFitReport {
  std::string table;        ///< as given
  std::int64_t rows = 0;    ///< all of the table
  std::int64_t fitted = 0;  ///< of them from kFitFrom
  CollectiveFit fit;
  double before = 0;  ///< log-mean error from kFitFrom with the original calibration
  double after = 0;
  LeftOut left_out;
};
[[nodiscard]] CollectiveFitReport fit_report(std::string table,
                                             std::span<const PlacedCollective> rows,
                                             const Calibration& calibration);

[[nodiscard]] std::string collectives_text(const std::vector<CollectiveRow>& rows,
                                           const std::optional<CollectiveFitReport>& fit,
                                           const ClusterTopology& cluster, const TextStyle& style);
[[nodiscard]] std::string collectives_json(const std::vector<CollectiveRow>& rows,
                                           const std::optional<CollectiveFitReport>& fit);

}  // namespace echelon
