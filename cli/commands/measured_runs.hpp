// The table of measured runs that plan validate and plan fit read.
#pragma once

#include <vector>

#include "cli/commands/command.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon::cli {

/// The table that the first word names; - is standard input.
[[nodiscard]] Result<std::vector<MeasuredRun>> measured_runs_of(const CommandContext& context);

}  // namespace echelon::cli
