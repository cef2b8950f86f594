// Fits the rates for plans on this machine to times measured on it.
#pragma once

#include <string>
#include <vector>

#include "core/run/measurements.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// Rates of ranks with `cores` cores each, from the measurements of such ranks; `prior` gives the
/// unmeasured ones. `rank`: the nominal hardware of such a rank, of which the rates are shares.
/// `how` goes into every source: "measured on this machine, 2026-01-31".
///
///   gemm_efficiency, gemm_ramp, kernel_fixed   least squares of log time over the table of
///   products attention_*                                 the same over the sequences
///   memory_efficiency                           measured layers less these two
///   fp64_efficiency                             a layer in fp64 next to the same in fp32
///   optimizer_efficiency                        the largest size
///   host_instruction, step_fixed                a line through empty steps
///   collective_base, link_efficiency            least squares of log time, ring formulas
/// Checked by: tests/costmodel/calibration/machine_fit_test.cpp (known rates are recovered).
[[nodiscard]] Calibration calibrated(const std::vector<Measurement>& all, int cores,
                                     const GpuSpec& rank, const Calibration& prior,
                                     const std::string& how);

/// Shapes of a measured layer, with which a `layers` measurement is priced.
struct LayersMeasured {
  Seconds gemm, attention;  ///< by the rates of a calibration
  Bytes pointwise;          ///< element-wise traffic, as the operators count it
};
[[nodiscard]] LayersMeasured price_of(const Measurement& layers, const GpuSpec& rank,
                                      const Calibration& rates);

}  // namespace echelon
