// PlanFile: a plan together with everything it was made for, and what it was predicted to cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "core/model/model.hpp"
#include "core/plan/cost.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// What a prediction says, without the machinery that made it.
struct Prediction {
  Evidence evidence = Evidence::extrapolated;
  bool fits = false;
  Bytes capacity;       ///< of the GPU
  Bytes peak;           ///< largest total over the stages
  Bytes peak_reserved;  ///< … with the caching allocator's reserve on top
  std::vector<MemoryBreakdown> stages;
  CostBreakdown time;
  std::vector<StageTime> stage_times;  ///< per pipeline stage; empty: not told
  std::optional<Seconds> simulated;    ///< the step as the schedule simulator finds it
  Seconds low;                         ///< 80 % band of the step time
  Seconds high;
  double tokens_per_second = 0;
  FlopsPerSecond model_flops_per_gpu;
  double mfu = 0;

  bool operator==(const Prediction&) const = default;
};

/// Self-contained: read back on another machine it names the same model, job, cluster and plan,
/// and holds the instructions that were priced.
struct PlanFile {
  static constexpr int kSchema = 3;

  std::string version;  ///< of the program that wrote it
  ModelSpec model;      ///< every shape, so that no catalog is needed to read it
  TrainingJob job;
  std::string cluster;  ///< catalog name, or path of a description
  int gpus = 0;
  std::string stack;
  std::string calibration;       ///< its name
  std::string calibration_path;  ///< a user's own file; empty for a shipped calibration
  Bytes keep_free;
  std::optional<Bytes> max_memory;
  std::vector<std::string> assumptions;  ///< what was filled in by default, in words
  std::string cluster_hash;      ///< fingerprint of the cluster's description when it was written
  std::string calibration_hash;  ///< … of the calibration
  ParallelPlan plan;
  Prediction predicted;
  std::string
      program;  ///< the lowered schedule (core/schedule/schedule.hpp, to_text): what is executed
};

/// The file's text; the same plan gives the same bytes. docs/plan-file.md describes it.
[[nodiscard]] std::string plan_file_to_json(const PlanFile& file);
/// Errors: not JSON, not a plan file, an older or newer schema, a key missing, unknown or out of
/// range, parts that contradict each other, a hash that is not that of the contents (damaged or
/// edited). The program's lines are not looked at: parse_schedule_text does that for who runs them.
[[nodiscard]] Result<PlanFile> parse_plan_file(std::string_view json, std::string_view where);
[[nodiscard]] Result<PlanFile> read_plan_file(const std::string& path);

}  // namespace echelon
