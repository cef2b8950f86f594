// Predicted beside measured: what `plan validate` shows.
#pragma once

#include <optional>
#include <string>

#include "planner/validation.hpp"
#include "report/style.hpp"

namespace echelon {

/// Summaries, then every skipped reason with its count and the worst rows. `limit` is the mean
/// absolute error of step times that the user accepts.
[[nodiscard]] std::string validation_text(const ValidationReport& report,
                                          std::optional<double> limit, const TextStyle& style);
[[nodiscard]] std::string validation_json(const ValidationReport& report);
/// Predicted over measured step times, both logarithmic, one panel per source (sources of fewer
/// than four rows share the last one): an SVG that shows the line of equality, the 80 % band, and
/// flagged rows hollow.
[[nodiscard]] std::string validation_svg(const ValidationReport& report);
/// One line per row, skipped ones too, as comma-separated values (RFC 4180): what was measured,
/// what was predicted with its parts and band, in seconds and bytes; errors are ratios.
[[nodiscard]] std::string validation_rows_csv(const ValidationReport& report);

}  // namespace echelon
