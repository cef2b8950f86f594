// plan import of training logs.
#pragma once

#include "cli/commands/command.hpp"

namespace echelon::cli {

/// Every word is a log. Prints what was found, derived, assumed and must be asked; -o writes the
/// usable logs as a table of measured runs. Exit code 1 if one is refused or lacks facts.
[[nodiscard]] Result<CommandResult> import_logs_command(const CommandContext& context);

}  // namespace echelon::cli
