// JSON of plans and predictions, one spelling for plan files and reports. Include it only in
// *_io.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/json/json_io.hpp"
#include "core/plan/plan_fields.hpp"
#include "core/plan/plan_file.hpp"

namespace echelon {

/// The formula behind every MFU we print (ModelSpec::flops_per_token): T the sequence, D the mean
/// length of the document that a token lies in, where attention stays within documents; K the keys
/// that a query of sparse attention attends to, whose indexer counts too; A the parameters of
/// adapters, where all others are frozen.
[[nodiscard]] inline std::string mfu_formula(const TrainingJob& job, bool sparse) {
  const std::string weights = job.adapters ? "4N+6A+" : "6N+";
  if (sparse) return weights + "12LhK+indexer";
  return weights + (job.documents ? "12LhD" : "12LhT");
}

/// A finite number; a NaN or an infinity is our bug and stops the program.
[[nodiscard]] double finite(double value, std::string_view what);
/// The most bytes that a plan file may state: whole_bytes() can write them again.
inline constexpr double kMaxBytes = 1e18;
/// Bytes as a whole number.
[[nodiscard]] std::int64_t whole_bytes(Bytes bytes);
/// … of a limit: rounded down, so that what is written is within it.
[[nodiscard]] inline std::int64_t whole_bytes_within(Bytes limit) {
  return whole_bytes(Bytes{std::floor(limit.in(kByte))});
}

/// The key of a field by itself: "tp", "bucket_bytes".
[[nodiscard]] std::string json_key(const PlanField& field);
/// One field's value: a number, a name, a list; null where there is none.
[[nodiscard]] Json value_json(const PlanField& field, const ParallelPlan& plan);
/// Recomputed or offloaded modules: a list of names, read under `key`. Without the key it is empty,
/// as in plans of versions without them.
template <class Module>
[[nodiscard]] Json modules_json(const ModuleSet<Module>& modules);
template <class Module>
[[nodiscard]] ModuleSet<Module> modules_from(JsonReader& reader, std::string_view key);
/// All fields, those that share a flag in one list ("overlap") or object ("offload").
[[nodiscard]] Json plan_json(const ParallelPlan& plan, std::int64_t global_batch);
[[nodiscard]] Json memory_json(const Prediction& costs);
[[nodiscard]] Json time_json(const Prediction& costs);
/// fits_probability; null where a limit on memory was given instead.
[[nodiscard]] Json probability_json(const Prediction& costs);
[[nodiscard]] Json throughput_json(const Prediction& costs, std::int64_t gpus,
                                   const TrainingJob& job, bool sparse);

[[nodiscard]] Result<ParallelPlan> plan_from_json(const Json& object, const std::string& where,
                                                  const std::string& pointer);
/// Reads what the four functions above write (`kind` and `fits` stand beside them in `object`).
[[nodiscard]] Result<Prediction> costs_from_json(const Json& object, const std::string& where,
                                                 const std::string& pointer);

}  // namespace echelon
