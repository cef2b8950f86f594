// CalibrationSet: the calibration for each measured run.
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

/// The name of the calibration of a GPU's family and a framework, "hopper-megatron-core": what
/// planning uses.
[[nodiscard]] std::string calibration_name(const GpuSpec& gpu, const Framework& framework);

/// A set of fitted calibrations in front of the shipped priors. Caches what it has read: use each
/// set in one thread.
class CalibrationSet {
 public:
  /// Looks in the shipped calibrations, fitted ones included: those that planning uses.
  CalibrationSet() = default;
  /// Looks in `fitted`, then only in the shipped priors: for judging out of fold.
  explicit CalibrationSet(std::vector<Calibration> fitted);
  /// Error: no calibration at all for the GPU.
  [[nodiscard]] Result<Calibration> pick(const GpuSpec& gpu, const Framework& framework) const;
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
