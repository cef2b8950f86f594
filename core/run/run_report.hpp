// RunReport: measurements of a run of a plan, next to the prediction. docs/run.md describes it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plan/plan_file.hpp"
#include "core/run/run_goodput.hpp"

namespace echelon {

/// One optimizer step of a run.
struct RunStep {
  std::int64_t step = 0;  ///< counted from 0 over all resumed runs
  double loss = 0;        ///< mean over the tokens of the global batch
  double gradient_norm = 0;
  double learning_rate = 0;
  Seconds seconds;
  double tokens_per_second = 0;
  std::vector<std::string> notes;  ///< "loss spike: 9.1 after 4.2", "gradients clipped"
  bool operator==(const RunStep&) const = default;
};

/// Start and end of one instruction in the recorded step, relative to the start of that step.
struct ExecutedSpan {
  std::int32_t rank = 0;          ///< global
  std::uint32_t instruction = 0;  ///< in the program of its pipeline rank
  Seconds start;
  Seconds end;
  bool operator==(const ExecutedSpan&) const = default;
};

/// How long one rank computes in a step, mean of the measured steps.
struct RankTime {
  int rank = 0;
  int stage = 0;
  Seconds computes;  ///< its compute queue, without waiting for others or for a core
  Seconds behind;    ///< more than the (lower) median of its stage's ranks: others wait that long
  bool operator==(const RankTime&) const = default;
};

/// Simple noise scale of the gradient, tr(Σ)/|G|²: an estimate of the critical batch size, above
/// which larger batches need more tokens to reach the same loss.
/// Source: McCandlish et al., arXiv 1812.06162, section 2.2 and appendix A.1.
struct GradientNoise {
  static constexpr std::int64_t kMinEstimates = 30;  ///< with fewer estimates nothing is reported

  std::int64_t estimates = 0;  ///< number of estimates
  std::int64_t window = 0;     ///< number of latest estimates behind the numbers below; 0: too few
  double batch = 0;            ///< in samples; infinite if |G|² is indistinguishable from 0
  double low = 0;              ///< 80 % interval
  double high = 0;             ///< may be infinite
  [[nodiscard]] bool known() const { return window > 0; }
  bool operator==(const GradientNoise&) const = default;
};

/// RunReport::environment: cores that other programs used while steps were measured, "1.40 of 2".
inline constexpr const char* kOtherPrograms = "cores used by other programs";
/// … processor time of a step, of all threads of all ranks: "0.2459 s".
inline constexpr const char* kProcessorTime = "processor time of a step";
/// … threads of a rank's kernels: "2".
inline constexpr const char* kThreadsPerRank = "threads per rank";

struct RunReport {
  static constexpr int kSchema = 2;
  enum class End { completed, interrupted, failed };

  std::string plan_path;
  PlanFile plan;              ///< the executed plan, with its prediction
  std::string schedule_hash;  ///< hash of the plan's program
  std::string executed_hash;  ///< hash of the executed program
  std::string backend = "cpu";
  std::string launcher = "local";
  int ranks = 1;
  End end = End::completed;
  std::string reason;  ///< reason for ending before the last step
  std::vector<RunStep> steps;
  /// Parts of the time as CostBreakdown defines them, medians over the measured steps; memory per
  /// pipeline stage, the maximum over its ranks. Absent if no step was measured.
  std::optional<Prediction> measured;
  Bytes process_peak;  ///< as reported by the operating system, for all ranks together
  /// Host memory of the largest rank for asynchronous checkpoints, besides `measured`.
  Bytes checkpoint_copy;
  std::vector<ExecutedSpan> spans;
  std::vector<RankTime> rank_times;  ///< of all ranks, if a step was measured
  GradientNoise noise;
  MeasuredGoodput goodput;          ///< if it has a folder of checkpoints
  std::vector<std::string> advice;  ///< sentences: learning rate, batch
  std::map<std::string, std::string> environment;
};
[[nodiscard]] std::string_view name_of(RunReport::End end);

/// How busy other programs kept a machine of the run while its steps were measured.
struct OtherPrograms {
  double used = 0;  ///< cores
  int cores = 0;    ///< that the run may use
};
/// Nothing if the report does not say.
[[nodiscard]] std::optional<OtherPrograms> other_programs(const RunReport& report);

/// The file's text; the same report gives the same bytes.
[[nodiscard]] std::string run_report_to_json(const RunReport& report);
/// Errors: as for parse_plan_file, which reads the embedded plan.
[[nodiscard]] Result<RunReport> parse_run_report(std::string_view json, std::string_view where);
[[nodiscard]] Result<RunReport> read_run_report(const std::string& path);

}  // namespace echelon
