#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include "core/json_io.hpp"
#include "core/model_io.hpp"
#include "core/plan_file.hpp"
#include "core/plan_json_io.hpp"

namespace echelon {

namespace {

constexpr const char* kFormat = "echelon-plan";
constexpr double kMostBytes = 1e18;

Json job_json(const TrainingJob& job) {
  Json out{{"seq", job.sequence},
           {"global_batch", job.global_batch},
           {"precision", job.precision.name},
           {"flash_attention", job.flash_attention},
           {"token_budget", nullptr}};
  if (job.token_budget) out["token_budget"] = finite(*job.token_budget, "the token budget");
  return out;
}

Json request_json(const PlanFile& file) {
  const Result<Json> model = parse_json(model_to_json(file.model), "the model");
  Json out{{"model", *model},
           {"job", job_json(file.job)},
           {"cluster", file.cluster},
           {"gpus", file.gpus},
           {"stack", file.stack},
           {"calibration", file.calibration},
           {"calibration_path", nullptr},
           {"keep_free_bytes", whole_bytes(file.keep_free)},
           {"max_memory_bytes", nullptr}};
  if (!file.calibration_path.empty()) out["calibration_path"] = file.calibration_path;
  if (file.max_memory) out["max_memory_bytes"] = whole_bytes(*file.max_memory);
  return out;
}

Result<TrainingJob> read_job(const Json& object, const std::string& where) {
  JsonReader reader(object, where, "/request/job");
  TrainingJob job;
  job.sequence = static_cast<int>(reader.integer("seq", 1, std::numeric_limits<int>::max()));
  job.global_batch = reader.integer("global_batch", 1, std::int64_t{1} << 53);
  const std::string precision = reader.string("precision");
  job.flash_attention = reader.boolean("flash_attention");
  if (reader.has("token_budget")) job.token_budget = reader.number("token_budget", 1, 1e30);
  reader.ignore({"token_budget"});
  if (const Status read = reader.finish(); !read) return read.error();
  Result<PrecisionRecipe> recipe = find_precision(precision);
  if (!recipe) {
    Error error = recipe.error();
    error.where = reader.pointer_to("precision");
    return error;
  }
  job.precision = *recipe;
  return job;
}

Status read_request(const Json& object, const std::string& where, PlanFile& file) {
  JsonReader reader(object, where, "/request");
  const Json* model = reader.member("model");
  const Json* job = reader.member("job");
  if (model == nullptr) reader.fail("model", "the key 'model' is missing", "a model's shapes");
  if (job == nullptr) reader.fail("job", "the key 'job' is missing", "what is trained per step");
  file.cluster = reader.string("cluster");
  file.gpus = static_cast<int>(reader.integer("gpus", 1, std::numeric_limits<int>::max()));
  file.stack = reader.string("stack");
  file.calibration = reader.string("calibration");
  file.calibration_path = reader.string_or("calibration_path", "");
  file.keep_free = Bytes{reader.number("keep_free_bytes", 0, kMostBytes)};
  if (reader.has("max_memory_bytes")) {
    file.max_memory = Bytes{reader.number("max_memory_bytes", 1, kMostBytes)};
  }
  reader.ignore({"max_memory_bytes"});
  if (const Status read = reader.finish(); !read) return read;

  const Result<ModelSpec> spec = parse_model(model->dump(), where + " at /request/model");
  if (!spec) return spec.error();
  file.model = *spec;
  const Result<TrainingJob> training = read_job(*job, where);
  if (!training) return training.error();
  file.job = *training;
  return Done{};
}

/// Told apart before any key is read: a config.json given by mistake is not "a plan file with an
/// unknown key".
Status check_format(const Json& root, const std::string& where) {
  const bool marked = root.is_object() && root.contains("format") && root["format"] == kFormat;
  if (!marked) {
    return input_error(where, "not a plan file", "what `plan -o plan.json` writes");
  }
  if (root.contains("schema") && root["schema"] == PlanFile::kSchema) return Done{};
  const std::string found = root.contains("schema") ? root["schema"].dump().substr(0, 20) : "none";
  return input_error(where + " at /schema", "schema " + found,
                     "schema " + std::to_string(PlanFile::kSchema),
                     "write the plan again with this version: plan ... -o FILE");
}

/// Lists that must have one entry per stage, and a batch that the plan can divide.
Status check_shape(const PlanFile& file, const std::string& where) {
  const auto stages = static_cast<std::size_t>(file.plan.pp);
  const auto check = [&](std::size_t found, const char* key) -> Status {
    if (found == stages) return Done{};
    return input_error(where + " at " + key, std::to_string(found) + " entries",
                       std::to_string(stages) + ", one per pipeline stage");
  };
  if (Status ok = check(file.plan.layers_per_stage.size(), "/plan/layers_per_stage"); !ok)
    return ok;
  if (Status ok = check(file.plan.recompute_layers.size(), "/plan/recompute_layers"); !ok)
    return ok;
  return check(file.predicted.stages.size(), "/prediction/memory/stages");
}

}  // namespace

std::string plan_file_to_json(const PlanFile& file) {
  const Json root{{"schema", PlanFile::kSchema},
                  {"format", kFormat},
                  {"version", file.version},
                  {"request", request_json(file)},
                  {"plan", plan_json(file.plan, file.job.global_batch)},
                  {"prediction",
                   {{"kind", name_of(file.predicted.evidence)},
                    {"fits", file.predicted.fits},
                    {"memory", memory_json(file.predicted)},
                    {"time", time_json(file.predicted)},
                    {"throughput", throughput_json(file.predicted, file.gpus)}}}};
  return root.dump(2) + "\n";
}

Result<PlanFile> parse_plan_file(std::string_view json, std::string_view where_view) {
  const std::string where(where_view);
  const Result<Json> root = parse_json(json, where);
  if (!root) return root.error();
  if (const Status format = check_format(*root, where); !format) return format.error();

  JsonReader reader(*root, where);
  PlanFile file;
  file.version = reader.string("version");
  reader.ignore({"schema", "format", "request", "plan", "prediction"});
  for (const char* key : {"request", "plan", "prediction"}) {
    if (!reader.has(key)) reader.fail(key, "the key is missing", "an object");
  }
  if (const Status read = reader.finish(); !read) return read.error();
  if (const Status read = read_request((*root)["request"], where, file); !read) return read.error();
  const Result<ParallelPlan> plan = plan_from_json((*root)["plan"], where, "/plan");
  if (!plan) return plan.error();
  file.plan = *plan;
  const Result<PredictedCosts> costs = costs_from_json((*root)["prediction"], where, "/prediction");
  if (!costs) return costs.error();
  file.predicted = *costs;
  if (const Status shape = check_shape(file, where); !shape) return shape.error();
  return file;
}

Result<PlanFile> read_plan_file(const std::string& path) {
  constexpr std::int64_t kLongest = std::int64_t{64} << 20;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) && !ignored) {
    return input_error(path, "no such file", "a plan file", "`plan ... -o FILE` writes one");
  }
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return text.error();
  return parse_plan_file(*text, path);
}

}  // namespace echelon
