// plan fit of run reports.
#pragma once

#include <string>

#include "cli/commands/command.hpp"

namespace echelon::cli {

/// Refits the rates that the reports' plans were priced with.
[[nodiscard]] Result<CommandResult> fit_reports_command(const CommandContext& context);
/// Whether a file is a run report, or at least JSON: tables of runs never are.
[[nodiscard]] bool is_run_report(const std::string& path);

}  // namespace echelon::cli
