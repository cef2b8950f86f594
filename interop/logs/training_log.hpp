// What a training log says: its steps, the memory of its ranks, and named values (arguments,
// configuration), each with the line it stands on. Nothing is judged yet (judgement.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "interop/configs/document.hpp"
#include "interop/logs/formats.hpp"

namespace echelon {

/// One printed step. Of several ranks that print the same step one is kept.
struct LoggedStep {
  std::int64_t line = 0;
  std::int64_t step = 0;
  std::optional<double> seconds;  ///< as printed: of this step, or the mean since the last line
  std::optional<double> clock;    ///< seconds: time stamp of the line, or elapsed time printed
  std::optional<double> tokens_per_second;          ///< of the whole job
  std::optional<double> tokens_per_second_per_gpu;  ///< as printed: see StepTime of the format
  std::optional<double> samples_per_second;
  std::optional<double> tflops_per_gpu;
  std::optional<double> global_batch;  ///< samples
  std::optional<double> sequence;      ///< tokens of a sample
  std::optional<double> consumed_samples, consumed_tokens;
  double skipped = 0;    ///< steps skipped since the last line (loss scale fell)
  bool event = false;    ///< a checkpoint, evaluation or change of data since the last line
  bool new_run = false;  ///< the first step of the log, or after a restart
};

/// Memory of one rank, in bytes.
struct LoggedMemory {
  std::int64_t line = 0;
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> after_step;  ///< steps done when it was printed
  std::optional<double> allocated, max_allocated, reserved, max_reserved;
};

/// An argument or configuration value, under the name of the column of a table of runs
/// (evaluation/measured_runs_csv_io.hpp), or a name of `kExtraValues`.
struct LoggedValue {
  std::string name;
  std::string value;
  std::int64_t line = 0;
  std::string key;  ///< as printed: "tensor_model_parallel_size"
};

/// A text on a line.
struct LoggedRemark {
  std::int64_t line = 0;
  std::string text;
};

struct TrainingLog {
  std::string path;
  const LogFormat* format = nullptr;
  int version_from = 0, version_until = 0;  ///< minor of Megatron-Core 0.x; 0: not known
  std::vector<LoggedStep> steps;
  std::int64_t stride = 1;                      ///< of the printed steps every stride-th is kept
  std::int64_t steps_printed = 0;               ///< without duplicates of other ranks
  std::map<std::int64_t, LoggedMemory> memory;  ///< largest figures of each rank; −1: not told
  std::vector<LoggedValue> values;
  ConfigDocument arguments;             ///< all that Megatron-LM prints; empty if the log has none
  std::optional<LoggedRemark> retries;  ///< the allocator had to free cached blocks and retry
  std::optional<LoggedRemark> generates;  ///< reinforcement learning: generation inside the step
  std::int64_t lines = 0;

  /// The first value of that name; null if the log does not say.
  [[nodiscard]] const LoggedValue* find(std::string_view name) const;
};

/// Reads a log of any of formats(). Memory stays below 200 MB: of more than 500,000 printed steps
/// every second, fourth ... is kept. Errors: the file cannot be read, is longer than 16 GiB, has a
/// line of more than 4 MiB, has no line that any format recognizes (the formats are named), or has
/// such lines but none with a step that can be read (line named).
[[nodiscard]] Result<TrainingLog> read_training_log(const std::string& path);
/// The same of a text in memory; `where` names it in errors.
[[nodiscard]] Result<TrainingLog> parse_training_log(std::string_view text,
                                                     const std::string& where);
/// The format of a file, or null: not a training log, or not readable. Reads at most the first
/// 64 MiB.
[[nodiscard]] const LogFormat* training_log_format(const std::string& path);

}  // namespace echelon
