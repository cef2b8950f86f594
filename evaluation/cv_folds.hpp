// Folds: sets of rows of a table that must be judged together, so that no row is predicted by
// parameters that have seen the same job.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// Rows of one fold share a cell (framework, model, GPU, GPU count), or are near-duplicates of rows
/// that do: the same model shapes, GPU, GPU count and degrees (tp, cp, ep, pp, vpp, microbatch,
/// global batch, sequence), from whatever framework, container or document. Twins under another
/// ZeRO stage share a cell and so a fold. Returns the fold's name of every row, in order: the first
/// cell of the fold in alphabetical order. It does not depend on the order of the rows. Source:
/// leave-one-group-out with near-duplicates merged; without the merging 99 of 151 NeMo rows are
/// predicted by their own twin from another container. Checked by:
/// tests/evaluation/cv_folds_test.cpp.
[[nodiscard]] std::vector<std::string> folds_of(std::span<const MeasuredRun> rows);

/// Distributes whole folds over `parts` parts of about the same number of rows: the largest fold
/// first, always to the part with the fewest rows, ties by name. Returns the part of every row,
/// from 0. `folds` is the result of folds_of; at least one part.
[[nodiscard]] std::vector<int> deal_folds(std::span<const std::string> folds, int parts);

/// What rows have in common that are judged together, by calibrations fitted to all others.
enum class LeaveOut {
  publisher,  ///< of the figures; of the source, where the table names no publisher
  source,
  gpu,        ///< model
  framework,  ///< the software of the row
};
inline constexpr std::array kLeaveOutNames{"publisher", "source", "gpu", "framework"};
/// Of every row, in order.
[[nodiscard]] std::vector<std::string> groups_of(std::span<const MeasuredRun> rows, LeaveOut by);
/// A part for every group, numbered from 0 in alphabetical order; returns the part of every row.
[[nodiscard]] std::vector<int> parts_of(std::span<const std::string> groups);

}  // namespace echelon
