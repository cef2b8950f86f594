#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include "core/base/compressed_text.hpp"
#include "core/base/content_hash.hpp"
#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "core/plan/plan_json_io.hpp"

namespace echelon {

namespace {

constexpr const char* kFormat = "echelon-plan";
constexpr const char* kPlain = "text";
constexpr const char* kCompressed = "zstd+base64";
constexpr const char* kDamaged =
    "the file was damaged or edited: change a plan with flags, plan predict FILE --tp 4 -o NEW";
constexpr const char* kWriteAgain = "write the plan again with this version: plan ... -o FILE";

std::string read_hash(JsonReader& reader, const char* key) {
  const std::string hash = reader.string(key);
  const bool right =
      hash.size() == 32 && hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!right) reader.fail(key, "not a hash", "32 hexadecimal digits");
  return hash;
}

Json job_json(const TrainingJob& job) {
  Json out{{"seq", job.sequence},
           {"global_batch", job.global_batch},
           {"precision", job.precision.name},
           {"flash_attention", job.flash_attention},
           {"token_budget", nullptr}};
  if (job.token_budget) out["token_budget"] = finite(*job.token_budget, "the token budget");
  if (job.layer_code != LayerCode::fused) out["layer_code"] = name_of(job.layer_code);
  if (job.expert_imbalance > 1) out["expert_imbalance"] = job.expert_imbalance;
  if (job.documents) out["document_lengths"] = job.documents->text;
  if (job.adapters) out["lora"] = job.adapters->text();
  if (job.quantized_weights) out["quantized_weights"] = job.quantized_weights->text();
  return out;
}

Json request_json(const PlanFile& file) {
  const Result<Json> model = parse_json(model_to_json(file.model), "the model");
  Json out{{"model", *model},
           {"job", job_json(file.job)},
           {"cluster", file.cluster},
           {"gpus", file.gpus},
           {"framework", file.framework},
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
  if (reader.has("token_budget")) job.token_budget = reader.number("token_budget", 1);
  reader.ignore({"token_budget"});
  job.expert_imbalance = reader.number_or("expert_imbalance", 1, kLargestNumber, 1);
  const std::string code = reader.string_or("layer_code", std::string(name_of(LayerCode::fused)));
  const std::string documents = reader.string_or("document_lengths", "");
  const std::string adapters = reader.string_or("lora", "");
  const std::string quantized = reader.string_or("quantized_weights", "");
  if (const Status read = reader.finish(); !read) return read.error();
  Result<PrecisionRecipe> recipe = find_precision(precision);
  if (!recipe) {
    Error error = recipe.error();
    error.where = reader.pointer_to("precision");
    return error;
  }
  job.precision = *recipe;
  const Result<LayerCode> layer_code = parse_layer_code(code, reader.pointer_to("layer_code"));
  if (!layer_code) return layer_code.error();
  job.layer_code = *layer_code;
  if (!documents.empty()) {
    const Result<DocumentLengths> lengths =
        parse_document_lengths(documents, reader.pointer_to("document_lengths"));
    if (!lengths) return lengths.error();
    job.documents = *lengths;
  }
  if (!adapters.empty()) {
    const Result<Adapters> read =
        parse_adapters(adapters, reader.pointer_to("lora"), AdapterTargets{});
    if (!read) return read.error();
    job.adapters = *read;
  }
  if (!quantized.empty()) {
    const Result<QuantizedWeights> read =
        parse_quantized_weights(quantized, reader.pointer_to("quantized_weights"));
    if (!read) return read.error();
    job.quantized_weights = *read;
  }
  return job;
}

Status read_request(const Json& object, const std::string& where, PlanFile& file) {
  JsonReader reader(object, where, "/request");
  const Json* model = reader.member("model");
  const Json* job = reader.member("job");
  if (model == nullptr) reader.fail("model", "the key 'model' is missing", "a model's shapes");
  if (job == nullptr) reader.fail("job", "the key 'job' is missing", "the training job");
  file.cluster = reader.string("cluster");
  file.gpus = static_cast<int>(reader.integer("gpus", 1, std::numeric_limits<int>::max()));
  file.framework = reader.string("framework");
  file.calibration = reader.string("calibration");
  file.calibration_path = reader.string_or("calibration_path", "");
  file.keep_free = Bytes{reader.number("keep_free_bytes", 0, kMaxBytes)};
  if (reader.has("max_memory_bytes")) {
    file.max_memory = Bytes{reader.number("max_memory_bytes", 1, kMaxBytes)};
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

/// The caller checked that the list exists; `reader` records the error.
void read_assumptions(const Json& list, JsonReader& reader, PlanFile& file) {
  if (!list.is_array()) reader.fail("assumptions", "not a list", "a list of sentences");
  for (const Json& item : list) {
    if (reader.failed()) return;
    if (item.is_string())
      file.assumptions.push_back(item.get<std::string>());
    else
      reader.fail("assumptions", item.dump().substr(0, 40) + " in the list", "a sentence");
  }
}

// ------------------------------------------------------------------------------- program, hashes

Json program_json(const std::string& program) {
  const CompressedText packed = pack_text(program);
  return Json{{"format", packed.compressed ? kCompressed : kPlain},
              {"bytes", packed.bytes},
              {"hash", content_hash(program)},
              {"text", packed.text}};
}

/// The expected beginning of the program's second line, which repeats fields of the plan.
std::string pipeline_line(const PlanFile& file) {
  const std::int64_t microbatches = file.plan.microbatches_of_chunk(file.job.global_batch);
  return "pipeline " + std::string(name_of(file.plan.schedule)) + " ranks " +
         std::to_string(file.plan.pp) + " chunks " + std::to_string(file.plan.vpp) +
         " microbatches " + std::to_string(microbatches) +
         (file.plan.group_size() > file.plan.pp ? " group " + std::to_string(file.plan.group_size())
                                                : "") +
         " units ";
}

Status read_program(const Json& object, const std::string& where, PlanFile& file) {
  JsonReader reader(object, where, "/program");
  CompressedText packed;
  packed.compressed = reader.choice("format", {kPlain, kCompressed}) == kCompressed;
  packed.bytes = reader.integer("bytes", 0, kMaxTextBytes);
  const std::string expected = read_hash(reader, "hash");
  packed.text = reader.string("text");
  if (const Status read = reader.finish(); !read) return read;
  const Result<std::string> text = unpack_text(packed, where + " at /program/text");
  if (!text) return text.error();
  if (const std::string found = content_hash(*text); found != expected) {
    return input_error(where + " at /program/text", "a program with hash " + found,
                       "hash " + expected + ", the one that was priced", kDamaged);
  }
  const std::size_t second = text->find('\n');
  const std::string line =
      second == std::string::npos ? "" : text->substr(second + 1, text->find('\n', second + 1));
  if (const std::string right = pipeline_line(file); !line.starts_with(right)) {
    std::string found = "a program of another plan: '";
    for (const char c : line.substr(0, 80)) found += c >= ' ' && c <= '~' ? c : '?';
    return input_error(where + " at /program/text", found + "'", "'" + right + "...'", kDamaged);
  }
  file.program = *text;
  return Done{};
}

std::string hash_of_model(const ModelSpec& model) { return content_hash(model_to_json(model)); }

/// Hash of everything except itself. The program enters with its own hash, not in compressed form.
std::string hash_of_contents(Json root) {
  root["hashes"].erase("contents");
  root["program"].erase("format");
  root["program"].erase("text");
  return content_hash(root.dump());
}

Status read_hashes(const Json& root, const std::string& where, PlanFile& file) {
  JsonReader reader(root["hashes"], where, "/hashes");
  const std::string model = read_hash(reader, "model");
  file.cluster_hash = read_hash(reader, "cluster");
  file.calibration_hash = read_hash(reader, "calibration");
  const std::string contents = read_hash(reader, "contents");
  if (const Status read = reader.finish(); !read) return read;
  if (const std::string found = hash_of_model(file.model); found != model) {
    return input_error(where + " at /request/model", "a model with hash " + found,
                       "hash " + model + ", the model of the plan", kDamaged);
  }
  if (const std::string found = hash_of_contents(root); found != contents) {
    return input_error(where, "contents with hash " + found,
                       "hash " + contents + ", as it was written", kDamaged);
  }
  return Done{};
}

/// Schema 2 differs in the names of two keys; schema 3 knows no probability of fitting, and its
/// step is the closed form.
constexpr int kSchemaWithOldKeys = 2;

void rename_key(Json& object, const char* from, const char* to) {
  if (!object.is_object() || !object.contains(from)) return;
  object[to] = std::move(object[from]);
  object.erase(from);
}

/// The contents under today's keys; hashes are those of the file as it was written.
Json with_current_keys(Json root) {
  if (root["schema"] != kSchemaWithOldKeys) return root;
  if (root.contains("request")) rename_key(root["request"], "stack", "framework");
  if (root.contains("plan")) rename_key(root["plan"], "shard_group", "zero_group_size");
  return root;
}

/// Checked before any key is read: a config.json given by mistake must not be reported as "a plan
/// file with an unknown key".
Status check_format(const Json& root, const std::string& where) {
  const bool marked = root.is_object() && root.contains("format") && root["format"] == kFormat;
  if (!marked) {
    return input_error(where, "not a plan file", "a file written by `plan -o plan.json`");
  }
  const bool numbered = root.contains("schema") && root["schema"].is_number_unsigned();
  const std::uint64_t schema = numbered ? root["schema"].get<std::uint64_t>() : 0;
  if (kSchemaWithOldKeys <= schema && schema <= PlanFile::kSchema) return Done{};
  const std::string at = where + " at /schema";
  const std::string expected = "schema " + std::to_string(PlanFile::kSchema);
  if (schema > PlanFile::kSchema) {
    const bool named = root.contains("version") && root["version"].is_string();
    const std::string by = named ? " " + root["version"].dump().substr(0, 20) : "";
    return input_error(at, "schema " + std::to_string(schema) + ", written by a newer version" + by,
                       expected, std::string("update this program, or ") + kWriteAgain);
  }
  const std::string found = numbered ? "schema " + std::to_string(schema) + ", of an older version"
                            : root.contains("schema")
                                ? "schema " + root["schema"].dump().substr(0, 20)
                                : "no schema";
  return input_error(at, found, expected, kWriteAgain);
}

/// Checks that lists per stage have one entry per stage.
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
  if (!file.predicted.stage_times.empty()) {
    Status ok = check(file.predicted.stage_times.size(), "/prediction/time/stages");
    if (!ok) return ok;
  }
  return check(file.predicted.stages.size(), "/prediction/memory/stages");
}

}  // namespace

std::string plan_file_to_json(const PlanFile& file) {
  Json root{
      {"schema", PlanFile::kSchema},
      {"format", kFormat},
      {"version", file.version},
      {"hashes",
       {{"model", hash_of_model(file.model)},
        {"cluster", file.cluster_hash},
        {"calibration", file.calibration_hash},
        {"contents", ""}}},
      {"request", request_json(file)},
      {"assumptions", file.assumptions},
      {"plan", plan_json(file.plan, file.job.global_batch)},
      {"prediction",
       {{"kind", name_of(file.predicted.evidence)},
        {"fits", file.predicted.fits},
        {"fits_probability", probability_json(file.predicted)},
        {"memory", memory_json(file.predicted)},
        {"time", time_json(file.predicted)},
        {"throughput", throughput_json(file.predicted, file.gpus, file.job, file.model.sparse())}}},
      {"program", program_json(file.program)}};
  root["hashes"]["contents"] = hash_of_contents(root);
  return root.dump(2) + "\n";
}

Result<PlanFile> parse_plan_file(std::string_view json, std::string_view where_view) {
  const std::string where(where_view);
  const Result<Json> written = parse_json(json, where);
  if (!written) return written.error();
  if (const Status format = check_format(*written, where); !format) return format.error();

  const Json root = with_current_keys(*written);
  JsonReader reader(root, where);
  PlanFile file;
  file.version = reader.string("version");
  reader.ignore(
      {"schema", "format", "hashes", "request", "assumptions", "plan", "prediction", "program"});
  for (const char* key : {"hashes", "request", "assumptions", "plan", "prediction", "program"}) {
    if (!reader.has(key)) {
      reader.fail(key, "the key '" + std::string(key) + "' is missing",
                  key == std::string_view("assumptions") ? "a list" : "an object");
    }
  }
  if (!reader.failed()) read_assumptions(root["assumptions"], reader, file);
  if (const Status read = reader.finish(); !read) return read.error();
  if (const Status read = read_request(root["request"], where, file); !read) return read.error();
  const Result<ParallelPlan> plan = plan_from_json(root["plan"], where, "/plan");
  if (!plan) return plan.error();
  file.plan = *plan;
  const Result<Prediction> costs = costs_from_json(root["prediction"], where, "/prediction");
  if (!costs) return costs.error();
  file.predicted = *costs;
  if (const Status shape = check_shape(file, where); !shape) return shape.error();
  if (const Status program = read_program(root["program"], where, file); !program) {
    return program.error();
  }
  if (const Status hashes = read_hashes(*written, where, file); !hashes) return hashes.error();
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
