// Words of a script that a command prints, and that may be any options.
#include <fmt/format.h>

#include <algorithm>

#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/shell_words.hpp"

namespace echelon {

namespace {

/// An option that has no value, as far as the format knows it.
bool takes_no_value(const ConfigFormat& format, std::string_view key) {
  if (std::ranges::find(format.switches, key) != format.switches.end()) return true;
  return std::ranges::any_of(format.rows, [&](const ConfigRow& row) {
    return std::ranges::any_of(row.cases, [&](const ConfigCase& each) {
      return std::ranges::any_of(each.settings, [&](const ConfigSetting& setting) {
        return setting.key == key && setting.value == "true";
      });
    });
  });
}

}  // namespace

std::vector<OpenWord> open_arguments(const ConfigFormat& format, ConfigDocument& document) {
  std::vector<OpenWord> out;
  for (const OpenWord& word : document.open_words) {
    const bool values_follow = word.option.ends_with("data-path");
    if (word.is_value ? !takes_no_value(format, word.option) : values_follow) continue;
    for (ConfigEntry& entry : document.entries) {
      const bool same = word.is_value && entry.key == word.option && entry.file == word.file;
      if (same && entry.value.unresolved == kCommandOutput) entry.value = scalar("true");
    }
    out.push_back(word);
  }
  return out;
}

void leave_open(const OpenWord& word, ConfigReading& reading) {
  const std::string place =
      fmt::format("{} line {}", word.file.empty() ? reading.document.name : word.file, word.line);
  std::vector<ConfigFinding> known;
  bool asks_for_model = false;
  for (ConfigFinding& each : reading.findings) {
    const ConfigRow* row = row_of(reading.format, each.field);
    const bool stated_by_options = row != nullptr && (!row->keys.empty() || !row->cases.empty());
    const bool of_a_job = std::holds_alternative<const PlanField*>(each.field) ||
                          each.field == ConfigField{&RunConfig::precision};
    const bool open = each.origin == Origin::assumed && stated_by_options;
    if (!open || !(of_a_job || is_of_model(each.field))) {
      known.push_back(std::move(each));
      continue;
    }
    if (is_of_model(each.field)) {
      asks_for_model = true;
      known.push_back(std::move(each));
      continue;
    }
    // Several fields have one flag: the overlaps.
    std::string ask =
        fmt::format("--{}: {} has the output of a command among the arguments, which may state it",
                    flag_of(each.field), place);
    if (std::ranges::find(reading.asks, ask) == reading.asks.end()) {
      reading.asks.push_back(std::move(ask));
    }
  }
  reading.findings = std::move(known);
  if (asks_for_model) {
    reading.asks.push_back(fmt::format(
        "--model: {} has the output of a command among the arguments, which may state it", place));
  }
}

}  // namespace echelon
