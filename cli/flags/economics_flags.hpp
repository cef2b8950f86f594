// Settings about objectives, failures and money.
#pragma once

#include "cli/flags/settings.hpp"
#include "planner/space/request.hpp"

namespace echelon::cli {

/// Fills request.objective, max_gpus and economics, and states the assumptions about failures
/// where they matter. Errors name the setting.
[[nodiscard]] Status read_economics(const Settings& settings, PlanRequest& request);

}  // namespace echelon::cli
