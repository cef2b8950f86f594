#include "interop/configs/format.hpp"

#include <algorithm>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon {

std::string_view name_of(Origin origin) {
  switch (origin) {
    case Origin::found: return "found";
    case Origin::derived: return "derived";
    case Origin::assumed: return "assumed";
  }
  return "?";
}

bool ConfigReading::knows(const ConfigField& field) const {
  return std::ranges::find(findings, field, &ConfigFinding::field) != findings.end();
}

const ConfigEntry* ConfigReading::find(std::string_view key) const {
  const ConfigEntry* entry = document.find(key);
  if (entry == nullptr) return nullptr;
  const std::string& text = entry->value.text;
  const bool null = !entry->value.is_list && entry->value.unresolved.empty() &&
                    (text == "null" || text == "None" || text == "~" || text == "auto" ||
                     text == kFillIn || text.empty());
  return null ? nullptr : entry;
}

const ConfigEntry* ConfigReading::find(const std::vector<std::string_view>& keys) const {
  for (const std::string_view key : keys) {
    if (const ConfigEntry* entry = find(key)) return entry;
  }
  return nullptr;
}

std::string ConfigReading::place(const ConfigEntry& entry) const {
  const bool option =
      format.syntax == ConfigSyntax::arguments && entry.key.find('.') == std::string::npos;
  return document.place(entry) + ": " + (option ? "--" : "") +
         (entry.spelled.empty() ? entry.key : entry.spelled);
}

const std::vector<ConfigFormat>& config_formats() {
  static const std::vector<ConfigFormat> kFormats = {
      megatron_lm_format(),     megatron_bridge_format(), nemo_format(),
      nemo1_format(),           torchtitan_format(),      torchtitan_main_format(),
      torchtitan_toml_format(), deepspeed_format(),       nanotron_format(),
      accelerate_format(),      llm_foundry_format(),     llama_factory_format(),
      axolotl_format(),
  };
  return kFormats;
}

Result<const ConfigFormat*> find_config_format(std::string_view name) {
  std::vector<std::string> known;
  std::string all;
  for (const ConfigFormat& format : config_formats()) {
    if (format.name == name) return &format;
    known.emplace_back(format.name);
    all += (all.empty() ? "" : ", ") + known.back();
  }
  return input_error("the format", "unknown format " + in_quotes(name), "one of " + all,
                     did_you_mean(name, known));
}

const ConfigRow* row_of(const ConfigFormat& format, const ConfigField& field) {
  const auto at = std::ranges::find(format.rows, field, &ConfigRow::field);
  return at == format.rows.end() ? nullptr : &*at;
}

std::string_view framework_of(const ConfigFormat& format) {
  const ConfigRow* row = row_of(format, &RunConfig::framework);
  if (row == nullptr) return {};
  return row->cases.empty() ? row->absent : row->cases.front().value;
}

const ConfigFormat* format_of(std::string_view framework) {
  for (const ConfigFormat& format : config_formats()) {
    if (format.exported && framework_of(format) == framework) return &format;
  }
  return nullptr;
}

bool states_shapes(const ConfigFormat& format) {
  return row_of(format, &ModelSpec::layers) != nullptr;
}

ConfigRow plain(ConfigField field, std::vector<std::string_view> keys, std::string_view absent) {
  return {.field = field, .keys = std::move(keys), .absent = absent};
}

ConfigRow choice(ConfigField field, std::vector<ConfigCase> cases) {
  return {.field = field, .cases = std::move(cases)};
}

ConfigRow fixed(ConfigField field, std::string_view value, std::string_view source) {
  return {.field = field, .absent = value, .source = source};
}

ConfigRow follows(ConfigField field, MaybeValue (*read)(const ConfigRow&, const ConfigReading&)) {
  return {.field = field, .read = read};
}

ConfigRow computed(ConfigField field, std::vector<std::string_view> keys,
                   void (*write)(const ConfigRow&, const RunConfig&, ConfigDocument&),
                   MaybeValue (*read)(const ConfigRow&, const ConfigReading&)) {
  return {.field = field, .keys = std::move(keys), .write = write, .read = read};
}

ConfigRow elsewhere(ConfigField field, std::string_view how,
                    std::vector<std::string_view> read_keys) {
  return {.field = field, .keys = std::move(read_keys), .elsewhere = how};
}

}  // namespace echelon
