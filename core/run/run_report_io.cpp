#include "core/run/run_event.hpp"
#include "core/run/run_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "core/base/content_hash.hpp"
#include "core/json/json_io.hpp"
#include "core/plan/plan_json_io.hpp"
#include "core/run/run_goodput_io.hpp"

namespace echelon {

namespace {

constexpr const char* kReportFormat = "echelon-run";

Json step_json(const RunStep& step) {
  Json out{{"step", step.step},
           {"loss", any_number_json(step.loss)},
           {"grad_norm", any_number_json(step.gradient_norm)},
           {"learning_rate", step.learning_rate},
           {"seconds", step.seconds.in(kSecond)},
           {"tokens_per_second", any_number_json(step.tokens_per_second)}};
  if (!step.notes.empty()) out["notes"] = step.notes;
  return out;
}

Json costs_json(const Prediction& costs, int ranks) {
  return Json{{"kind", name_of(costs.evidence)},
              {"fits", costs.fits},
              {"memory", memory_json(costs)},
              {"time", time_json(costs)},
              {"throughput", throughput_json(costs, ranks, TrainingJob{}, false)}};
}

/// predicted / measured − 1 for every number; null if the measured value is 0.
Json errors_json(const Json& predicted, const Json& measured) {
  if (predicted.is_object()) {
    Json out = Json::object();
    for (const auto& [key, value] : predicted.items()) {
      if (key == "stage" || key == "capacity_bytes" || key.starts_with("low") ||
          key.starts_with("high") || !measured.contains(key) || measured[key].is_null())
        continue;
      if (value.is_number() || value.is_structured()) out[key] = errors_json(value, measured[key]);
    }
    return out;
  }
  if (predicted.is_array()) {
    Json out = Json::array();
    for (std::size_t i = 0; i < std::min(predicted.size(), measured.size()); ++i) {
      out.push_back(errors_json(predicted[i], measured[i]));
    }
    return out;
  }
  const double truth = measured.get<double>();
  return truth == 0 ? Json(nullptr) : Json(predicted.get<double>() / truth - 1);
}

std::vector<std::string> strings_of(JsonReader& reader, const char* key) {
  std::vector<std::string> out;
  const Json* list = reader.member(key);
  if (list == nullptr) return out;
  bool right = list->is_array();
  if (right) {
    for (const Json& item : *list) {
      right = right && item.is_string();
      if (right) out.push_back(item.get<std::string>());
    }
  }
  if (!right) reader.fail(key, "not a list of sentences", "a list of sentences");
  return out;
}

RunStep step_of(JsonReader& reader) {
  RunStep step;
  step.step = reader.integer("step", 0, std::int64_t{1} << 53);
  step.loss = reader.any_number("loss");
  step.gradient_norm = reader.any_number("grad_norm");
  step.learning_rate = reader.number("learning_rate", 0);
  step.seconds = Seconds{reader.number("seconds", 0)};
  step.tokens_per_second = reader.any_number("tokens_per_second");
  step.notes = strings_of(reader, "notes");
  return step;
}

Status read_steps(const Json& list, const std::string& where, RunReport& report) {
  if (!list.is_array()) return input_error(where + " at /steps", "not a list", "a list of steps");
  for (std::size_t i = 0; i < list.size(); ++i) {
    JsonReader reader(list[i], where, "/steps/" + std::to_string(i));
    RunStep step = step_of(reader);
    if (const Status read = reader.finish(); !read) return read;
    report.steps.push_back(std::move(step));
  }
  return Done{};
}

Status read_spans(const Json& list, const std::string& where, RunReport& report) {
  const std::string at = where + " at /spans";
  const std::string expected = "a list of [rank, instruction, start, end]";
  if (!list.is_array()) return input_error(at, "not a list", expected);
  for (const Json& item : list) {
    const bool right = item.is_array() && item.size() == 4 && item[0].is_number_unsigned() &&
                       item[1].is_number_unsigned() && item[2].is_number() && item[3].is_number();
    if (!right) return input_error(at, item.dump().substr(0, 40), expected);
    report.spans.push_back({item[0].get<std::int32_t>(), item[1].get<std::uint32_t>(),
                            Seconds{item[2].get<double>()}, Seconds{item[3].get<double>()}});
  }
  return Done{};
}

Status read_environment(const Json& object, const std::string& where, RunReport& report) {
  if (!object.is_object())
    return input_error(where + " at /environment", "not an object",
                       "an object of names and values");
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string())
      return input_error(where + " at /environment/" + key, value.dump().substr(0, 40), "a text");
    report.environment[key] = value.get<std::string>();
  }
  return Done{};
}

Json noise_json(const GradientNoise& noise) {
  Json out{{"estimates", noise.estimates}, {"needed", GradientNoise::kMinEstimates}};
  if (!noise.known()) return out;
  out["window"] = noise.window;
  out["batch"] = any_number_json(noise.batch);
  out["low"] = any_number_json(noise.low);
  out["high"] = any_number_json(noise.high);
  return out;
}

