#include "interop/configs/import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

std::string value_at(const ConfigEntry& entry) { return entry.value.first().text; }

/// Whether the value of a setting is that of a case; numbers and switches in any spelling.
bool matches(const ConfigEntry* entry, const ConfigSetting& setting) {
  if (entry == nullptr) return false;
  if (setting.value == "*") return true;
  const std::string text = entry->value.is_list ? entry->value.joined() : value_at(*entry);
  if (same_word(text, setting.value)) return true;
  const bool on = setting.value == "true";
  return on && (lower_case(text) == "yes" || lower_case(text) == "on");
}

/// A setting that is off is as good as none: "use_x: false".
bool is_off(const ConfigEntry& entry) {
  const std::string text = lower_case(value_at(entry));
  return text == "false" || text == "no" || text == "off";
}

Error no_case(const ConfigReading& reading, const ConfigRow& row, const ConfigEntry& entry) {
  // Of cases with several settings those alone whose others are met: flavors of the same model.
  std::set<std::string> known;
  std::set<std::string> beside;
  for (const ConfigCase& each : row.cases) {
    const bool others_met = std::ranges::all_of(each.settings, [&](const ConfigSetting& other) {
      return other.key == entry.key || matches(reading.find(other.key), other);
    });
    for (const ConfigSetting& setting : each.settings) {
      if (setting.key != entry.key) continue;
      known.insert(std::string(setting.value));
      if (others_met && each.settings.size() > 1) beside.insert(std::string(setting.value));
    }
  }
  if (!beside.empty()) known = beside;
  std::string expected;
  for (const std::string& each : known) expected += (expected.empty() ? "" : ", ") + each;
  const bool model = row.field == ConfigField{&RunConfig::model_name};
  return input_error(reading.place(entry), in_quotes(entry.value.joined()),
                     "one of " + expected + " (" + std::string(label_of(row.field)) + ")",
                     model ? "--model takes its place" : "");
}

MaybeValue read_row(const ConfigRow& row, const ConfigReading& reading) {
  if (row.read != nullptr) return row.read(row, reading);
  if (!row.cases.empty()) return read_choice(row, reading);
  if (const ConfigEntry* entry = reading.find(row.keys)) {
    const ConfigValue& value = entry->value.first();
    if (value.text == "auto") return std::optional<ReadValue>{};
    return std::optional(ReadValue{value.text, Origin::found, reading.place(*entry)});
  }
  if (row.absent.empty()) return std::optional<ReadValue>{};
  return std::optional(ReadValue{std::string(row.absent), Origin::assumed,
                                 row.keys.empty()
                                     ? fmt::format("{} always", reading.format.title)
                                     : fmt::format("default of {}", reading.format.title)});
}

/// The entry of the row whose value is a variable that nothing sets.
const ConfigEntry* unresolved_entry(const ConfigRow& row, const ConfigReading& reading) {
  std::vector<std::string_view> keys = row.keys;
  for (const ConfigCase& each : row.cases) {
    for (const ConfigSetting& setting : each.settings) keys.push_back(setting.key);
  }
  for (const std::string_view key : keys) {
    const ConfigEntry* entry = reading.find(key);
    if (entry != nullptr && !entry->value.first().unresolved.empty()) return entry;
  }
  return nullptr;
}

/// What the user said, in front of the file.
std::optional<std::string> given_text(const ConfigRow& row, const GivenRun& given) {
  const ConfigField& field = row.field;
  if (given.own_code != nullptr && !row.elsewhere.empty()) return text_of(field, *given.own_code);
  if (const auto* shape = std::get_if<int RunConfig::*>(&field)) {
    if (*shape == &RunConfig::gpus && given.gpus) return std::to_string(*given.gpus);
    if (*shape == &RunConfig::sequence && given.sequence) return std::to_string(*given.sequence);
  }
  if (field == ConfigField{&RunConfig::global_batch} && given.global_batch) {
    return std::to_string(*given.global_batch);
  }
  if (field == plan_part<&P::microbatch> && given.microbatch) {
    return std::to_string(*given.microbatch);
  }
  if (field == plan_part<&P::zero> && given.zero) return std::to_string(*given.zero);
  const auto& shapes = model_fields();
  if (given.model && std::ranges::find(shapes, field, &NamedConfigField::field) != shapes.end()) {
    return text_of(field, RunConfig{.model = *given.model});
  }
  return std::nullopt;
}

