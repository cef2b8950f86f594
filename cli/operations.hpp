// Settings about objectives, failures and money.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/settings.hpp"
#include "planner/space/request.hpp"

namespace echelon::cli {

/// Fills request.objective, gpus_at_most and operations, and tells what was assumed about failures
/// where they matter. Errors name the setting.
[[nodiscard]] Status read_operations(const Settings& settings, PlanRequest& request);

/// The largest legal number of GPUs of the machine that --gpus-at-most allows, or nothing when it
/// is not set. Error when it is given together with --gpus.
[[nodiscard]] Result<std::optional<std::int64_t>> gpus_at_most(const Settings& settings);

/// "90s", "10min", "6338h", "264d".
[[nodiscard]] Result<Seconds> parse_duration(const Setting& setting);

}  // namespace echelon::cli
