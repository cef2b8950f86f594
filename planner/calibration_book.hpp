// CalibrationBook: which calibration predicts which measured run, from the most special on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/framework/framework.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "planner/runs_io.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// The release a row was run with, as its `stack_detail` names it: "25.04" of "NeMo 25.04
/// container", "2022-03" of "container of 2022-03"; "" when it names none.
[[nodiscard]] std::string era_of(const RunRow& row);

/// Names under which a row's calibration is looked up, the most special first:
///   hopper-megatron-core-nemo-25.04   GPU family, stack, software of the row, release
///   hopper-megatron-core-nemo         … any release
///   hopper-megatron-core              … any software of that stack: what planning uses
[[nodiscard]] std::vector<std::string> calibration_names(const GpuSpec& gpu, const Framework& stack,
                                                         const RunRow& row);

/// A set of fitted calibrations in front of the shipped priors. Remembers what it has read: one
/// book, one thread.
class CalibrationBook {
 public:
  /// Looks in the shipped calibrations, fitted ones included.
  CalibrationBook() = default;
  /// Looks in `fitted` and, behind it, in the shipped priors alone: for judging out of fold.
  explicit CalibrationBook(std::vector<Calibration> fitted);

  /// Error: no calibration at all for the GPU.
  [[nodiscard]] Result<Calibration> pick(const GpuSpec& gpu, const Framework& stack,
                                         const RunRow& row) const;
  /// prior_calibration() of costmodel/calibration/calibration_io.hpp.
  [[nodiscard]] const Result<Calibration>& prior(const GpuSpec& gpu, const Framework& stack) const;

 private:
  [[nodiscard]] const std::optional<Calibration>& shipped(const std::string& name) const;

  std::optional<std::map<std::string, Calibration>> fitted_;
  // What has been read so far: a table asks for the same few files row after row.
  mutable std::map<std::string, std::optional<Calibration>> shipped_;
  mutable std::map<std::string, Result<Calibration>> priors_;
};

}  // namespace echelon
