// Flags as facts of a training log: what the log does not say.
#pragma once

#include "cli/commands/command.hpp"
#include "interop/logs/run_facts.hpp"

namespace echelon::cli {

/// Facts of the flags --model, --cluster, --gpus, --seq, --tp ... Errors: a value that cannot be
/// read; a flag that is no fact of a run.
[[nodiscard]] Result<RunFacts> facts_of_flags(const CommandContext& context);

}  // namespace echelon::cli
