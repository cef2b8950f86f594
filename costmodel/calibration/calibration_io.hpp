// Reads calibrations and selects the best one for a (GPU, framework).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/framework/framework.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// The family whose calibrations apply, "hopper": as the GPU's description names it, else that of
/// the catalog's GPU of the same or the next lower CUDA compute capability; ranks on processor
/// cores are "cpu"; devices without either are "generic".
[[nodiscard]] std::string gpu_family(const GpuSpec& gpu);
/// The family whose rates are taken for the GPU: its own, or the nearest one where of its own no
/// rate is known, "blackwell" for "rubin".
[[nodiscard]] std::string rates_family(const GpuSpec& gpu);
/// Rates of rates_family() as they apply to the GPU: those of another family are extrapolated, with
/// a band widened by kUnseenBand.
[[nodiscard]] Calibration applied_to(const GpuSpec& gpu, Calibration rates);
/// A shipped calibration by name, or nothing.
[[nodiscard]] std::optional<Calibration> shipped_calibration(const std::string& name);
/// The best shipped calibration for this GPU and framework: that of the GPU's family and the
/// framework, fitted to their runs, or, as extrapolated, to runs of software with the same kernels;
/// else prior_calibration(), with the memory band of GPUs that have runs (memory_band_of). That of
/// another framework (Framework::calibrated_as) is extrapolated,
/// and so is that of another family (applied_to).
[[nodiscard]] Result<Calibration> pick_calibration(const GpuSpec& gpu, const Framework& framework);
/// The shipped priors, which are not fitted to runs: those of the GPU's family (rates_family), or
/// the generic ones without one; replaced by what is the software's on every GPU (prior-FRAMEWORK:
/// work of the host, the allocator), and this by what both decide (prior-FAMILY-FRAMEWORK:
/// attention).
[[nodiscard]] Result<Calibration> prior_calibration(const GpuSpec& gpu, const Framework& framework);
/// A calibration that the user named, for plans on `gpu` under `framework`. One of another GPU
/// family or framework, or one that takes rates from such a one ("extends"), is extrapolated: its
/// band is widened by kUnseenBand and at least as wide as that of the shipped calibration.
struct NamedCalibration {
  Calibration calibration;
  std::string foreign;  ///< "hopper/megatron-core", whose rates they are; "" for this pair's own
};
[[nodiscard]] NamedCalibration named_calibration(Calibration given, const GpuSpec& gpu,
                                                 const Framework& framework);
/// A user's file (every field required, or "extends" a shipped one).
/// `cores`: of a rank; of a file for several numbers of them the entry of `entry_for` is taken.
[[nodiscard]] Result<Calibration> load_calibration(const std::string& path, int cores = 1);
[[nodiscard]] Result<Calibration> parse_calibration(std::string_view json, std::string_view where);
[[nodiscard]] std::string calibration_to_json(const Calibration& calibration);
/// Rates of ranks with so many cores each, rising.
struct CalibrationByCores {
  int cores = 1;
  Calibration calibration;
};
[[nodiscard]] std::string calibrations_to_json(const std::vector<CalibrationByCores>& all);
/// All calibrations of a file; a file of a single calibration is for ranks of any size.
[[nodiscard]] Result<std::vector<CalibrationByCores>> load_calibrations(const std::string& path);
/// The index of the largest number of cores that is not above `cores`, else of the smallest.
[[nodiscard]] std::size_t entry_for(const std::vector<CalibrationByCores>& all, int cores);

}  // namespace echelon
