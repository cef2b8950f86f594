// Which steps of a log represent the job, and whether the log can be trusted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "interop/logs/run_facts.hpp"
#include "interop/logs/training_log.hpp"

namespace echelon {

/// The time of a step, from the windows of a log that represent it. A window is what one line
/// reports: a step, or the mean of the steps since the last line.
struct StepJudgement {
  std::optional<Seconds> step;  ///< the median; empty: `needs` or `refused` says why
  int windows = 0;              ///< used
  int printed = 0;              ///< of the log
  double spread = 0;            ///< interquartile range / median
  std::int64_t first_line = 0, last_line = 0;
  std::optional<Seconds> wall;       ///< the second clock: time stamps, per step
  std::vector<std::string> dropped;  ///< "1 first window of a run"
  std::vector<std::string> needs;    ///< facts without which rates are no times: columns
  std::string refused;               ///< why the log cannot be learned from, with the line; or ""
  std::optional<double> tokens_per_second_per_gpu, tflops_per_gpu;  ///< as printed, of the median
};

/// Dropped from each run in the log: its first window; the one that still contains the second step
/// when lines are rarer than steps (compilation); windows with a checkpoint, evaluation or change
/// of data where the printed time includes them; windows with a skipped step; windows of a smaller
/// global batch (ramp-up); leading windows over 5 % slower than the rest (warm-up).
/// Refused: allocation retries, generation inside the step, every step skipped, two sequence
/// lengths, variable tokens per step, facts that contradict each other, two clocks that disagree (a
/// median of time stamps below 0.9 or above 1.25 times the printed times), fewer than three
/// windows.
/// Sources for the thresholds: [Megatron-LM on 252 A100, LEONARDO] 1553 ms in the first 50 steps,
/// 1212 from 150 on; [DeepSpeed on 8 A100, Polaris] CurrSamplesPerSec 74.8 where steps of 16.07 s
/// give 15.93.
[[nodiscard]] StepJudgement judge_steps(const TrainingLog& log, const RunFacts& facts);

}  // namespace echelon
