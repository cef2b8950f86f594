#include "core/model/model_io.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/did_you_mean.hpp"
#include "core/base/embedded.hpp"
#include "core/base/text.hpp"
#include "core/json/python_json_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

namespace fs = std::filesystem;

/// The catalog, read once from the embedded files; an invalid one is a bug.
const std::vector<ModelFile>& catalog() {
  static const std::vector<ModelFile> models = [] {
    std::vector<ModelFile> all;
    for (const EmbeddedFile& file : embedded_models()) {
      const Result<Json> document = parse_json(file.content, file.name);
      EXPECTS(document.ok(), document.ok() ? "" : document.error().message());
      Result<ModelFile> model = read_model_file(*document, file.name);
      EXPECTS(model.ok(), model.ok() ? "" : model.error().message());
      model->model.name = file.name;
      all.push_back(*std::move(model));
    }
    // Sorted by family, then by size.
    std::sort(all.begin(), all.end(), [](const ModelFile& a, const ModelFile& b) {
      const auto key = [](const ModelFile& file) {
        const std::string& name = file.model.name;
        return std::tuple(name.substr(0, name.find('-')), file.model.parameters(), name);
      };
      return key(a) < key(b);
    });
    return all;
  }();
  return models;
}

/// The name of a tuned model without what tells it from the one that it was made of, with the same
/// shapes: "qwen/qwen3-235b-a22b" of "Qwen/Qwen3-235B-A22B-Instruct-2507".
std::string stem_of(std::string_view name) {
  std::string stem = lower_case(name);
  const auto dated = [](const std::string& text) {
    constexpr std::size_t kDigits = 4;
    return text.size() > kDigits && text[text.size() - kDigits - 1] == '-' &&
           text.find_first_not_of("0123456789", text.size() - kDigits) == std::string::npos;
  };
  for (bool shorter = true; shorter;) {
    std::size_t cut = dated(stem) ? 5 : 0;
    for (const std::string_view suffix :
         {"-base", "-chat", "-deduped", "-hf", "-instruct", "-it", "-pt", "-thinking"}) {
      if (stem.ends_with(suffix)) cut = suffix.size();
    }
    stem.resize(stem.size() - cut);
    shorter = cut > 0;
  }
  return stem;
}

/// An organisation that publishes others' models under their names, with their shapes.
constexpr std::string_view kMirror = "unsloth/";

/// By its name or an alias; else by their stems, and where no organisation, or a mirror, is given
/// without that of an alias.
const ModelSpec* find_in_catalog(std::string_view name) {
  const auto first_with = [](const auto& is_name) -> const ModelSpec* {
    const auto found = std::ranges::find_if(catalog(), [&](const ModelFile& file) {
      return is_name(file.model.name) || std::ranges::any_of(file.aliases, is_name);
    });
    return found == catalog().end() ? nullptr : &found->model;
  };
  const std::string wanted = lower_case(name);
  if (const ModelSpec* known = first_with([&](const std::string& each) { return each == wanted; }))
    return known;
  const bool mirrored = wanted.starts_with(kMirror);
  const std::string stem = stem_of(mirrored ? wanted.substr(kMirror.size()) : wanted);
  return first_with([&](const std::string& each) {
    const std::string known = stem_of(each);
    return known == stem || known.substr(known.find('/') + 1) == stem;
  });
}

/// "the catalog has pythia-1b, pythia-12b and others", of the models whose names begin with `name`;
/// "" of fewer than two.
std::string family_hint(std::string_view name) {
  constexpr std::size_t kMost = 8;
  const std::string begin = lower_case(name);
  std::vector<std::pair<std::int64_t, std::string>> family;  // by size
  for (const ModelFile& file : catalog()) {
    if (begin.empty() || !file.model.name.starts_with(begin)) continue;
    family.emplace_back(file.model.parameters(), file.model.name);
  }
  if (family.size() < 2) return {};
  std::ranges::sort(family);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kMost, family.size()); ++i)
    names.push_back(family[i].second);
  return fmt::format("the catalog has {}{}", fmt::join(names, ", "),
                     family.size() > kMost ? " and others" : "");
}

