// Flags of plan run that plan-run needs.
#pragma once

#include "cli/flags/settings.hpp"
#include "core/run/run_settings.hpp"

namespace echelon::cli {

/// Without the paths and the descriptor that the command chooses. Errors name the setting.
[[nodiscard]] Result<RunSettings> run_settings_of(const Settings& settings);

}  // namespace echelon::cli
