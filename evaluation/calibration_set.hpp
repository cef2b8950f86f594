// CalibrationSet: the calibration for each measured run, the most specific first.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/framework/framework.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// The release a row was run with, as its `stack_detail` names it: "25.04" of "NeMo 25.04
/// container", "2022-03" of "container of 2022-03"; "" if it names none.
[[nodiscard]] std::string release_of(const MeasuredRun& row);

/// Names under which a row's calibration is looked up, the most specific first:
///   hopper-megatron-core-nemo-25.04   GPU family, framework, software of the row, release
///   hopper-megatron-core-nemo         … any release
///   hopper-megatron-core              … any software of that framework: what planning uses
[[nodiscard]] std::vector<std::string> calibration_names(const GpuSpec& gpu,
                                                         const Framework& framework,
                                                         const MeasuredRun& row);

/// A set of fitted calibrations in front of the shipped priors. Caches what it has read: use each
/// set in one thread.
class CalibrationSet {
 public:
  /// Looks in the shipped calibrations, fitted ones included: those that planning uses.
  CalibrationSet() = default;
  /// Looks in `fitted`, then only in the shipped priors: for judging out of fold.
  explicit CalibrationSet(std::vector<Calibration> fitted);
  /// Looks in the shipped calibrations and in those of single releases
  /// (evaluation/release_calibrations.hpp).
  [[nodiscard]] static CalibrationSet with_releases(std::vector<Calibration> releases);

  /// Error: no calibration at all for the GPU.
  [[nodiscard]] Result<Calibration> pick(const GpuSpec& gpu, const Framework& framework,
                                         const MeasuredRun& row) const;
  /// prior_calibration() of costmodel/calibration/calibration_io.hpp.
  [[nodiscard]] const Result<Calibration>& prior(const GpuSpec& gpu,
                                                 const Framework& framework) const;

 private:
  [[nodiscard]] const std::optional<Calibration>& shipped(const std::string& name) const;

  std::optional<std::map<std::string, Calibration>> fitted_;
  // Files read so far: the rows of a table need the same few files.
  mutable std::map<std::string, std::optional<Calibration>> shipped_;
  mutable std::map<std::string, Result<Calibration>> priors_;
};

}  // namespace echelon