Error unknown_model(std::string_view name) {
  std::vector<std::string> known;
  for (const ModelFile& file : catalog()) {
    known.push_back(file.model.name);
    known.insert(known.end(), file.aliases.begin(), file.aliases.end());
  }
  std::string hint = family_hint(name);
  if (hint.empty()) hint = did_you_mean(name, known);
  if (hint.empty()) hint = "plan models lists them";
  return input_error("--model", "unknown model " + in_quotes(name),
                     "a name from the catalog, or a path to a config.json or model file",
                     std::move(hint) + "; of a model of the Hub, its config.json is enough");
}

/// The model's name is the file's stem; for "config.json" it is the name of the folder.
std::string name_from_path(std::string_view where) {
  const fs::path path{std::string(where)};
  const std::string stem = path.stem().string();
  const std::string folder = path.parent_path().filename().string();
  const bool named_folder = !folder.empty() && folder != "." && folder != "..";
  return stem == "config" && named_folder ? folder : stem;
}

Result<ModelReading> model_from(const Json& document, std::string_view where) {
  if (!document.is_object()) {
    return input_error(std::string(where), "not a JSON object",
                       "a HuggingFace config.json or an Echelon model file");
  }
  if (document.contains("request") && document["request"].is_object() &&
      document["request"].contains("model")) {  // a plan file
    return model_from(document["request"]["model"], std::string(where) + " at /request/model");
  }
  if (document.contains("schema")) {
    Result<ModelFile> file = read_model_file(document, where);
    if (!file) return file.error();
    if (file->model.name.empty()) file->model.name = name_from_path(where);
    return ModelReading{std::move(*file).model, {}};
  }
  Result<ModelReading> reading = read_huggingface(document, where);
  if (reading && reading->model.name.empty()) reading->model.name = name_from_path(where);
  return reading;
}

}  // namespace

Result<ModelSpec> parse_model(std::string_view json, std::string_view where) {
  const Result<Json> document = parse_python_json(json, where);
  if (!document) return document.error();
  Result<ModelReading> reading = model_from(*document, where);
  if (!reading) return reading.error();
  return std::move(*reading).model;
}

Result<ModelSpec> load_model(std::string_view name_or_path) {
  Result<ModelReading> reading = read_model(name_or_path);
  if (!reading) return reading.error();
  return std::move(*reading).model;
}

Result<ModelReading> read_model(std::string_view name_or_path) {
  std::string path(name_or_path);
  std::error_code ignored;
  const bool exists = fs::exists(path, ignored);
  const bool in_folder = path.find('/') != std::string::npos;
  if (!exists || !in_folder) {
    if (const ModelSpec* known = find_in_catalog(name_or_path)) return ModelReading{*known, {}};
  }
  // The Hub's names look like "organisation/model".
  const bool looks_like_path = lower_case(path).ends_with(".json") || path.starts_with('.') ||
                               path.starts_with('/') || std::ranges::count(path, '/') > 1;
  if (!exists && !looks_like_path) return unknown_model(name_or_path);
  // A downloaded model is a folder with a config.json in it.
  const std::string inside = (fs::path(path) / "config.json").string();
  if (fs::is_directory(path, ignored)) {
    if (!fs::exists(inside, ignored)) {
      return input_error(path, "is a directory without a config.json",
                         "the folder of a model, or a file");
    }
    path = inside;
  }
  const Result<Json> document = read_python_json(path);
  if (!document) return document.error();
  return model_from(*document, path);
}

std::vector<CatalogModel> model_catalog() {
  std::vector<CatalogModel> names;
  for (const ModelFile& file : catalog()) names.push_back({file.model.name, file.aliases});
  return names;
}

}  // namespace echelon
