// Flags: anomalous rows of a table. They are shown separately, never left out.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// One anomaly and the figures of the row that it invalidates. No flag depends on our predictions,
/// so a flag cannot hide an error of the model.
struct RowQualityFlag {
  std::string_view name;
  bool time = false;
  bool memory = false;
  bool fits = false;
  std::string_view why;  ///< one line
  bool operator==(const RowQualityFlag& other) const { return name == other.name; }
};

/// All flags there are, in the order they are listed.
[[nodiscard]] std::span<const RowQualityFlag> row_quality_flags();

/// The flags of every row, in order; none for most. Takes the whole table, because some flags need
/// a row's twins. The rules are described in row_quality.cpp and in tests/validation/README.md;
/// tests/validation/flags.csv lists the flagged rows of our own table.
/// Checked by: tests/evaluation/row_quality_test.cpp.
[[nodiscard]] std::vector<std::vector<RowQualityFlag>> quality_flags_of(
    std::span<const MeasuredRun> rows);

/// Upper limit of the seconds of a nanotron step without stalls: the larger of 30 % of the GPU's
/// peak and the latency floor of its layers, the pipeline filled, then the gradients and parameters
/// over the measured network.
///
///   t = (m + pp − 1) · max(F / (0.3 · 989 TFLOP/s), L/pp · floor) + 6P · min(8, tp) / B
///   floor = 4.6 ms + 10·(tp − 1)·α,  α = 0.4 ms on a slow network, else 0.045 ms
///   F  FLOPs of one microbatch on one rank, head included     P  parameters of one rank
///   B  measured all-gather bandwidth, which min(8, tp) groups share
///
/// 0 if the row lacks information. Source: the floors are those of the fastest jobs of each tp
/// in tests/validation/runs.csv; ten collectives a layer (4 forward, 6 backward). This is a
/// yardstick only for flags, deliberately generous; predictions come from costmodel/.
[[nodiscard]] double generous_step(const MeasuredRun& row);

}  // namespace echelon
