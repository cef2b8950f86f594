#include "core/plan/plan_json_io.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace echelon {

namespace {

constexpr double kMostFieldBytes = 1e15;
constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();

/// A list of whole numbers ≥ `least`.
std::vector<int> int_list(JsonReader& reader, std::string_view key, int least) {
  std::vector<int> values;
  const Json* list = reader.member(key);
  const std::string expected = "a list of whole numbers, one per stage";
  if (list == nullptr || !list->is_array()) {
    reader.fail(key, list == nullptr ? "the key is missing" : "not a list", expected);
    return values;
  }
  for (const Json& item : *list) {
    const bool right = item.is_number_integer() && item.get<double>() >= least &&
                       item.get<double>() <= static_cast<double>(kMostInt);
    if (!right) {
      reader.fail(key, item.dump().substr(0, 40) + " in the list", expected);
      return values;
    }
    values.push_back(item.get<int>());
  }
  return values;
}

/// "weights_bytes"
std::string key_of(const NamedMemory& part) { return std::string(part.name) + "_bytes"; }

/// "tp_comm_exposed_seconds"
std::string key_of(const StepPart& part) { return std::string(part.key) + "_seconds"; }

struct StageTimePart {
  const char* key;
  Seconds StageTime::*part;
};
constexpr StageTimePart kStageTimeParts[] = {
    {"compute_seconds", &StageTime::compute},
    {"recompute_seconds", &StageTime::recompute},
    {"communication_wait_seconds", &StageTime::communication_wait},
    {"fill_drain_seconds", &StageTime::fill_drain},
    {"imbalance_seconds", &StageTime::imbalance},
    {"stragglers_seconds", &StageTime::stragglers},
    {"optimizer_seconds", &StageTime::optimizer},
    {"host_seconds", &StageTime::host},
    {"data_seconds", &StageTime::data},
};

const Json& object_at(JsonReader& reader, std::string_view key) {
  static const Json kNone;
  const Json* value = reader.member(key);
  return value == nullptr ? kNone : *value;
}

Status read_memory(const Json& object, const std::string& where, const std::string& pointer,
                   Prediction& costs) {
  JsonReader reader(object, where, pointer);
  costs.capacity = Bytes{reader.number("capacity_bytes", 0, kMaxBytes)};
  costs.peak = Bytes{reader.number("peak_bytes", 0, kMaxBytes)};
  costs.peak_reserved = Bytes{reader.number("peak_reserved_bytes", 0, kMaxBytes)};
  const Json& stages = object_at(reader, "stages");
  if (!stages.is_array()) reader.fail("stages", "not a list", "a list with one object per stage");
  if (const Status read = reader.finish(); !read) return read;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    JsonReader stage(stages[i], where, pointer + "/stages/" + std::to_string(i));
    MemoryBreakdown parts;
    for (const NamedMemory& part : kMemoryParts) {
      parts.*part.part = Bytes{stage.number(key_of(part), 0, kMaxBytes)};
    }
    stage.ignore({"stage", "total_bytes"});  // derived
    if (const Status read = stage.finish(); !read) return read;
    costs.stages.push_back(parts);
  }
  return Done{};
}

/// A file from before the bubble was divided has all of it where the schedule imposes it, and
/// nothing of the stages. Stragglers were part of communication or imbalance before they had a key.
Status read_time(const Json& object, const std::string& where, const std::string& pointer,
                 Prediction& costs) {
  JsonReader times(object, where, pointer);
  const bool divided = times.has("fill_drain_seconds");
  for (const StepPart& part : kStepParts) {
    const bool idle =
        part.member == &CostBreakdown::fill_drain || part.member == &CostBreakdown::imbalance;
    if (idle && !divided) continue;
    if (part.member == &CostBreakdown::stragglers && !times.has(key_of(part))) continue;
    part.of(costs.time) = Seconds{times.number(key_of(part), -kLargestNumber)};
  }
  if (divided)
    times.ignore({"bubble_seconds"});  // their sum
  else
    costs.time.fill_drain = Seconds{times.number("bubble_seconds", -kLargestNumber)};
  costs.low = Seconds{times.number("low_seconds", 0)};
  costs.high = Seconds{times.number("high_seconds", 0)};
  if (times.has("closed_form_seconds"))
    costs.closed_form = Seconds{times.number("closed_form_seconds", 0)};
  // The sum of the parts; what files of schema 3 and before hold beside their closed form.
  times.ignore({"step_seconds", "closed_form_seconds", "simulated_seconds"});
  const Json* stages = times.member("stages");
  if (stages != nullptr && !stages->is_array())
    times.fail("stages", "not a list", "a list with one object per stage");
  if (const Status read = times.finish(); !read || stages == nullptr) return read;
  for (std::size_t i = 0; i < stages->size(); ++i) {
    JsonReader stage((*stages)[i], where, pointer + "/stages/" + std::to_string(i));
    StageTime parts;
    for (const StageTimePart& part : kStageTimeParts) {
      if (part.part == &StageTime::stragglers && !stage.has(part.key)) continue;
      parts.*part.part = Seconds{stage.number(part.key, -kLargestNumber)};
    }
    stage.ignore({"stage"});  // its place
    if (const Status read = stage.finish(); !read) return read;
    costs.stage_times.push_back(parts);
  }
  return Done{};
}

