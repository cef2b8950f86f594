#include "tests/fuzz/entries.hpp"

#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/compressed_text.hpp"
#include "core/base/content_hash.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "core/schedule/schedule_check.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "interop/configs/import.hpp"
#include "interop/logs/imported_log.hpp"
#include "runtime/io/data/tokens.hpp"
#include "runtime/io/weights/huggingface.hpp"
#include "runtime/io/weights/manifest.hpp"
#include "topologies/description/description.hpp"
#include "topologies/import/wiring.hpp"

namespace echelon::fuzz {
namespace {

/// "" if the error gives the input found and its place.
std::string explained(const Error& error) {
  if (error.found.empty() || error.where.empty()) return "an error without reason or place";
  if (error.message().size() > 4000) return "an error longer than a page";
  return {};
}

/// read(write(read(input))) writes the same.
std::string stable(const auto& read, const auto& write, std::string_view input) {
  const auto value = read(input);
  if (!value) return explained(value.error());
  const std::string text = write(*value);
  const auto again = read(text);
  if (!again) return "what was written is refused: " + again.error().message();
  if (write(*again) != text) return "what was written is read as something else";
  return {};
}

}  // namespace

std::string plan_file(std::string_view input) {
  return stable([](std::string_view text) { return parse_plan_file(text, "input"); },
                plan_file_to_json, input);
}

std::string resealed_plan_file(std::string_view input) {
  using Json = nlohmann::ordered_json;
  Json root = Json::parse(input, nullptr, false);
  const auto object = [](const Json& json, const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_object();
  };
  if (object(root, "hashes") && object(root, "program") && object(root, "request") &&
      object(root["request"], "model")) {
    const Result<ModelSpec> model = parse_model(root["request"]["model"].dump(), "input");
    if (model) root["hashes"]["model"] = content_hash(model_to_json(*model));
    Json& program = root["program"];
    if (program.contains("text") && program["text"].is_string()) {
      const std::string text = program["text"].get<std::string>();
      program["hash"] = content_hash(text);
      program["bytes"] = text.size();
    }
    root["hashes"]["contents"] = "";
    Json bare = root;
    bare["hashes"].erase("contents");
    bare["program"].erase("format");
    bare["program"].erase("text");
    root["hashes"]["contents"] =
        content_hash(bare.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return plan_file(root.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string packed_text(std::string_view input) {
  // The first bytes give the declared length, the rest is the text.
  CompressedText packed;
  packed.compressed = !input.empty() && input[0] != 't';
  for (std::size_t i = 1; i < std::min<std::size_t>(input.size(), 4); ++i) {
    packed.bytes = packed.bytes << 8 | static_cast<unsigned char>(input[i]);
  }
  packed.text = input.substr(std::min<std::size_t>(input.size(), 4));
  const Result<std::string> text = unpack_text(packed, "input");
  if (!text) return explained(text.error());
  if (static_cast<std::int64_t>(text->size()) != packed.bytes) return "not the declared length";
  const Result<std::string> again = unpack_text(pack_text(*text), "input");
  return again && *again == *text ? "" : "what was packed is unpacked as something else";
}

std::string schedule_text(std::string_view input) {
  const Result<Schedule> schedule = parse_schedule_text(input, "input");
  if (!schedule) return explained(schedule.error());
  (void)check_schedule(*schedule);
  return to_text(*schedule) == input ? "" : "a schedule with two texts";
}

std::string model(std::string_view input) {
  return stable([](std::string_view text) { return parse_model(text, "input"); }, model_to_json,
                input);
}

std::string topology(std::string_view input) {
  const Result<MachineDescription> machine = parse_machine(input, "input");
  if (!machine) return explained(machine.error());
  if (canonical_json(*parse_machine(input, "input")) != canonical_json(*machine)) {
    return "one text, two machines";
  }
  const Result<ClusterTopology> cluster = ClusterTopology::parse(input, "input", 0);
  return cluster ? "" : explained(cluster.error());
}

std::string wiring(std::string_view input) {
  const Result<NodeWiring> found = parse_wiring(input, "input");
  if (!found) return explained(found.error());
  WiredMachine machine;
  machine.name = "input";
  machine.gpu = std::string("h100");
  machine.wiring = *found;
  const Result<std::string> description = description_of(machine);
  if (!description) return explained(description.error());
  const Result<ClusterTopology> cluster = ClusterTopology::parse(*description, "input", 0);
  return cluster ? "" : "a description of ours that is none: " + cluster.error().message();
}

std::string calibration(std::string_view input) {
  return stable([](std::string_view text) { return parse_calibration(text, "input"); },
                calibration_to_json, input);
}

std::string runs(std::string_view input) {
  const Result<std::vector<MeasuredRun>> rows = parse_runs(input, "input");
  if (!rows) return explained(rows.error());
  if (rows->empty()) return "a table without rows is an error";
  std::int64_t before = 1;
  for (const MeasuredRun& row : *rows) {
    if (row.row_number <= before) return "rows that do not count up";
    before = row.row_number;
  }
  return {};
}

std::string training_log(std::string_view input) {
  const Result<TrainingLog> log = parse_training_log(input, "input");
  if (!log) return explained(log.error());
  const Result<ImportedLog> imported = import_log(*log, {});
  if (!imported) return explained(imported.error());
  const bool timed = imported->steps.step.has_value();
  if (timed != (imported->refused.empty() && imported->steps.needs.empty())) {
    return "neither a step time nor a reason";
  }
  if (timed && !(imported->steps.step->in(kSecond) > 0)) return "a step without time";
  const std::string csv = runs_to_csv(std::span(&imported->row, 1));
  const Result<std::vector<MeasuredRun>> rows = parse_runs(csv, "rows");
  if (!rows) return "its row is refused: " + rows.error().message();
  if (runs_to_csv(*rows) != csv) return "its row is read as something else";
  return {};
}

std::string safetensors(std::string_view input) {
  const auto bytes = static_cast<std::int64_t>(input.size());
  Result<SafetensorsHeader> header = parse_safetensors(input, bytes, "input");
  if (!header) return explained(header.error());
  const std::string head = place_safetensors(*header);
  const std::int64_t data = header->tensors.empty() ? 0 : header->tensors.back().end;
  if (data != bytes - *safetensors_head(input, bytes, "input")) return "tensors of another length";
  const auto whole = static_cast<std::int64_t>(head.size()) + data;
  Result<SafetensorsHeader> again = parse_safetensors(head, whole, "input");
  if (!again) return "what was written is refused: " + again.error().message();
  return place_safetensors(*again) == head ? "" : "what was written is read as something else";
}

std::string safetensors_index(std::string_view input) {
  const auto files = parse_safetensors_index(input, "input");
  if (!files) return explained(files.error());
  for (const auto& [tensor, file] : *files) {
    if (file.empty() || file.find('/') != std::string::npos) return "a file somewhere else";
  }
  return {};
}

std::string token_index(std::string_view input) {
  // The reader takes files: one pair of them, in a folder of this process.
  namespace fs = std::filesystem;
  struct Folder {
    std::string path = (fs::temp_directory_path() / "echelon-fuzz-XXXXXX").string();
    Folder() {
      if (mkdtemp(path.data()) == nullptr) std::abort();
      std::ofstream(path + "/m.bin", std::ios::binary) << std::string(36, '\0');
    }
    ~Folder() { fs::remove_all(path); }
  };
  static const Folder folder;
  std::ofstream(folder.path + "/m.idx", std::ios::binary) << input;
  const auto source = open_tokens(folder.path + "/m", 100);
  if (!source) return explained(source.error());
  std::vector<std::int32_t> tokens(36);
  if ((*source)->count() > 36) return "more tokens than bytes";
  return (*source)->read(0, (*source)->count(), tokens.data()).ok() ? "" : "zeros are tokens";
}

std::string resealed_manifest(std::string_view input) {
  using Json = nlohmann::ordered_json;
  Json root = Json::parse(input, nullptr, false);
  if (root.is_object()) {
    root.erase("hash");
    const std::string text = root.dump(-1, ' ', false, Json::error_handler_t::replace);
    root["hash"] = content_hash(text);
  }
  return stable([](std::string_view text) { return parse_manifest(text, "input"); },
                manifest_to_json, root.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string huggingface_config(std::string_view input) {
  const auto config = parse_huggingface_config(input, "input");
  if (!config) return explained(config.error());
  HuggingFaceNames names{};
  const auto text = echelon::huggingface_config(config->model, Element::f32, names);
  if (!text) return explained(text.error());
  const auto again = parse_huggingface_config(*text, "input");
  if (!again) return "what was written is refused: " + again.error().message();
  return first_difference(again->model, config->model);
}

/// Read, and read again from what was read: the findings are the same.
std::string config(const char* name, std::string_view input) {
  GivenRun given;
  given.gpus = 64;
  const Result<ImportedConfig> read = import_config({{name, std::string(input)}}, given);
  if (!read) return explained(read.error());
  const Result<ImportedConfig> again = import_config({{name, std::string(input)}}, given);
  return again && again->findings.size() == read->findings.size() ? "" : "one text, two runs";
}

std::string config_script(std::string_view input) { return config("input.sh", input); }
std::string config_toml(std::string_view input) { return config("input.toml", input); }
std::string config_python(std::string_view input) { return config("input.py", input); }
std::string config_yaml(std::string_view input) { return config("input.yaml", input); }
std::string config_json(std::string_view input) { return config("input.json", input); }

std::span<const Entry> entries() {
  static constexpr Entry kEntries[] = {
      {"plan_file", plan_file, "tests/fuzz/corpus/plan_file", ""},
      {"resealed_plan_file", resealed_plan_file, "tests/fuzz/corpus/plan_file", ""},
      {"packed_text", packed_text, "tests/fuzz/corpus/packed_text", ""},
      {"schedule_text", schedule_text, "tests/fuzz/corpus/schedule_text", ""},
      {"model", model, "tests/fuzz/corpus/model", "tests/core/model/configs"},
      {"topology", topology, "tests/fuzz/corpus/topology", "tests/topologies/machines"},
      {"wiring", wiring, "tests/fuzz/corpus/wiring", ""},
      {"calibration", calibration, "tests/fuzz/corpus/calibration",
       "costmodel/catalog/calibrations"},
      {"runs", runs, "tests/fuzz/corpus/runs", ""},
      {"training_log", training_log, "tests/fuzz/corpus/training_log", ""},
      {"safetensors", safetensors, "tests/fuzz/corpus/safetensors", ""},
      {"safetensors_index", safetensors_index, "tests/fuzz/corpus/safetensors_index", ""},
      {"token_index", token_index, "tests/fuzz/corpus/token_index", ""},
      {"resealed_manifest", resealed_manifest, "tests/fuzz/corpus/manifest", ""},
      {"huggingface_config", huggingface_config, "tests/fuzz/corpus/huggingface_config", ""},
      {"config_script", config_script, "tests/fuzz/corpus/config_script", ""},
      {"config_toml", config_toml, "tests/fuzz/corpus/config_toml", ""},
      {"config_python", config_python, "tests/fuzz/corpus/config_python", ""},
      {"config_yaml", config_yaml, "tests/fuzz/corpus/config_yaml", ""},
      {"config_json", config_json, "tests/fuzz/corpus/config_json", ""}};
  return kEntries;
}

}  // namespace echelon::fuzz
