#include "core/plan/plan_json_io.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace echelon {

namespace {

constexpr double kHuge = 1e30;
constexpr double kMostBucket = 1e15;

std::int64_t limit_of_int() { return std::numeric_limits<int>::max(); }

/// A list of whole numbers ≥ `least`.
std::vector<int> int_list(JsonReader& reader, const char* key, int least) {
  std::vector<int> values;
  const Json* list = reader.member(key);
  const std::string expected = "a list of whole numbers, one per stage";
  if (list == nullptr || !list->is_array()) {
    reader.fail(key, list == nullptr ? "the key is missing" : "not a list", expected);
    return values;
  }
  for (const Json& item : *list) {
    const bool right = item.is_number_integer() && item.get<double>() >= least &&
                       item.get<double>() <= static_cast<double>(limit_of_int());
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

struct TimePart {
  const char* key;
  Seconds CostBreakdown::*part;
};
constexpr TimePart kTimeParts[] = {
    {"compute_seconds", &CostBreakdown::compute},
    {"recompute_seconds", &CostBreakdown::recompute},
    {"tp_comm_exposed_seconds", &CostBreakdown::tp_comm_exposed},
    {"cp_comm_exposed_seconds", &CostBreakdown::cp_comm_exposed},
    {"ep_comm_exposed_seconds", &CostBreakdown::ep_comm_exposed},
    {"pp_comm_exposed_seconds", &CostBreakdown::pp_comm_exposed},
    {"dp_comm_exposed_seconds", &CostBreakdown::dp_comm_exposed},
    {"fill_drain_seconds", &CostBreakdown::fill_drain},
    {"imbalance_seconds", &CostBreakdown::imbalance},
    {"optimizer_seconds", &CostBreakdown::optimizer},
    {"host_seconds", &CostBreakdown::host},
    {"data_seconds", &CostBreakdown::data},
};

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
    {"optimizer_seconds", &StageTime::optimizer},
    {"host_seconds", &StageTime::host},
    {"data_seconds", &StageTime::data},
};

const Json& object_at(JsonReader& reader, const char* key) {
  static const Json kNone;
  const Json* value = reader.member(key);
  return value == nullptr ? kNone : *value;
}

Status read_memory(const Json& object, const std::string& where, const std::string& pointer,
                   Prediction& costs) {
  JsonReader reader(object, where, pointer);
  costs.capacity = Bytes{reader.number("capacity_bytes", 0, kHuge)};
  costs.peak = Bytes{reader.number("peak_bytes", 0, kHuge)};
  costs.peak_reserved = Bytes{reader.number("peak_reserved_bytes", 0, kHuge)};
  const Json& stages = object_at(reader, "stages");
  if (!stages.is_array()) reader.fail("stages", "not a list", "a list with one object per stage");
  if (const Status read = reader.finish(); !read) return read;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    JsonReader stage(stages[i], where, pointer + "/stages/" + std::to_string(i));
    MemoryBreakdown parts;
    for (const NamedMemory& part : kMemoryParts) {
      parts.*part.part = Bytes{stage.number(key_of(part), 0, kHuge)};
    }
    stage.ignore({"stage", "total_bytes"});  // derived
    if (const Status read = stage.finish(); !read) return read;
    costs.stages.push_back(parts);
  }
  return Done{};
}

/// A file from before the bubble was divided has all of it where the schedule imposes it, and
/// nothing of the stages.
Status read_time(const Json& object, const std::string& where, const std::string& pointer,
                 Prediction& costs) {
  JsonReader times(object, where, pointer);
  const bool divided = times.has("fill_drain_seconds");
  for (const TimePart& part : kTimeParts) {
    const bool idle =
        part.part == &CostBreakdown::fill_drain || part.part == &CostBreakdown::imbalance;
    if (idle && !divided) continue;
    costs.time.*part.part = Seconds{times.number(part.key, -kHuge, kHuge)};
  }
  if (divided)
    times.ignore({"bubble_seconds"});  // their sum
  else
    costs.time.fill_drain = Seconds{times.number("bubble_seconds", -kHuge, kHuge)};
  costs.low = Seconds{times.number("low_seconds", 0, kHuge)};
  costs.high = Seconds{times.number("high_seconds", 0, kHuge)};
  if (times.has("simulated_seconds")) {
    costs.simulated = Seconds{times.number("simulated_seconds", 0, kHuge)};
  }
  times.ignore({"step_seconds", "simulated_seconds"});  // the former: the sum of the parts
  const Json* stages = times.member("stages");
  if (stages != nullptr && !stages->is_array()) {
    times.fail("stages", "not a list", "a list with one object per stage");
  }
  if (const Status read = times.finish(); !read || stages == nullptr) return read;
  for (std::size_t i = 0; i < stages->size(); ++i) {
    JsonReader stage((*stages)[i], where, pointer + "/stages/" + std::to_string(i));
    StageTime parts;
    for (const StageTimePart& part : kStageTimeParts) {
      parts.*part.part = Seconds{stage.number(part.key, -kHuge, kHuge)};
    }
    stage.ignore({"stage"});  // its place
    if (const Status read = stage.finish(); !read) return read;
    costs.stage_times.push_back(parts);
  }
  return Done{};
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

Json plan_json(const ParallelPlan& plan, std::int64_t global_batch) {
  Json overlap = Json::array();
  if (plan.overlap_dp) overlap.push_back("dp");
  if (plan.overlap_tp) overlap.push_back("tp");
  if (plan.overlap_pp) overlap.push_back("pp");
  Json offload = Json::object();
  if (plan.offload_optimizer > 0) offload["optimizer"] = plan.offload_optimizer;
  Json out{{"tp", plan.tp},
           {"cp", plan.cp},
           {"cp_comm", name_of(plan.cp_comm)},
           {"ep", plan.ep},
           {"etp", plan.etp},
           {"dp", plan.dp},
           {"pp", plan.pp},
           {"vpp", plan.vpp},
           {"microbatch", plan.microbatch},
           {"microbatches", plan.microbatches_rounded_up(global_batch)},
           {"layers_per_stage", plan.layers_per_stage},
           {"zero", plan.zero},
           {"sequence_parallel", plan.sequence_parallel},
           {"recompute", name_of(plan.recompute)},
           {"recompute_layers", plan.recompute_layers},
           {"schedule", name_of(plan.schedule)},
           {"rank_order", name_of(plan.rank_order)},
           {"zero_group_size", plan.shard_group},
           {"overlap", std::move(overlap)},
           {"offload", std::move(offload)},
           {"bucket_bytes", nullptr}};
  if (plan.bucket) out["bucket_bytes"] = whole_bytes(*plan.bucket);
  if (plan.recompute == Recompute::mixed) out["selective_layers"] = plan.selective_layers;
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
  return Json{{"capacity_bytes", whole_bytes(costs.capacity)},
              {"peak_bytes", whole_bytes(costs.peak)},
              {"peak_reserved_bytes", whole_bytes(costs.peak_reserved)},
              {"stages", std::move(stages)}};
}

Json time_json(const Prediction& costs) {
  Json time{{"step_seconds", finite(costs.time.total().in(kSecond), "the step time")},
            {"low_seconds", finite(costs.low.in(kSecond), "the low end of the step time")},
            {"high_seconds", finite(costs.high.in(kSecond), "the high end of the step time")}};
  for (const TimePart& part : kTimeParts) {
    time[part.key] = finite((costs.time.*part.part).in(kSecond), part.key);
  }
  time["bubble_seconds"] = finite(costs.time.bubble().in(kSecond), "the bubble");
  time["simulated_seconds"] = costs.simulated
                                  ? Json(finite(costs.simulated->in(kSecond), "the simulated step"))
                                  : Json(nullptr);
  time["stages"] = stage_times_json(costs.stage_times);
  return time;
}

Json throughput_json(const Prediction& costs, std::int64_t gpus) {
  const double tokens = finite(costs.tokens_per_second, "tokens per second");
  return Json{{"tokens_per_second", tokens},
              {"tokens_per_second_per_gpu", tokens / static_cast<double>(gpus)},
              {"model_tflops_per_gpu",
               finite(costs.model_flops_per_gpu.in(1_TFLOPS), "model FLOP/s per GPU")},
              {"mfu", finite(costs.mfu, "MFU")},
              {"mfu_formula", kMfuFormula}};
}

Result<ParallelPlan> plan_from_json(const Json& object, const std::string& where,
                                    const std::string& pointer) {
  JsonReader reader(object, where, pointer);
  const auto degree = [&](const char* key) {
    return static_cast<int>(reader.integer(key, 1, limit_of_int()));
  };
  ParallelPlan plan;
  plan.tp = degree("tp");
  plan.cp = degree("cp");
  plan.ep = degree("ep");
  plan.etp = degree("etp");
  plan.dp = degree("dp");
  plan.pp = degree("pp");
  plan.vpp = degree("vpp");
  plan.microbatch = degree("microbatch");
  plan.layers_per_stage = int_list(reader, "layers_per_stage", 0);
  plan.zero = static_cast<int>(reader.integer("zero", 0, 3));
  plan.sequence_parallel = reader.boolean("sequence_parallel");
  const std::string recompute = reader.string("recompute");
  plan.recompute_layers = int_list(reader, "recompute_layers", 0);
  const bool mixed = recompute == name_of(Recompute::mixed);
  if (mixed) plan.selective_layers = int_list(reader, "selective_layers", 0);
  if (mixed && plan.selective_layers.size() != plan.recompute_layers.size()) {
    reader.fail("selective_layers", std::to_string(plan.selective_layers.size()) + " entries",
                "as many as recompute_layers, one per stage");
  }
  const std::string schedule = reader.string("schedule");
  const std::string rank_order = reader.choice("rank_order", {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"});
  if (rank_order == name_of(RankOrder::pp_inside_dp)) plan.rank_order = RankOrder::pp_inside_dp;
  const std::string cp_comm = reader.choice("cp_comm", {"p2p", "a2a"});
  if (cp_comm == name_of(CpComm::all_to_all)) plan.cp_comm = CpComm::all_to_all;
  plan.shard_group = degree("zero_group_size");
  plan.overlap_dp = plan.overlap_tp = plan.overlap_pp = false;
  const Json& overlap = object_at(reader, "overlap");
  if (!overlap.is_array()) reader.fail("overlap", "not a list", "a list of dp, tp, pp");
  for (const Json& axis : overlap) {
    if (axis == "dp")
      plan.overlap_dp = true;
    else if (axis == "tp")
      plan.overlap_tp = true;
    else if (axis == "pp")
      plan.overlap_pp = true;
    else
      reader.fail("overlap", axis.dump().substr(0, 40) + " in the list", "dp, tp or pp");
  }
  const Json& offload = object_at(reader, "offload");
  if (!offload.is_object()) reader.fail("offload", "not an object", "{} or {\"optimizer\": SHARE}");
  if (reader.failed()) return reader.finish().error();
  JsonReader away(offload, where, pointer + "/offload");
  plan.offload_optimizer = away.number_or("optimizer", 0, 1, 0);
  if (const Status read = away.finish(); !read) return read.error();
  // Plans without it were written before there was a choice.
  if (reader.has("bucket_bytes"))
    plan.bucket = Bytes{reader.number("bucket_bytes", 1, kMostBucket)};
  reader.ignore({"microbatches", "bucket_bytes"});  // derived; null: the framework's own
  if (const Status read = reader.finish(); !read) return read.error();
  const Result<Recompute> policy = parse_recompute(recompute, reader.pointer_to("recompute"));
  if (!policy) return policy.error();
  plan.recompute = *policy;
  const Result<ScheduleKind> kind = parse_schedule(schedule, reader.pointer_to("schedule"));
  if (!kind) return kind.error();
  plan.schedule = *kind;
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
  const Json& memory = object_at(reader, "memory");
  const Json& time = object_at(reader, "time");
  const Json& throughput = object_at(reader, "throughput");
  if (const Status read = reader.finish(); !read) return read.error();
  if (const Status read = read_memory(memory, where, pointer + "/memory", costs); !read) {
    return read.error();
  }
  if (const Status read = read_time(time, where, pointer + "/time", costs); !read) {
    return read.error();
  }
  JsonReader rates(throughput, where, pointer + "/throughput");
  costs.tokens_per_second = rates.number("tokens_per_second", 0, kHuge);
  costs.model_flops_per_gpu = rates.number("model_tflops_per_gpu", 0, kHuge) * 1_TFLOPS;
  costs.mfu = rates.number("mfu", 0, kHuge);
  rates.ignore({"tokens_per_second_per_gpu", "mfu_formula"});
  if (const Status read = rates.finish(); !read) return read.error();
  return costs;
}

}  // namespace echelon
