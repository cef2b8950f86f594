#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/base/content_hash.hpp"
#include "core/json/json_io.hpp"
#include "core/model/model_formats_io.hpp"
#include "core/model/model_io.hpp"
#include "runtime/io/weights/manifest.hpp"
#include "runtime/io/weights/safetensors.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kManifestVersion = 4;
/// Models had no constants: two of them were stored separately.
constexpr std::int64_t kWithoutConstants = 1;
/// Runs resumed by the number of steps alone.
constexpr std::int64_t kWithoutRate = 2;
/// Runs trained all parameters. Runs that do are still written so, for earlier programs.
constexpr std::int64_t kWithoutAdapters = 3;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

Json element_json(std::optional<Element> element) {
  return element ? Json(name_of(tensor_type(*element))) : Json(nullptr);
}

Element read_element(JsonReader& reader, std::string_view key) {
  const std::string name = reader.choice(key, {"F32", "F64", "BF16"});
  return name == "F64" ? Element::f64 : name == "BF16" ? Element::bf16 : Element::f32;
}

/// Losses with their exact values; JSON cannot represent NaN and infinity.
Json losses_json(const std::vector<double>& losses) {
  Json list = Json::array();
  for (const double loss : losses) list.push_back(std::isfinite(loss) ? Json(loss) : Json(nullptr));
  return list;
}

std::vector<double> read_losses(JsonReader& reader) {
  std::vector<double> losses;
  const Json* list = reader.member("losses");
  if (list == nullptr || !list->is_array()) {
    reader.fail("losses", "no list", "a list of numbers");
    return losses;
  }
  for (const Json& loss : *list) {
    if (!loss.is_number() && !loss.is_null()) reader.fail("losses", "no number", "numbers");
    losses.push_back(loss.is_number() ? loss.get<double>()
                                      : std::numeric_limits<double>::quiet_NaN());
  }
  return losses;
}

/// JSON numbers are signed or inexact, so the seed is text.
std::uint64_t read_seed(JsonReader& reader) {
  const std::string text = reader.string("seed");
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    reader.fail("seed", "the text \"" + text.substr(0, 20) + "\"", "a number of 64 bits as text");
  }
  return seed;
}

