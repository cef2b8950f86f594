// Flags as facts of a training log: what the log does not say.
#pragma once

#include "cli/commands/command.hpp"
#include "interop/logs/imported_log.hpp"
#include "interop/logs/run_facts.hpp"

namespace echelon::cli {

/// Whether a format of training logs recognizes the file, whose name is not that of a table or a
/// configuration.
[[nodiscard]] bool is_training_log(const std::string& path);

/// Facts of the flags --model, --cluster, --gpus, --seq, --tp ... Errors: a value that cannot be
/// read; a flag that is no fact of a run.
[[nodiscard]] Result<RunFacts> facts_of_flags(const CommandContext& context);

/// import_log() of a file, with the GPU that the log names if no flag does. This and
/// measured_run_of() turn a log into a row that a fit learns from.
[[nodiscard]] Result<ImportedLog> import_log_file(const std::string& path, const RunFacts& given);

}  // namespace echelon::cli
