// The two halves of plan calibrate: processor cores, and GPUs.
#pragma once

#include <string>

#include "cli/child.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/run/measurements.hpp"

namespace echelon::cli {

/// What plan-run wrote to `path`. Environment error: it ended otherwise.
[[nodiscard]] Result<Measurements> measured_by(const Child& child, const std::string& path,
                                               RunProgress& progress);
/// "measured on this machine by plan calibrate --backend cuda, 2026-01-31"
[[nodiscard]] std::string how_measured(std::string_view flags);
/// Where the rates go: --output, or `usual`, whose folder is made.
[[nodiscard]] Result<std::string> calibration_target(const Invocation& call,
                                                     const std::string& usual);

/// With --backend cuda: rates, and a description of the machine beside them.
[[nodiscard]] Result<Outcome> calibrate_gpus(const Invocation& call);

}  // namespace echelon::cli
