// Hydra overrides of Megatron-Bridge, to and from the keys of its rows.
#include "interop/configs/bridge_spelling.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace echelon {

namespace {

/// Recipes of Llama build their model with get_model_config(), whose class has the transformer as a
/// field of its own; Hydra takes no other keys. Source: Megatron-Bridge 067f987d,
/// src/megatron/bridge/recipes/llama/h100/llama3.py and models/gpt/model_config.py; the flat keys
/// are those of releases before 061468b7 and of all other recipes.
constexpr std::string_view kModel = "model.";
constexpr std::string_view kTransformer = "model.transformer.";

/// A section that recipes leave out (None), name ("bf16_mixed") or fill: Hydra overrides keys of
/// the last alone, and takes a whole section, with the class that it makes, where there is none. So
/// null is written first. Source: Megatron-Bridge 067f987d,
/// src/megatron/bridge/recipes/common.py, _pretrain_common, and
/// training/utils/omegaconf_utils.py.
struct WholeSection {
  std::string_view prefix;
  std::string_view target;
};
constexpr std::array<WholeSection, 2> kWholeSections = {
    {{"comm_overlap.", "megatron.bridge.training.comm_overlap.CommOverlapConfig"},
     {"mixed_precision.", "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"}}};

std::string_view name_of_section(const WholeSection& section) {
  return section.prefix.substr(0, section.prefix.size() - 1);
}

void fold(const WholeSection& section, ConfigDocument& document) {
  std::string settings;
  std::vector<ConfigEntry> entries;
  std::size_t at = 0;  // of the first of its settings
  for (ConfigEntry& entry : document.entries) {
    if (!entry.key.starts_with(section.prefix)) {
      entries.push_back(std::move(entry));
      continue;
    }
    if (settings.empty()) at = entries.size();
    settings += "," + entry.key.substr(section.prefix.size()) + ":" + entry.value.text;
  }
  document.entries = std::move(entries);
  if (settings.empty()) return;
  const std::string name(name_of_section(section));
  const ConfigEntry both[] = {
      {name, scalar("null")},
      {name, scalar("{_target_:" + std::string(section.target) + settings + "}")}};
  document.entries.insert(document.entries.begin() + static_cast<std::ptrdiff_t>(at),
                          std::begin(both), std::end(both));
}

/// "{_target_:a.b.C,x:true}" as entries of the section; what is no such list stays.
void unfold(const WholeSection& section, const ConfigEntry& whole, std::vector<ConfigEntry>& out) {
  const std::string_view text = whole.value.text;
  if (!text.starts_with('{') || !text.ends_with('}')) {
    out.push_back(whole);
    return;
  }
  std::string_view rest = text.substr(1, text.size() - 2);
  while (!rest.empty()) {
    const std::string_view setting = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), setting.size() + 1));
    const std::size_t colon = setting.find(':');
    if (colon == std::string_view::npos) continue;
    std::string key(setting.substr(0, colon));
    std::string value(setting.substr(colon + 1));
    for (std::string* each : {&key, &value}) {
      std::erase_if(*each, [](char c) { return c == ' ' || c == '\'' || c == '"'; });
    }
    if (key == "_target_") continue;
    out.push_back(
        {std::string(section.prefix) + key, scalar(std::move(value)), whole.line, whole.file});
  }
}

}  // namespace

void spell_for_bridge(const RunConfig& config, ConfigDocument& document) {
  if (config.model.prediction_modules > 0) {
    document.set("model.mtp_num_layers", scalar(std::to_string(config.model.prediction_modules)));
  }
  // The overlap of experts asks for the chunks beside a layout that has them too. Source:
  // Megatron-Bridge 067f987d, src/megatron/bridge/training/comm_overlap.py.
  if (config.plan.vpp > 1) {
    document.set("model.virtual_pipeline_model_parallel_size",
                 scalar(std::to_string(config.plan.vpp)));
  }
  for (const WholeSection& section : kWholeSections) fold(section, document);
  for (ConfigEntry& entry : document.entries) {
    // The shell takes its own quotes away; Hydra reads a value with parentheses in quotes alone.
    if (entry.value.is_string) entry.value.text = "'" + entry.value.text + "'";
    if (config.model.architecture == kNestedArchitecture && entry.key.starts_with(kModel)) {
      entry.key.replace(0, kModel.size(), kTransformer);
    }
  }
}

void unspell_bridge(ConfigDocument& document) {
  std::vector<ConfigEntry> entries;
  for (ConfigEntry& entry : document.entries) {
    std::string& text = entry.value.text;
    if (text.size() > 1 && text.front() == '\'' && text.back() == '\'') {
      text = text.substr(1, text.size() - 2);
    }
    if (entry.key.starts_with(kTransformer)) {
      entry.spelled = entry.key;
      entry.key.replace(0, kTransformer.size(), kModel);
    }
    const WholeSection* whole = nullptr;
    for (const WholeSection& section : kWholeSections) {
      if (entry.key == name_of_section(section)) whole = &section;
    }
    if (whole == nullptr) {
      entries.push_back(std::move(entry));
    } else {
      unfold(*whole, entry, entries);
    }
  }
  document.entries = std::move(entries);
}

}  // namespace echelon
