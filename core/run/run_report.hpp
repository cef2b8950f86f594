// RunReport: what a run of a plan measured, beside what was predicted. docs/run.md describes it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plan/plan_file.hpp"

namespace echelon {

/// One optimizer step as the run saw it.
struct RunStep {
  std::int64_t step = 0;  ///< from 0, counted over all resumed runs
  double loss = 0;        ///< mean over the tokens of the global batch
  double gradient_norm = 0;
  double learning_rate = 0;
  Seconds seconds;
  double tokens_per_second = 0;
  std::vector<std::string> notes;  ///< "loss spike: 9.1 after 4.2", "gradients clipped"
  bool operator==(const RunStep&) const = default;
};

/// When one instruction ran in the step that was recorded, from the beginning of that step.
struct ExecutedSpan {
  std::int32_t rank = 0;          ///< global
  std::uint32_t instruction = 0;  ///< in the program of its pipeline rank
  Seconds start;
  Seconds end;
  bool operator==(const ExecutedSpan&) const = default;
};

/// Simple noise scale of the gradient, tr(Σ)/|G|²: about the critical batch, from which on larger
/// batches need more tokens to the same loss.
/// Source: McCandlish et al., arXiv 1812.06162, section 2.2 and appendix A.1.
struct GradientNoise {
  static constexpr std::int64_t kFewest = 30;  ///< estimates below which nothing is said

  std::int64_t estimates = 0;  ///< steps that gave one
  std::int64_t window = 0;     ///< the latest of them, which the numbers below are of; 0: too few
  double batch = 0;            ///< in samples; infinite where |G|² cannot be told from 0
  double low = 0;              ///< 80 % interval
  double high = 0;             ///< may be infinite
  [[nodiscard]] bool known() const { return window > 0; }
  bool operator==(const GradientNoise&) const = default;
};

/// RunReport::environment: cores that other programs used while steps were measured, "1.40 of 2".
inline constexpr const char* kOtherPrograms = "cores used by other programs";

struct RunReport {
  static constexpr int kSchema = 2;
  enum class End { completed, interrupted, failed };

  std::string plan_path;
  PlanFile plan;              ///< what was executed, with its prediction
  std::string schedule_hash;  ///< of the plan's program
  std::string executed_hash;  ///< of what was executed
  std::string backend = "cpu";
  std::string launcher = "local";
  int ranks = 1;
  End end = End::completed;
  std::string reason;  ///< why it ended before its last step
  std::vector<RunStep> steps;
  /// Parts of time as CostBreakdown defines them, medians over the measured steps; memory per
  /// pipeline stage, the largest of its ranks. Absent when no step was measured.
  std::optional<Prediction> measured;
  Bytes process_peak;  ///< what the operating system saw, all ranks together
  std::vector<ExecutedSpan> spans;
  GradientNoise noise;
  std::vector<std::string> advice;  ///< sentences: learning rate, batch, checkpoints
  std::map<std::string, std::string> environment;
};
[[nodiscard]] std::string_view name_of(RunReport::End end);

/// The file's text; the same report gives the same bytes.
[[nodiscard]] std::string run_report_to_json(const RunReport& report);
/// Errors: as parse_plan_file, which reads the plan inside.
[[nodiscard]] Result<RunReport> parse_run_report(std::string_view json, std::string_view where);
[[nodiscard]] Result<RunReport> read_run_report(const std::string& path);

}  // namespace echelon