/// Counts of selectively recomputed layers are those of a mix; other plans have none. Experts that
/// are not split need no dispatcher, and most plans use no CUDA graphs.
bool in_json(const PlanField& field, const ParallelPlan& plan) {
  if (field.is(&ParallelPlan::dispatcher)) {
    return plan.ep > 1 || plan.dispatcher != Dispatcher::alltoall;
  }
  if (field.is(&ParallelPlan::cuda_graphs)) return plan.cuda_graphs != CudaGraphs::none;
  return !field.is(&ParallelPlan::selective_layers) || plan.recompute == Recompute::mixed;
}

/// Names that files may lack: those of plans written before there was a choice, too.
bool may_be_missing(const PlanField& field) {
  return field.is(&ParallelPlan::dispatcher) || field.is(&ParallelPlan::cuda_graphs);
}

/// The policy, which says what else is there. One that is none is an error later on.
void read_recompute(JsonReader& reader, ParallelPlan& plan) {
  const PlanField& field = plan_field<&ParallelPlan::recompute>;
  (void)set_name(field, reader.string(json_key(field)), "", plan);
}

/// A field that has a key of its own, but for names, which are parsed when all keys were read.
void read_value(JsonReader& reader, const PlanField& field, ParallelPlan& plan) {
  const std::string key = json_key(field);
  std::visit(
      [&](auto member) {
        auto& value = plan.*member;
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, int>) {
          // Plans without the key were written before there was a choice.
          if (field.is(&ParallelPlan::microbatch_group) && !reader.has(key)) {
            value = plan.vpp > 1 ? plan.pp : 1;
            return reader.ignore({key});
          }
          const std::int64_t most = field.max > 0 ? field.max : kMostInt;
          value = static_cast<int>(reader.integer(key, field.min, most));
        } else if constexpr (std::is_same_v<Value, bool>) {
          value = reader.boolean(key);
        } else if constexpr (std::is_same_v<Value, std::vector<int>>) {
          value = int_list(reader, key, 0);
        } else if constexpr (std::is_same_v<Value, std::optional<Bytes>>) {
          // Plans without the key were written before there was a choice; null: none was made.
          if (reader.has(key)) value = Bytes{reader.number(key, 1, kMostFieldBytes)};
          reader.ignore({key});
        } else if constexpr (module_set<Value>) {
          value = modules_from<typename Value::Element>(reader, key);
        } else {
          (void)reader.string(key);
        }
      },
      field.member);
}

/// All fields of the list that this one is the first of.
void read_listed(JsonReader& reader, const PlanField& first, ParallelPlan& plan) {
  std::vector<const PlanField*> fields;
  std::string parts;
  for (const PlanField* field : kPlanFieldsInJson) {
    if (field->flag != first.flag) continue;
    fields.push_back(field);
    parts += (parts.empty() ? "" : ", ") + std::string(field->part);
  }
  const Json& list = object_at(reader, first.flag);
  if (!list.is_array()) reader.fail(first.flag, "not a list", "a list of " + parts);
  for (const PlanField* field : fields) {
    plan.*std::get<bool ParallelPlan::*>(field->member) =
        std::ranges::find(list, Json(field->part)) != list.end();
  }
  for (const Json& item : list) {
    const bool known =
        std::ranges::any_of(fields, [&](const PlanField* field) { return item == field->part; });
    if (!known) reader.fail(first.flag, item.dump().substr(0, 40) + " in the list", parts);
  }
}

