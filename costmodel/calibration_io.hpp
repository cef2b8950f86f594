// Reads calibrations and picks the one that fits a (GPU, stack) best.
#pragma once

#include <string_view>

#include "core/calibration.hpp"
#include "core/result.hpp"
#include "costmodel/stack.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// The shipped calibration for this GPU and stack: exact pair, else the GPU family's priors for any
/// stack, else the generic priors. Its `name` and `evidence` say which.
[[nodiscard]] Result<Calibration> pick_calibration(const GpuSpec& gpu, const Stack& stack);
/// A user's file (every field required, or "extends" a shipped one).
[[nodiscard]] Result<Calibration> load_calibration(const std::string& path);
[[nodiscard]] Result<Calibration> parse_calibration(std::string_view json, std::string_view where);
[[nodiscard]] std::string calibration_to_json(const Calibration& calibration);

}  // namespace echelon