Status read_noise(const Json& object, const std::string& where, GradientNoise& noise) {
  constexpr std::int64_t kMany = std::int64_t{1} << 53;
  JsonReader reader(object, where, "/gradient_noise");
  reader.ignore({"needed"});
  noise.estimates = reader.integer("estimates", 0, kMany);
  noise.window = reader.integer_or("window", 1, kMany, 0);
  if (noise.known()) {
    noise.batch = reader.any_number("batch");
    noise.low = reader.any_number("low");
    noise.high = reader.any_number("high");
  }
  return reader.finish();
}

Json rank_times_json(const std::vector<RankTime>& times) {
  Json out = Json::array();
  for (const RankTime& each : times) {
    out.push_back({{"rank", each.rank},
                   {"stage", each.stage},
                   {"computes_seconds", each.computes.in(kSecond)},
                   {"behind_seconds", each.behind.in(kSecond)}});
  }
  return out;
}

Status read_rank_times(const Json& list, const std::string& where, RunReport& report) {
  if (!list.is_array()) return input_error(where + " at /rank_times", "not a list", "a list");
  for (std::size_t i = 0; i < list.size(); ++i) {
    JsonReader reader(list[i], where, "/rank_times/" + std::to_string(i));
    report.rank_times.push_back({.rank = static_cast<int>(reader.integer("rank", 0, 1 << 30)),
                                 .stage = static_cast<int>(reader.integer("stage", 0, 1 << 30)),
                                 .computes = Seconds{reader.number("computes_seconds", 0)},
                                 .behind = Seconds{reader.number("behind_seconds", 0)}});
    if (const Status read = reader.finish(); !read) return read;
  }
  return Done{};
}

Json report_json(const RunReport& report) {
  const Result<Json> plan = parse_json(plan_file_to_json(report.plan), "the plan");
  Json steps = Json::array();
  for (const RunStep& step : report.steps) steps.push_back(step_json(step));
  Json spans = Json::array();
  for (const ExecutedSpan& span : report.spans) {
    spans.push_back({span.rank, span.instruction, span.start.in(kSecond), span.end.in(kSecond)});
  }
  const Json predicted = costs_json(report.plan.predicted, report.ranks);
  Json measured = nullptr;
  Json error = nullptr;
  if (report.measured) {
    measured = costs_json(*report.measured, report.ranks);
    error = errors_json(predicted, measured);
  }
  Json environment = Json::object();
  for (const auto& [key, value] : report.environment) environment[key] = value;
  Json out{{"schema", RunReport::kSchema},
           {"format", kReportFormat},
           {"plan_file", report.plan_path},
           {"schedule_hash", report.schedule_hash},
           {"executed_hash", report.executed_hash},
           {"backend", report.backend},
           {"launcher", report.launcher},
           {"ranks", report.ranks},
           {"end", name_of(report.end)},
           {"reason", report.reason},
           {"steps", std::move(steps)},
           {"measured", std::move(measured)},
           {"predicted", predicted},
           {"error", std::move(error)},
           {"process_peak_bytes", whole_bytes(report.process_peak)},
           {"rank_times", rank_times_json(report.rank_times)},
           {"gradient_noise", noise_json(report.noise)},
           {"advice", report.advice},
           {"environment", std::move(environment)},
           {"spans", std::move(spans)},
           {"plan", *plan}};
  if (report.checkpoint_copy > Bytes{})
    out["checkpoint_copy_bytes"] = whole_bytes(report.checkpoint_copy);
  if (report.goodput.starts > 0) out["goodput"] = goodput_json(report.goodput);
  return out;
}

/// The step is read from its parts: a file that says another was edited.
Status check_step(const Json& measured, const std::string& where, Seconds parts) {
  constexpr double kRounding = 1e-9;
  const Json& step = measured["time"].value("step_seconds", Json());
  const bool right = step.is_number() && std::abs(step.get<double>() - parts.in(kSecond)) <=
                                             kRounding * std::max(1.0, std::abs(parts.in(kSecond)));
  if (right) return Done{};
  return input_error(where + " at /measured/time/step_seconds", step.dump().substr(0, 40),
                     Json(parts.in(kSecond)).dump() + ", the sum of its parts",
                     "the file was damaged or edited");
}

constexpr std::string_view kEvents[] = {"started", "step", "checkpoint", "note", "ended"};

}  // namespace

std::string to_line(const RunEvent& event) {
  Json out{{"event", kEvents[static_cast<int>(event.kind)]}};
  if (event.kind == RunEvent::Kind::step) {
    out.update(step_json(event.step));
    out["of"] = event.of;
  } else {
    out["text"] = event.text;
  }
  return out.dump() + "\n";
}

