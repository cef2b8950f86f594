// plan import of configurations.
#pragma once

#include "cli/commands/command.hpp"

namespace echelon::cli {

/// The words are the files of one run. Prints what was found, derived, assumed and must be asked,
/// and the price of the plan; -o writes the plan. Exit code 2 if something is missing.
[[nodiscard]] Result<CommandResult> import_configs_command(const CommandContext& context);

}  // namespace echelon::cli
