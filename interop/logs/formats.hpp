// The formats of training logs: how each is recognized, and its fields with unit and pattern.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "interop/logs/pattern.hpp"

namespace echelon {

enum class LogQuantity {
  ignored,
  step,
  seconds,
  total_steps,
  elapsed,  ///< since the start of training
  tokens_per_second,
  tokens_per_second_per_gpu,
  samples_per_second,
  tflops_per_gpu,
  global_batch,
  global_batch_tokens,
  consumed_samples,
  consumed_tokens,
  sequence,
  skipped,
  skipped_so_far,
  retries,
  rank,
  after_step,
  allocated,
  max_allocated,
  reserved,
  max_reserved,
};

/// One number of a pattern: what it is, and the factor to seconds, bytes, TFLOP/s.
struct LogCapture {
  LogQuantity quantity = LogQuantity::ignored;
  double scale = 1;
};

/// A pattern (pattern.hpp) and its numbers, in order.
struct LogField {
  std::string_view pattern;
  std::array<LogCapture, kMostCaptures> captures{};
};

/// Numbers outside of step lines that are named values: columns of a table of runs, or
/// kExtraValues.
struct ValueField {
  std::string_view pattern;
  std::array<std::string_view, kMostCaptures> names{};
};

/// A text between two others: the value of `key` in the rules of arguments.
struct TextField {
  std::string_view before, after, key;
};

/// An argument or configuration key. If `when` is empty or is the value ("*x": the value contains
/// x), the column `name` becomes `then`, or the value itself where that is empty.
struct ArgumentRule {
  std::string_view key;
  std::string_view name;
  std::string_view when = "";
  std::string_view then = "";
};

/// Names of values that are not columns of a table of runs.
inline constexpr std::array<std::string_view, 12> kExtraValues = {
    "total_steps",          ///< of the whole training
    "global_batch_tokens",  ///< tokens per step
    "shard_parameters",     ///< of the most loaded shard
    "shard_state_mib",      ///< its weights and optimizer states, MiB
    "layers_per_chunk",     ///< --num-layers-per-virtual-pipeline-stage
    "local_batch",          ///< samples of a data-parallel rank in one microbatch step
    "device",               ///< the GPU as the driver names it
    "dp_replicate",         ///< HSDP: copies of the sharded state
    "dp_shard",             ///< … ranks over which it is sharded
    "device_memory_gib",    ///< capacity of the GPU
    "tokens_per_rank",      ///< of a data-parallel rank and step
    "layer_pattern",        ///< a letter for each layer of one part, as Megatron-LM's
};

/// How arguments stand in the log.
enum Dump : unsigned {
  kDotted = 1,       ///< "  key ........ value", as argparse dumps
  kCommandLine = 2,  ///< "--key value", a command that a script printed
  kAssignments = 4,  ///< "key=value," of a Python repr, or "key=value" of a list
  kDictionary = 8,   ///< "'key': value" or "\"key\": value"
  kYaml = 16,        ///< "key: value" lines
  kTable = 32,       ///< "| key | value |"
};

/// Where the time of a step comes from.
enum class StepTime {
  printed,              ///< seconds on the line
  tokens_of_model_gpu,  ///< local tokens / (rate · tp · cp · pp): torchtitan
  samples,              ///< global batch / samples per second
  clock,                ///< slope of the elapsed time: no line says how long a step took
};

/// A mark of a release: lines with it were printed by core 0.`from` to 0.`until` (0: open).
struct VersionMark {
  std::string_view mark;
  int from = 0, until = 0;
};

struct LogFormat {
  std::string_view name;      ///< "megatron-lm"
  std::string_view title;     ///< "Megatron-LM"
  std::string_view software;  ///< column `framework` of a table of runs
  /// Words that lines of this format have, and lines of the formats after it have not.
  std::span<const std::string_view> marks;
  /// Words of which one is on a line with a step; empty: the marks, or none if fields follow.
  std::span<const std::string_view> step_marks{};
  LogField step;                             ///< what begins a step; captures its number
  std::span<const LogField> step_fields{};   ///< on the line of the step, or on those after it
  std::span<const LogField> other_fields{};  ///< on lines of their own
  std::span<const ValueField> values{};
  std::span<const TextField> texts{};
  std::span<const ArgumentRule> arguments{};
  unsigned dumps = 0;
  std::span<const std::string_view> events{};
  std::span<const VersionMark> versions{};
  StepTime time = StepTime::printed;
  bool fields_follow = false;        ///< fields of a step stand on the lines after it
  bool suffixes = false;             ///< numbers carry K, M, B, T (1000 each)
  bool interval_has_events = false;  ///< the printed time includes checkpoints and evaluation
  bool needs_stamps = false;         ///< the printed rate is not to be trusted alone
  bool data_parallel_only = false;   ///< the software has no other parallel axis
};

/// From the special to the general: the first whose marks a log shows is its format.
[[nodiscard]] std::span<const LogFormat> log_formats();

}  // namespace echelon
