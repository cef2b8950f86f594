// Reads calibrations and picks the one that fits a (GPU, stack) best.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/calibration.hpp"
#include "core/result.hpp"
#include "costmodel/stack.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// Architecture by CUDA compute capability, "hopper"; AMD and unknown devices are "generic".
[[nodiscard]] std::string_view gpu_family(const GpuSpec& gpu);
/// A shipped calibration by name, or nothing.
[[nodiscard]] std::optional<Calibration> shipped_calibration(const std::string& name);
/// The best shipped calibration for this GPU and stack: fitted to runs of the GPU's family under
/// any software of the stack, else prior_calibration(). Its `name` and `evidence` say which.
[[nodiscard]] Result<Calibration> pick_calibration(const GpuSpec& gpu, const Stack& stack);
/// The shipped priors, which have seen no run: of the family and stack, else of the family, else
/// the generic ones.
[[nodiscard]] Result<Calibration> prior_calibration(const GpuSpec& gpu, const Stack& stack);
/// A user's file (every field required, or "extends" a shipped one).
[[nodiscard]] Result<Calibration> load_calibration(const std::string& path);
[[nodiscard]] Result<Calibration> parse_calibration(std::string_view json, std::string_view where);
[[nodiscard]] std::string calibration_to_json(const Calibration& calibration);

}  // namespace echelon
