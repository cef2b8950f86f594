// plan fit of a table, or of training logs, of one site's runs.
#pragma once

#include "cli/commands/command.hpp"

namespace echelon::cli {

/// Fits the rates of the site, from the shipped calibration or that of --calibration.
[[nodiscard]] Result<CommandResult> fit_site_command(const CommandContext& context);

}  // namespace echelon::cli