Status read_share(const Json& shares, const PlanField& field, const std::string& where,
                  const std::string& pointer, ParallelPlan& plan) {
  JsonReader reader(shares, where, pointer + "/" + std::string(field.flag));
  plan.*std::get<double ParallelPlan::*>(field.member) = reader.number_or(field.part, 0, 1, 0);
  return reader.finish();
}

Json stage_times_json(const std::vector<StageTime>& times) {
  Json stages = Json::array();
  for (std::size_t i = 0; i < times.size(); ++i) {
    Json stage{{"stage", i}};
    for (const StageTimePart& part : kStageTimeParts) {
      stage[part.key] = finite((times[i].*part.part).in(kSecond), part.key);
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace

double finite(double value, std::string_view what) {
  EXPECTS(std::isfinite(value), std::string(what) + " is not a finite number");
  return value;
}

std::int64_t whole_bytes(Bytes bytes) {
  return std::llround(finite(bytes.in(kByte), "a number of bytes"));
}

std::string json_key(const PlanField& field) {
  return std::string(field.key) + (field.kind == PlanFieldKind::size ? "_bytes" : "");
}

Json value_json(const PlanField& field, const ParallelPlan& plan) {
  return std::visit(
      [&](auto member) -> Json {
        const auto& value = plan.*member;
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_enum_v<Value>) {
          return name_of(value);
        } else if constexpr (std::is_same_v<Value, std::optional<Bytes>>) {
          return value ? Json(whole_bytes(*value)) : Json(nullptr);
        } else if constexpr (module_set<Value>) {
          return modules_json(value);
        } else {
          return value;
        }
      },
      field.member);
}

Json plan_json(const ParallelPlan& plan, std::int64_t global_batch) {
  Json out = Json::object();
  for (const PlanField* field : kPlanFieldsInJson) {
    Json value = value_json(*field, plan);
    if (field->kind == PlanFieldKind::listed) {
      Json& list = out.emplace(field->flag, Json::array()).first.value();
      if (value == true) list.push_back(field->part);
    } else if (field->kind == PlanFieldKind::share) {
      Json& object = out.emplace(field->flag, Json::object()).first.value();
      if (value > 0) object[std::string(field->part)] = std::move(value);
    } else if (in_json(*field, plan) && !(field->kind == PlanFieldKind::modules && value.empty())) {
      out[json_key(*field)] = std::move(value);
    }
    if (field->is(&ParallelPlan::microbatch)) {
      out["microbatches"] = plan.microbatches_rounded_up(global_batch);
    }
  }
  return out;
}

Json memory_json(const Prediction& costs) {
  Json stages = Json::array();
  for (std::size_t i = 0; i < costs.stages.size(); ++i) {
    Json stage{{"stage", i}};
    std::int64_t total = 0;  // of the whole numbers shown, so that the parts sum to it exactly
    for (const NamedMemory& part : kMemoryParts) {
      const std::int64_t bytes = whole_bytes(costs.stages[i].*part.part);
      stage[key_of(part)] = bytes;
      total += bytes;
    }
    stage["total_bytes"] = total;
    stages.push_back(std::move(stage));
  }
  return Json{{"capacity_bytes", whole_bytes_within(costs.capacity)},
              {"peak_bytes", whole_bytes(costs.peak)},
              {"peak_reserved_bytes", whole_bytes(costs.peak_reserved)},
              {"stages", std::move(stages)}};
}

Json time_json(const Prediction& costs) {
  Json time{{"step_seconds", finite(costs.time.total().in(kSecond), "the step time")},
            {"low_seconds", finite(costs.low.in(kSecond), "the low end of the step time")},
            {"high_seconds", finite(costs.high.in(kSecond), "the high end of the step time")}};
  for (const StepPart& part : kStepParts) {
    time[key_of(part)] = finite(part.of(costs.time).in(kSecond), key_of(part));
  }
  time["bubble_seconds"] = finite(costs.time.bubble().in(kSecond), "the bubble");
  time["closed_form_seconds"] =
      costs.closed_form
          ? Json(finite(costs.closed_form->in(kSecond), "the closed form of the step"))
          : Json(nullptr);
  time["stages"] = stage_times_json(costs.stage_times);
  return time;
}

Json probability_json(const Prediction& costs) {
  return costs.fits_probability
             ? Json(finite(*costs.fits_probability, "the probability of fitting"))
             : Json(nullptr);
}

Json throughput_json(const Prediction& costs, std::int64_t gpus, const TrainingJob& job,
                     bool sparse) {
  const double tokens = finite(costs.tokens_per_second, "tokens per second");
  return Json{{"tokens_per_second", tokens},
              {"tokens_per_second_per_gpu", tokens / static_cast<double>(gpus)},
              {"model_tflops_per_gpu",
               finite(costs.model_flops_per_gpu.in(1_TFLOPS), "model FLOP/s per GPU")},
              {"mfu", finite(costs.mfu, "MFU")},
              {"mfu_formula", mfu_formula(job, sparse)}};
}

Result<ParallelPlan> plan_from_json(const Json& object, const std::string& where,
                                    const std::string& pointer) {
  JsonReader reader(object, where, pointer);
  ParallelPlan plan;
  read_recompute(reader, plan);
  for (const PlanField* field : kPlanFieldsInJson) {
    if (field->kind == PlanFieldKind::listed) {
      if (field == plan_field_of(field->flag)) read_listed(reader, *field, plan);
    } else if (field->kind == PlanFieldKind::share) {
      const Json& shares = object_at(reader, field->flag);
      if (!shares.is_object()) {
        reader.fail(field->flag, "not an object",
                    "{} or {\"" + std::string(field->part) + "\": SHARE}");
      }
      if (reader.failed()) return reader.finish().error();
      if (const Status read = read_share(shares, *field, where, pointer, plan); !read) {
        return read.error();
      }
    } else if (may_be_missing(*field)) {
      reader.ignore({json_key(*field)});
    } else if (in_json(*field, plan)) {
      read_value(reader, *field, plan);
    }
  }
  if (plan.recompute == Recompute::mixed &&
      plan.selective_layers.size() != plan.recompute_layers.size()) {
    reader.fail("selective_layers", std::to_string(plan.selective_layers.size()) + " entries",
                "as many as recompute_layers, one per stage");
  }
  reader.ignore({"microbatches"});  // derived
  if (const Status read = reader.finish(); !read) return read.error();
  for (const PlanField& field : plan_fields()) {
    if (field.kind != PlanFieldKind::name) continue;
    const std::string key = json_key(field);
    if (may_be_missing(field) && !reader.has(key)) continue;
    const Status known = set_name(field, reader.string(key), reader.pointer_to(key), plan);
    if (!known) return known.error();
  }
  return plan;
}

Result<Prediction> costs_from_json(const Json& object, const std::string& where,
                                   const std::string& pointer) {
  JsonReader reader(object, where, pointer);
  Prediction costs;
  const std::string kind = reader.choice("kind", {"measured", "calibrated", "extrapolated"});
  costs.evidence = kind == "measured"     ? Evidence::measured
                   : kind == "calibrated" ? Evidence::calibrated
                                          : Evidence::extrapolated;
  costs.fits = reader.boolean("fits");
  if (reader.has("fits_probability"))
    costs.fits_probability = reader.number("fits_probability", 0, 1);
  reader.ignore({"fits_probability"});
  const Json& memory = object_at(reader, "memory");
  const Json& time = object_at(reader, "time");
  const Json& throughput = object_at(reader, "throughput");
  if (const Status read = reader.finish(); !read) return read.error();
  Status parts = read_memory(memory, where, pointer + "/memory", costs);
  if (parts) parts = read_time(time, where, pointer + "/time", costs);
  if (!parts) return parts.error();
  JsonReader rates(throughput, where, pointer + "/throughput");
  costs.tokens_per_second = rates.number("tokens_per_second", 0);
  costs.model_flops_per_gpu = rates.number("model_tflops_per_gpu", 0) * 1_TFLOPS;
  costs.mfu = rates.number("mfu", 0);
  rates.ignore({"tokens_per_second_per_gpu", "mfu_formula", "mfu_causal"});
  if (const Status read = rates.finish(); !read) return read.error();
  return costs;
}

}  // namespace echelon