Result<RunEvent> parse_run_event(std::string_view line, std::string_view where) {
  const Result<Json> root = parse_json(line, where);
  if (!root) return root.error();
  JsonReader reader(*root, std::string(where));
  RunEvent event;
  const std::string kind =
      reader.choice("event", {kEvents[0], kEvents[1], kEvents[2], kEvents[3], kEvents[4]});
  for (int i = 0; i < 5; ++i) {
    if (kind == kEvents[i]) event.kind = static_cast<RunEvent::Kind>(i);
  }
  if (event.kind == RunEvent::Kind::step) {
    event.step = step_of(reader);
    event.of = reader.integer("of", 0, std::int64_t{1} << 53);
  } else {
    event.text = reader.string("text");
  }
  if (const Status read = reader.finish(); !read) return read.error();
  return event;
}

std::string_view name_of(RunReport::End end) {
  switch (end) {
    case RunReport::End::completed: return "completed";
    case RunReport::End::interrupted: return "interrupted";
    case RunReport::End::failed: return "failed";
  }
  return "?";
}

std::optional<OtherPrograms> other_programs(const RunReport& report) {
  const auto at = report.environment.find(kOtherPrograms);
  if (at == report.environment.end()) return std::nullopt;
  OtherPrograms out;
  const int read = std::sscanf(at->second.c_str(), "%lf of %d", &out.used, &out.cores);
  return read == 2 && out.cores > 0 ? std::optional(out) : std::nullopt;
}

std::string run_report_to_json(const RunReport& report) {
  return report_json(report).dump() + "\n";
}

Result<RunReport> parse_run_report(std::string_view json, std::string_view where_view) {
  const std::string where(where_view);
  const Result<Json> root = parse_json(json, where);
  if (!root) return root.error();
  const bool marked =
      root->is_object() && root->contains("format") && (*root)["format"] == kReportFormat;
  if (!marked)
    return input_error(where, "not a run report", "a file written by `plan run --report`");
  RunReport report;
  JsonReader reader(*root, where);
  reader.ignore({"format", "error", "predicted"});  // derived from other keys
  const std::int64_t schema = reader.integer("schema", 1, 1'000'000);
  if (schema != RunReport::kSchema) {
    return input_error(where + " at /schema", "schema " + std::to_string(schema),
                       "schema " + std::to_string(RunReport::kSchema),
                       "run the plan again with this version");
  }
  report.plan_path = reader.string("plan_file");
  report.schedule_hash = reader.string("schedule_hash");
  report.executed_hash = reader.string("executed_hash");
  report.backend = reader.choice("backend", {"cpu", "cuda", "virtual"});
  report.launcher = reader.choice("launcher", {"local", "mpi", "slurm", "torchrun"});
  report.ranks = static_cast<int>(reader.integer("ranks", 1, 1 << 30));
  const std::string end = reader.choice("end", {"completed", "interrupted", "failed"});
  for (const auto each :
       {RunReport::End::completed, RunReport::End::interrupted, RunReport::End::failed}) {
    if (end == name_of(each)) report.end = each;
  }
  report.reason = reader.string("reason");
  report.process_peak = Bytes{reader.number("process_peak_bytes", 0)};
  if (reader.has("checkpoint_copy_bytes"))
    report.checkpoint_copy = Bytes{reader.number("checkpoint_copy_bytes", 0)};
  report.advice = strings_of(reader, "advice");
  const auto part = [&](const char* key) {
    const Json* value = reader.member(key);
    if (value == nullptr) reader.fail(key, "the key is missing", "a required part of a report");
    return value;
  };
  const Json* steps = part("steps");
  const Json* spans = part("spans");
  const Json* noise = part("gradient_noise");
  const Json* environment = part("environment");
  const Json* plan = part("plan");
  const Json* measured = reader.has("measured") ? reader.member("measured") : nullptr;
  const Json* rank_times = reader.has("rank_times") ? reader.member("rank_times") : nullptr;
  const Json* goodput = reader.has("goodput") ? reader.member("goodput") : nullptr;
  reader.ignore({"measured", "rank_times", "goodput"});
  if (const Status read = reader.finish(); !read) return read.error();

  if (const Status read = read_steps(*steps, where, report); !read) return read.error();
  if (const Status read = read_spans(*spans, where, report); !read) return read.error();
  if (const Status read = read_environment(*environment, where, report); !read) return read.error();
  if (const Status read = read_noise(*noise, where, report.noise); !read) return read.error();
  if (rank_times != nullptr) {
    if (const Status read = read_rank_times(*rank_times, where, report); !read) return read.error();
  }
  if (goodput != nullptr) {
    if (const Status read = read_goodput(*goodput, where, report.goodput); !read)
      return read.error();
  }
  if (measured != nullptr) {
    Result<Prediction> costs = costs_from_json(*measured, where, "/measured");
    if (!costs) return costs.error();
    const Status whole = check_step(*measured, where, costs->time.total());
    if (!whole) return whole.error();
    report.measured = *std::move(costs);
  }
  Result<PlanFile> file = parse_plan_file(plan->dump(), where + " at /plan");
  if (!file) return file.error();
  report.plan = *std::move(file);
  return report;
}

Result<RunReport> read_run_report(const std::string& path) {
  constexpr std::int64_t kLongest = std::int64_t{64} << 20;
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return text.error();
  return parse_run_report(*text, path);
}

}  // namespace echelon
