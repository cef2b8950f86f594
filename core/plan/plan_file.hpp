// PlanFile: a plan with the request it answers and its predicted costs.
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

/// The results of a prediction.
struct Prediction {
  Evidence evidence = Evidence::extrapolated;
  bool fits = false;
  std::optional<double> fits_probability;  ///< nothing: a limit on memory was given instead
  Bytes capacity;                          ///< of the GPU
  Bytes peak;                              ///< largest total over the stages
  Bytes peak_reserved;                     ///< the peak plus the caching allocator's reserve
  std::vector<MemoryBreakdown> stages;
  CostBreakdown time;
  std::vector<StageTime> stage_times;  ///< per pipeline stage; empty: unknown
  /// The step with the closed form of its pipeline; that of `time` is simulated.
  std::optional<Seconds> closed_form;
  Seconds low;  ///< 80 % band of the step time
  Seconds high;
  double tokens_per_second = 0;
  FlopsPerSecond model_flops_per_gpu;
  double mfu = 0;

  bool operator==(const Prediction&) const = default;
};

/// Self-contained: on another machine it describes the same model, job, cluster and plan, and
/// contains the instructions that were priced.
struct PlanFile {
  static constexpr int kSchema = 4;

  std::string version;  ///< version of the program that wrote it
  ModelSpec model;      ///< all shapes, so that reading needs no catalog
  TrainingJob job;
  std::string cluster;  ///< catalog name, or path of a description
  int gpus = 0;
  std::string framework;
  std::string calibration;       ///< its name
  std::string calibration_path;  ///< the user's file; empty for a built-in calibration
  Bytes keep_free;
  std::optional<Bytes> max_memory;
  std::vector<std::string> assumptions;  ///< defaults that were assumed, as text
  std::string cluster_hash;              ///< hash of the cluster description at the time of writing
  std::string calibration_hash;          ///< hash of the calibration
  ParallelPlan plan;
  Prediction predicted;
  std::string
      program;  ///< the lowered schedule (core/schedule/schedule.hpp, to_text) that is executed
};

/// The file's text; the same plan gives the same bytes. docs/plan-file.md describes it.
[[nodiscard]] std::string plan_file_to_json(const PlanFile& file);
/// Errors: not JSON, not a plan file, an older or newer schema, a missing or unknown key, a value
/// out of range, contradictory parts, a hash that differs from that of the contents (damaged or
/// edited). The program is not parsed; parse_schedule_text does that before a run.
[[nodiscard]] Result<PlanFile> parse_plan_file(std::string_view json, std::string_view where);
[[nodiscard]] Result<PlanFile> read_plan_file(const std::string& path);

}  // namespace echelon