std::vector<std::string> read_texts(JsonReader& reader, std::string_view key) {
  std::vector<std::string> texts;
  const Json* list = reader.member(key);
  if (list == nullptr || !list->is_array()) {
    reader.fail(key, "no list", "a list of texts");
    return texts;
  }
  for (const Json& text : *list) {
    if (!text.is_string()) {
      reader.fail(key, "an entry that is no text", "a list of texts");
      return texts;
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

/// Calls read(reader of the entry) for each object of a list.
template <class Read>
void read_objects(JsonReader& reader, std::string_view key, const Read& read) {
  const Json* list = reader.member(key);
  if (list == nullptr || !list->is_array()) {
    reader.fail(key, "no list", "a list of objects");
    return;
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonReader entry((*list)[i], reader.where(), fmt::format("/{}/{}", key, i));
    read(entry);
    const Status fine = entry.finish();
    if (!fine) reader.fail(key, fine.error().found, fine.error().expected);
  }
}

/// The constants that runs of the first version used, whatever their model said.
void read_old_constants(JsonReader& reader, ModelSpec& model) {
  ModelConstants& constants = model.constants.emplace();
  constants.norm_epsilon = reader.number("norm_eps", 0, 1);
  constants.rope.theta = reader.number("rope_theta", kMinTheta, kMaxTheta);
}

void read_run(JsonReader& reader, std::int64_t version, CheckpointContents& contents) {
  RunIdentity& run = contents.run;
  if (const Json* model = reader.member("model"); model == nullptr) {
    reader.fail("model", "the key 'model' is missing", "a model");
  } else {
    const Result<ModelSpec> spec = parse_model(model->dump(), reader.where() + " at /model");
    if (spec)
      run.model = *spec;
    else
      reader.fail("model", spec.error().found, spec.error().expected);
  }
  if (version == kWithoutConstants) {
    read_old_constants(reader, run.model);
  } else if (!reader.failed() && !run.model.constants) {
    reader.fail("model", "a model without its norm_epsilon", "a model file of schema 2");
  }
  run.plan = reader.string("plan");
  run.plan_hash = reader.string("plan_hash");
  run.data = reader.string("data");
  if (version > kWithoutAdapters) {
    const Result<Adapters> adapters =
        parse_adapters(reader.string("lora"), reader.where() + " at /lora", {});
    if (adapters) run.adapters = *adapters;
    if (!adapters) reader.fail("lora", adapters.error().found, adapters.error().expected);
    run.lora_alpha = reader.number("lora_alpha", 0);
  }
  contents.format.weight = read_element(reader, "weight");
  if (reader.has("master")) contents.format.master = read_element(reader, "master");
  contents.format.moment = read_element(reader, "moment");
  reader.ignore({"master"});
}

Json rate_json(const RateSchedule& rate) {
  return {{"peak", rate.peak},
          {"min", rate.min},
          {"warmup_samples", rate.warmup_samples},
          {"decay_samples", rate.decay_samples},
          {"warmup_steps", rate.warmup_steps},
          {"lr_decay_steps", rate.lr_decay_steps}};
}

void read_rate(JsonReader& reader, RateSchedule& rate) {
  const Json* object = reader.member("learning_rate");
  if (object == nullptr || !object->is_object())
    return reader.fail("learning_rate", "no object", "the schedule of the learning rate");
  JsonReader of_rate(*object, reader.where(), "/learning_rate");
  rate.peak = of_rate.number("peak", 0);
  rate.min = of_rate.number("min", 0);
  rate.warmup_samples = of_rate.integer("warmup_samples", 0, kMax);
  rate.decay_samples = of_rate.integer("decay_samples", 0, kMax);
  rate.warmup_steps = of_rate.integer("warmup_steps", 0, kMax);
  rate.lr_decay_steps = of_rate.integer("lr_decay_steps", 0, kMax);
  if (const Status read = of_rate.finish(); !read)
    reader.fail("learning_rate", read.error().found, read.error().expected);
}

void read_progress(JsonReader& reader, std::int64_t version, Progress& progress) {
  progress.step = reader.integer("step", 0, kMax);
  progress.samples = reader.integer("samples", 0, kMax);
  progress.tokens = reader.integer("tokens", 0, kMax);
  progress.skipped = reader.integer("skipped", 0, kMax);
  progress.seed = read_seed(reader);
  progress.losses = read_losses(reader);
  if (version <= kWithoutRate) return;
  progress.global_batch = reader.integer("global_batch", 0, kMax);
  read_rate(reader, progress.rate.emplace());
}

}  // namespace

std::string manifest_to_json(const CheckpointManifest& manifest) {
  const auto& [run, format, progress] = manifest.contents;
  Json document{{"format", "echelon-checkpoint"},
                {"version", run.adapters ? kManifestVersion : kWithoutAdapters},
                {"step", progress.step},
                {"samples", progress.samples},
                {"tokens", progress.tokens},
                {"skipped", progress.skipped},
                {"seed", std::to_string(progress.seed)},
                {"losses", losses_json(progress.losses)},
                {"global_batch", progress.global_batch},
                {"learning_rate", rate_json(progress.rate.value_or(RateSchedule{}))},
                {"plan", run.plan},
                {"plan_hash", run.plan_hash},
                {"data", run.data},
                {"weight", element_json(format.weight)},
                {"master", element_json(format.master)},
                {"moment", element_json(format.moment)},
                {"model", Json::parse(model_to_json(run.model))},
                {"files", Json::array()}};
  for (const CheckpointFile& file : manifest.files) {
    document["files"].push_back(
        Json{{"name", file.name}, {"bytes", file.bytes}, {"pieces", file.pieces}});
  }
  if (run.adapters) {
    document["lora"] = run.adapters->text();
    document["lora_alpha"] = run.lora_alpha;
  }
  document["hash"] = content_hash(document.dump());
  return document.dump(1) + "\n";
}

Status check_manifest_version(std::string_view json, std::string_view where) {
  const Result<Json> document = parse_json(json, where);
  if (!document || !document->is_object() || !document->contains("version")) return Done{};
  const Json& version = (*document)["version"];
  if (!version.is_number_integer() || version.get<std::int64_t>() <= kManifestVersion)
    return Done{};
  return input_error(std::string(where),
                     fmt::format("a checkpoint of version {}", version.get<std::int64_t>()),
                     fmt::format("version {} or earlier", kManifestVersion),
                     "a newer version of this program wrote it: continue with that one, or choose "
                     "another directory");
}

Result<CheckpointManifest> parse_manifest(std::string_view json, std::string_view where) {
  Result<Json> document = parse_json(json, where);
  if (!document) return document.error();
  JsonReader reader(*document, std::string(where));
  CheckpointManifest manifest;
  reader.choice("format", {"echelon-checkpoint"});
  const std::int64_t version = reader.integer("version", 1, kMax);
  if (!reader.failed() && version > kManifestVersion) {
    reader.fail("version", fmt::format("version {}", version),
                fmt::format("version {}", kManifestVersion),
                "it was written by a newer version of this program");
  }
  if (reader.failed()) {
    reader.ignore_rest();
    return reader.finish().error();
  }
  const std::string hash = reader.string("hash");
  Json bare = *document;
  bare.erase("hash");
  if (!reader.failed() && content_hash(bare.dump()) != hash) {
    reader.fail("hash", "the hash of another text", "the hash of this one",
                "it is damaged or was edited");
  }
  read_run(reader, version, manifest.contents);
  read_progress(reader, version, manifest.contents.progress);
  read_objects(reader, "files", [&](JsonReader& entry) {
    CheckpointFile file;
    file.name = entry.string("name");
    file.bytes = entry.integer("bytes", 0, kMax);
    file.pieces = read_texts(entry, "pieces");
    if (file.name.empty() || file.name.find('/') != std::string::npos) {
      entry.fail("name", "no name of a file", "a file next to the manifest");
    }
    manifest.files.push_back(std::move(file));
  });
  const Status read = reader.finish();
  if (!read) return read.error();
  return manifest;
}

std::string report_to_json(const MemberReport& report) {
  Json files = Json::array();
  for (const MemberReport::File& file : report.files) {
    files.push_back(Json{{"written", file.written}, {"pieces", file.pieces}});
  }
  return Json{{"files", files}}.dump();
}

Result<MemberReport> parse_report(std::string_view json, std::string_view where) {
  const Result<Json> document = parse_json(json, where);
  if (!document) return document.error();
  JsonReader reader(*document, std::string(where));
  MemberReport report;
  read_objects(reader, "files", [&](JsonReader& entry) {
    MemberReport::File file;
    const Json* written = entry.member("written");
    const bool list = written != nullptr && written->is_array();
    if (!list) entry.fail("written", "no list", "a list of numbers");
    for (std::size_t i = 0; list && i < written->size(); ++i) {
      if (!(*written)[i].is_number_integer()) entry.fail("written", "no number", "numbers");
      file.written.push_back(entry.failed() ? 0 : (*written)[i].get<std::int64_t>());
    }
    file.pieces = read_texts(entry, "pieces");
    report.files.push_back(std::move(file));
  });
  const Status read = reader.finish();
  if (!read) return read.error();
  return report;
}

std::string first_difference(const ModelSpec& found, const ModelSpec& planned) {
  // Names, sources and probabilities of dropout, which is not executed, may differ; so may the
  // schema, which follows from the rest.
  Json a = Json::parse(model_to_json(found));
  Json b = Json::parse(model_to_json(planned));
  for (Json* model : {&a, &b}) {
    for (const char* key : {"schema", "name", "architecture", "source"}) model->erase(key);
  }
  const bool tables = found.position == PositionEmbedding::learned;
  for (const auto& [key, value] : a.items()) {
    if (key.find("dropout") != std::string::npos) continue;
    if (key == "max_positions" && !tables) continue;
    const Json other = b.contains(key) ? b[key] : Json(nullptr);
    if (value != other)
      return fmt::format("{} is {}, the plan's is {}", key, value.dump(), other.dump());
  }
  for (const auto& [key, value] : b.items()) {
    if (!a.contains(key)) return fmt::format("{} is null, the plan's is {}", key, value.dump());
  }
  return {};
}

}  // namespace echelon
