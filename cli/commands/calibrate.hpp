// The two halves of plan calibrate: processor cores, and GPUs.
#pragma once

#include <string>

#include "cli/commands/command.hpp"
#include "cli/system/subprocess.hpp"
#include "cli/system/terminal.hpp"
#include "core/run/measurements.hpp"

namespace echelon::cli {

/// The measurements that plan-run wrote to `path`. Environment error: it failed.
[[nodiscard]] Result<Measurements> measured_by(const Subprocess& child, const std::string& path,
                                               RunProgress& progress);
/// "measured on this machine by plan calibrate --backend cuda, 2026-01-31"
[[nodiscard]] std::string how_measured(std::string_view flags);
/// "load 13.2 on 2 cores", which the calibration then names; "" on a machine that is not busy.
[[nodiscard]] std::string busy_text(double load, int cores);
/// The file that the rates are written to: --output, or `usual`, whose folder is created.
[[nodiscard]] Result<std::string> calibration_target(const CommandContext& context,
                                                     const std::string& usual);

/// With --backend cuda: rates, and a description of the machine next to them.
[[nodiscard]] Result<CommandResult> calibrate_gpus(const CommandContext& context);

}  // namespace echelon::cli
