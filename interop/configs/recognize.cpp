// Which format a configuration has, and which other file of the run it names.
#include <algorithm>

#include "core/base/text.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"
#include "interop/configs/unread_files.hpp"

namespace echelon {

namespace {

/// Settings of the format itself: nodes and ranks are those of any script.
std::size_t own_keys_read(const ConfigFormat& format, const ConfigDocument& document) {
  std::set<std::string_view> launcher;
  if (const ConfigRow* gpus = row_of(format, &RunConfig::gpus)) {
    launcher.insert(gpus->keys.begin(), gpus->keys.end());
  }
  const auto started = std::ranges::count_if(
      document.entries, [&](const ConfigEntry& entry) { return launcher.contains(entry.key); });
  return keys_read(format, document) - static_cast<std::size_t>(started);
}

bool is_marked(const ConfigFormat& format, const ConfigDocument& document) {
  return std::ranges::any_of(document.entries, [&](const ConfigEntry& entry) {
    return std::ranges::any_of(format.marks,
                               [&](std::string_view mark) { return same_word(entry.key, mark); });
  });
}

}  // namespace

ConfigSyntax syntax_of(const ConfigText& file) {
  const std::size_t dot = file.name.rfind('.');
  const std::string extension = dot == std::string::npos ? "" : lower_case(file.name.substr(dot));
  if (extension == ".toml") return ConfigSyntax::toml;
  if (extension == ".yaml" || extension == ".yml") return ConfigSyntax::yaml;
  if (extension == ".json" || extension == ".json5") return ConfigSyntax::json;
  if (extension == ".py") return ConfigSyntax::python;
  return ConfigSyntax::arguments;
}

std::set<std::string_view> keys_of(const ConfigFormat& format) {
  std::set<std::string_view> keys;
  for (const ConfigRow& row : format.rows) {
    keys.insert(row.keys.begin(), row.keys.end());
    for (const ConfigCase& each : row.cases) {
      for (const ConfigSetting& setting : each.settings) keys.insert(setting.key);
    }
  }
  for (const FillIn& fill : format.fill_in) keys.insert(fill.key);
  for (const Reset& reset : format.resets) keys.insert(reset.key);
  return keys;
}

std::size_t keys_read(const ConfigFormat& format, const ConfigDocument& document) {
  const std::set<std::string_view> keys = keys_of(format);
  ConfigDocument read = document;
  if (format.unspell != nullptr) format.unspell(read);
  return static_cast<std::size_t>(std::ranges::count_if(
      read.entries, [&](const ConfigEntry& entry) { return keys.contains(entry.key); }));
}

Result<const ConfigFormat*> recognized(const ConfigDocument& document, const GivenRun& given) {
  if (!given.format.empty()) return find_config_format(given.format);
  for (const ConfigFormat& format : config_formats()) {
    if (is_marked(format, document)) return &format;
  }
  const ConfigFormat* best = nullptr;
  std::size_t most = 0;
  for (const ConfigFormat& format : config_formats()) {
    if (!format.marks.empty()) continue;
    const std::size_t read = own_keys_read(format, document);
    if (read > most) {
      best = &format;
      most = read;
    }
  }
  if (std::optional<Error> unread = refuse_unread(document)) return *std::move(unread);
  if (best != nullptr) return best;
  std::string all;
  for (const ConfigFormat& format : config_formats()) {
    all += (all.empty() ? "" : ", ") + std::string(format.title);
  }
  const bool names_a_file = document.find("config-file") != nullptr;
  return input_error(document.name, "no setting that a known framework has", "a file of " + all,
                     names_a_file ? "the file that --config_file names is read" : "");
}

std::optional<std::string> names_other_file(const ConfigText& text) {
  Result<ConfigDocument> document = read_config(syntax_of(text), text.text, text.name);
  if (!document) return std::nullopt;
  const Result<const ConfigFormat*> format = recognized(*document, {});
  if (!format) return std::nullopt;
  if ((*format)->unspell != nullptr) (*format)->unspell(*document);
  const ConfigEntry* entry = names_other_file(ConfigReading{**format, *document});
  if (entry == nullptr || !entry->value.first().unresolved.empty()) return std::nullopt;
  return entry->value.first().text;
}

}  // namespace echelon