Status apply(const ConfigRow& row, const GivenRun& given, ConfigReading& reading) {
  if (row.field == ConfigField{&RunConfig::model_name} && given.model) return Done{};
  if (const auto said = given_text(row, given)) {
    const std::string flag = "--" + std::string(flag_of(row.field));
    if (Status set = set_text(row.field, *said, flag, reading.config); !set) return set;
    reading.findings.push_back({row.field, Origin::found, *said, flag});
    return Done{};
  }
  if (const ConfigEntry* entry = unresolved_entry(row, reading)) {
    reading.asks.push_back(fmt::format("--{}: {} has {}, which the file does not set",
                                       flag_of(row.field), reading.place(*entry),
                                       printable(entry->value.first().unresolved)));
    return Done{};
  }
  const MaybeValue value = read_row(row, reading);
  if (!value) return value.error();
  if (!*value) return Done{};
  const ReadValue& known = **value;
  const std::string where = known.origin == Origin::found ? known.from : reading.document.name;
  if (Status set = set_text(row.field, known.text, where, reading.config); !set) return set;
  reading.findings.push_back(
      {row.field, known.origin, text_of(row.field, reading.config), known.from});
  return Done{};
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(lower_case(a), lower_case(b), [](char x, char y) {
    return x == y || ((x == '-' || x == '_') && (y == '-' || y == '_'));
  });
}

MaybeValue read_choice(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigCase* best = nullptr;
  std::size_t most = 0;
  const ConfigEntry* stray = nullptr;
  const ConfigCase* none = nullptr;
  for (const ConfigCase& each : row.cases) {
    std::size_t asked = 0;
    std::size_t met = 0;
    for (const ConfigSetting& setting : each.settings) {
      const ConfigEntry* entry = reading.find(setting.key);
      if (setting.only_written) continue;
      asked += setting.weight;
      if (matches(entry, setting)) met += setting.weight;
      if (entry != nullptr && !matches(entry, setting) && !is_off(*entry)) stray = entry;
    }
    if (each.settings.empty() && none == nullptr) none = &each;
    if (asked > 0 && met == asked && met > most) {
      best = &each;
      most = met;
    }
  }
  if (best != nullptr) {
    const auto first = std::ranges::find_if(
        best->settings, [](const ConfigSetting& setting) { return !setting.only_written; });
    const ConfigEntry* entry = reading.find(first->key);
    return std::optional(ReadValue{std::string(best->value), Origin::found, reading.place(*entry)});
  }
  // A value no case knows; one that another case of the row knows met only a part of it.
  if (stray != nullptr) {
    const bool known = std::ranges::any_of(row.cases, [&](const ConfigCase& each) {
      return std::ranges::any_of(each.settings, [&](const ConfigSetting& setting) {
        return setting.key == stray->key && matches(stray, setting);
      });
    });
    if (!known) return no_case(reading, row, *stray);
  }
  if (none == nullptr || precision_left_open(row, reading) != nullptr)
    return std::optional<ReadValue>{};
  return std::optional(
      ReadValue{std::string(none->value), Origin::assumed,
                fmt::format("default of {}, where nothing else is said", reading.format.title)});
}

const ConfigEntry* precision_left_open(const ConfigRow& row, const ConfigReading& reading) {
  if (row.field != ConfigField{&RunConfig::precision}) return nullptr;
  for (const ConfigCase& each : row.cases) {
    for (const ConfigSetting& setting : each.settings) {
      const ConfigEntry* entry = reading.document.find(setting.key);
      if (entry != nullptr && entry->value.first().text == "auto") return entry;
    }
  }
  return nullptr;
}

Result<ConfigReading> read_rows(const ConfigFormat& format, const ConfigDocument& document,
                                const GivenRun& given) {
  ConfigReading reading{format, document};
  if (given.model) reading.config.model = *given.model;
  for (const ConfigRow& row : format.rows) {
    if (const Status applied = apply(row, given, reading); !applied) return applied.error();
    if (row.field != ConfigField{&RunConfig::model_name} || given.model) continue;
    const Result<ModelSpec> named = load_model(reading.config.model_name);
    if (!reading.config.model_name.empty() && named) reading.config.model = *named;
  }
  return reading;
}

}  // namespace echelon
