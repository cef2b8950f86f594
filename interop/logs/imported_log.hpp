// A training log as a measured run: what was found, what follows from it, what must be asked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "interop/logs/judgement.hpp"
#include "interop/logs/run_facts.hpp"
#include "interop/logs/training_log.hpp"

namespace echelon {

/// Something the log does not say and nobody gave.
struct MissingFact {
  std::string column;
  std::string flag;  ///< that gives it: "--cluster NAME|FILE"
};

struct ImportedLog {
  std::string path;
  const LogFormat* format = nullptr;
  std::string version;  ///< "core 0.6 to 0.11"; "" unknown
  RunFacts facts;
  StepJudgement steps;
  std::optional<double> peak_memory_bytes;
  std::string memory_kind;           ///< "allocated", "reserved"; "" without a figure
  std::vector<std::string> remarks;  ///< checks that passed, figures that were not used
  std::vector<MissingFact> ask;      ///< without which the run cannot be priced
  std::string refused;               ///< why nothing can be learned from the log; or ""
  MeasuredRun row;                   ///< as far as it is known
};

/// Reads and judges a log. `given` are facts of the user; they come before those of the log, and
/// another value in the log is a contradiction. Derived, each only where it is not known already:
///
///   vocabulary              from the parameters of the most loaded shard (Megatron-LM)
///   ZeRO stage and dp       from bytes per parameter of the theoretical memory: 18 without,
///                           6 + 12/dp with the distributed optimizer (Megatron-LM)
///   sequence length         from TFLOP/s, or from tokens per sample
///   GPUs                    from TFLOP/s, tokens/s, or the degrees
///   recomputation           from the TFLOP/s of Megatron-DeepSpeed
///   dp, accumulation, batch arithmetic
///
/// Errors: those of read_training_log; a value that its column cannot hold, at its line.
/// Sources: printed_flops.hpp; Megatron-LM core_v0.6.0, theoretical_memory_usage.py.
/// Checked by: tests/interop/import_log_test.cpp.
[[nodiscard]] Result<ImportedLog> import_log(const std::string& path, const RunFacts& given);
[[nodiscard]] Result<ImportedLog> import_log(const TrainingLog& log, const RunFacts& given);

/// The row of a log for a table of runs: what plan fit learns from. Errors: those of import_log; a
/// refused log with its reason; missing facts, with the flags that give them.
[[nodiscard]] Result<MeasuredRun> read_log(const std::string& path, const RunFacts& given);
[[nodiscard]] Result<MeasuredRun> measured_run_of(const ImportedLog& imported);

}  // namespace echelon
