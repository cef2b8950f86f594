// Megatron-LM's options of models whose layers have one part each, some of them a state space.
// Source: Megatron-LM d98e8a64, megatron/training/arguments.py:741-930,
// megatron/core/transformer/transformer_config.py:1256-1282 and megatron/core/ssm/mamba_mixer.py;
// core_v0.16.1 for the ratios.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "core/framework/stage_layers.hpp"
#include "interop/configs/hybrid_pattern.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using M = ModelSpec;
using S = StateSpace;

constexpr std::string_view kPattern = "hybrid-layer-pattern";
constexpr std::string_view kOldPattern = "hybrid-override-pattern";
constexpr std::string_view kAttentionRatio = "hybrid-attention-ratio";
constexpr std::string_view kMlpRatio = "hybrid-mlp-ratio";
constexpr std::string_view kModulePattern = "mtp-hybrid-override-pattern";
constexpr std::string_view kModules = "mtp-num-layers";

/// A pattern, and where it comes from.
struct KnownPattern {
  HybridPattern pattern;
  std::string from;
};
using MaybePattern = Result<std::optional<KnownPattern>>;

Result<double> ratio_at(const ConfigReading& reading, std::string_view key) {
  const ConfigEntry* entry = reading.find(key);
  if (entry == nullptr) return 0.0;
  return parse_ratio(entry->value.first().text, reading.place(*entry), 0, 1);
}

/// The switch of releases up to core 0.16, or the specification of its layers.
const ConfigEntry* hybrid_mark(const ConfigReading& reading) {
  if (says(reading, "is-hybrid-model", "true")) return reading.find("is-hybrid-model");
  const ConfigEntry* spec = reading.find("spec");
  if (spec == nullptr) return nullptr;
  const std::string name = spec->value.joined();
  const bool hybrid = name.find("mamba_stack_spec") != std::string::npos ||
                      name.find("hybrid_stack_spec") != std::string::npos;
  return hybrid ? spec : nullptr;
}

/// Without a pattern, up to core 0.16: by ratios, without them Mamba alone.
MaybePattern ratio_pattern(const ConfigReading& reading) {
  const Result<double> attention = ratio_at(reading, kAttentionRatio);
  if (!attention) return attention.error();
  const Result<double> mlp = ratio_at(reading, kMlpRatio);
  if (!mlp) return mlp.error();
  const bool ratios = *attention > 0 || *mlp > 0;
  const ConfigEntry* from = reading.find(*attention > 0 ? kAttentionRatio : kMlpRatio);
  if (!ratios) from = hybrid_mark(reading);
  if (from == nullptr) return std::optional<KnownPattern>{};
  if (*attention + *mlp > 1) {
    return input_error(
        reading.place(*from),
        fmt::format("--{} {:g} and --{} {:g}", kAttentionRatio, *attention, kMlpRatio, *mlp),
        "ratios that add up to at most 1");
  }
  const Result<std::optional<int>> layers = number_at(reading, "num-layers");
  if (!layers) return layers.error();
  if (!*layers) return std::optional<KnownPattern>{};
  if (**layers < 1 || **layers > kMostPatternLayers) {
    return input_error(reading.place(*from), fmt::format("{} layers", **layers),
                       fmt::format("between 1 and {}", kMostPatternLayers));
  }
  KnownPattern known{{.letters = pattern_of_ratios(**layers, *attention, *mlp)},
                     reading.place(*from)};
  if (ratios) known.from += ", by Megatron-LM's allocation";
  const Status priced = check_priced_letters(known.pattern.letters, reading.place(*from));
  if (!priced) return priced.error();
  return std::optional(std::move(known));
}

const ConfigEntry* pattern_entry(const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(kPattern);
  return entry != nullptr ? entry : reading.find(kOldPattern);
}

/// Ratios next to a pattern, in releases that have both: these compare the numbers of layers.
Status check_ratios(const ConfigReading& reading, const KnownPattern& known) {
  const Result<double> attention = ratio_at(reading, kAttentionRatio);
  if (!attention) return attention.error();
  const Result<double> mlp = ratio_at(reading, kMlpRatio);
  if (!mlp) return mlp.error();
  if ((*attention <= 0 && *mlp <= 0) || *attention + *mlp > 1) return Done{};
  std::string of_letters = known.pattern.letters;
  std::string of_ratios = pattern_of_ratios(static_cast<int>(of_letters.size()), *attention, *mlp);
  std::ranges::sort(of_letters);
  std::ranges::sort(of_ratios);
  if (of_letters == of_ratios) return Done{};
  return input_error(known.from,
                     fmt::format("other numbers of layers than --{} {:g} and --{} {:g} give",
                                 kAttentionRatio, *attention, kMlpRatio, *mlp),
                     "the same numbers, or no ratios");
}

MaybePattern stated_pattern(const ConfigReading& reading, const ConfigEntry& entry) {
  const ConfigEntry* old = reading.find(kOldPattern);
  const bool two = old != nullptr && old->key != entry.key;
  if (two && old->value.joined() != entry.value.joined()) {
    return input_error(reading.place(*old), "another pattern than --" + std::string(kPattern),
                       "one of the two options");
  }
  const std::string place = reading.place(entry);
  Result<HybridPattern> pattern = parse_hybrid_pattern(entry.value.joined(), place);
  if (!pattern) return pattern.error();
  const Status priced = check_priced_letters(pattern->letters, place);
  if (!priced) return priced.error();
  KnownPattern known{*std::move(pattern), place};
  const Status ratios = check_ratios(reading, known);
  if (!ratios) return ratios.error();
  return std::optional(std::move(known));
}

/// Nothing: an ordinary transformer, or a pattern that the file leaves to a variable.
MaybePattern pattern_at(const ConfigReading& reading) {
  const ConfigEntry* entry = pattern_entry(reading);
  if (entry == nullptr) return ratio_pattern(reading);
  if (!entry->value.first().unresolved.empty()) return std::optional<KnownPattern>{};
  return stated_pattern(reading, *entry);
}

/// Options of Mamba's layers without such layers: what is said is not what would be priced. Their
/// defaults are among the arguments that every run prints.
Status check_stray_options(const ConfigReading& reading) {
  constexpr std::pair<std::string_view, std::string_view> kUsual[] = {{"mamba-state-dim", "128"},
                                                                      {"mamba-head-dim", "64"},
                                                                      {"mamba-num-groups", "8"},
                                                                      {"mamba-num-heads", ""},
                                                                      {kModulePattern, ""}};
  for (const auto& [key, usual] : kUsual) {
    const ConfigEntry* entry = reading.find(key);
    if (entry == nullptr || entry->value.first().text == usual) continue;
    return input_error(reading.place(*entry), "an option of hybrid models without their pattern",
                       "--hybrid-layer-pattern with a letter for each layer",
                       "or give the model by --model");
  }
  return Done{};
}

MaybeValue read_layers(const ConfigRow& row, const ConfigReading& reading) {
  const MaybePattern known = pattern_at(reading);
  if (!known) return known.error();
  const ConfigEntry* stated = reading.find(row.keys[0]);
  if (*known) {
    const std::string count = std::to_string((*known)->pattern.letters.size());
    std::string from = (*known)->from;
    if (stated != nullptr && stated->value.first().text != count) {
      from += ", before --num-layers " + printable(stated->value.first().text);
    }
    return std::optional(ReadValue{count, Origin::found, std::move(from)});
  }
  if (const Status stray = check_stray_options(reading); !stray) return stray.error();
  if (stated == nullptr) return std::optional<ReadValue>{};
  return std::optional(
      ReadValue{stated->value.first().text, Origin::found, reading.place(*stated)});
}

MaybeValue read_letters(const ConfigRow&, const ConfigReading& reading) {
  const MaybePattern known = pattern_at(reading);
  if (!known) return known.error();
  if (!*known) return std::optional<ReadValue>{};
  return std::optional(derived((*known)->pattern.letters, (*known)->from));
}

void write_letters(const ConfigRow&, const RunConfig& config, ConfigDocument& out) {
  if (config.model.layer_pattern.empty()) return;
  out.set(kPattern, quoted(megatron_pattern(config.model, config.plan)));
  ConfigValue spec;
  spec.is_list = true;
  spec.items = {scalar("megatron.core.models.hybrid.hybrid_layer_specs"),
                scalar("hybrid_stack_spec")};
  out.set("spec", std::move(spec));
}

int letters_in(const ConfigReading& reading, std::string_view kinds) {
  const std::string& letters = reading.config.model.layer_pattern;
  return static_cast<int>(std::ranges::count_if(
      letters, [&](char c) { return kinds.find(c) != std::string_view::npos; }));
}

MaybeValue state_space_layers(const ConfigRow&, const ConfigReading& reading) {
  const int layers = letters_in(reading, "M");
  if (layers == 0) return std::optional<ReadValue>{};
  return std::optional(derived(layers, "the letters M of the pattern"));
}

MaybeValue mlp_layers(const ConfigRow&, const ConfigReading& reading) {
  const int layers = letters_in(reading, "-E");
  if (layers == 0) return std::optional<ReadValue>{};
  return std::optional(derived(layers, "the letters - or E of the pattern"));
}

template <auto member, int by_default>
ConfigRow mamba_row(std::string_view key) {
  return computed(
      member, {key},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        const bool told = !config.model.layer_pattern.empty() && config.model.ssm.layers > 0;
        if (told) write_number(out, row.keys[0], config.model.ssm.*member);
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        if (letters_in(reading, "M") == 0) return std::optional<ReadValue>{};
        return found_or(reading, row.keys[0], std::to_string(by_default));
      });
}

/// Without the option twice the hidden state, in heads.
MaybeValue mamba_heads(const ConfigRow& row, const ConfigReading& reading) {
  if (letters_in(reading, "M") == 0) return std::optional<ReadValue>{};
  if (reading.find(row.keys[0]) != nullptr) return found_or(reading, row.keys[0], "");
  constexpr int kExpand = 2;
  const std::int64_t width = std::int64_t{kExpand} * reading.config.model.hidden;
  const int head = reading.config.model.ssm.head_dim;
  if (width <= 0 || head <= 0) return std::optional<ReadValue>{};
  if (width % head != 0) {
    return input_error(reading.document.name,
                       fmt::format("--mamba-head-dim {} for a width of {}", head, width),
                       "a divisor of twice the hidden size, or --mamba-num-heads");
  }
  return std::optional(derived(width / head, "twice the hidden size, in heads"));
}

ConfigRow mamba_heads_row() {
  ConfigRow row = mamba_row<&S::heads, 0>("mamba-num-heads");
  row.read = mamba_heads;
  return row;
}

MaybeValue convolution(const ConfigRow&, const ConfigReading& reading) {
  if (letters_in(reading, "M") == 0) return std::optional<ReadValue>{};
  return std::optional(assumed("4", "the default, which no option changes"));
}

/// Those of the pattern; else so many, whose layers another option names.
MaybeValue read_prediction(const ConfigRow& row, const ConfigReading& reading) {
  const MaybePattern known = pattern_at(reading);
  if (!known) return known.error();
  const Result<std::optional<int>> stated = number_at(reading, row.keys[0]);
  if (!stated) return stated.error();
  const int modules = stated->value_or(0);
  if (*known && (*known)->pattern.modules > 0) {
    return std::optional(derived((*known)->pattern.modules, (*known)->from));
  }
  if (*stated == std::nullopt) return std::optional(assumed("0"));
  const std::string place = reading.place(*reading.find(row.keys[0]));
  if (*known && modules > 0) {
    const ConfigEntry* layers = reading.find(kModulePattern);
    if (layers == nullptr) {
      return input_error(place, "prediction modules without their layers",
                         "a / and the layers of each behind the pattern");
    }
    const Result<HybridPattern> whole = parse_hybrid_pattern(
        (*known)->pattern.letters + "/" + layers->value.joined(), reading.place(*layers));
    if (!whole) return whole.error();
  }
  return std::optional(ReadValue{std::to_string(modules), Origin::found, place});
}

/// Layers of the chunks, where the pattern has bars.
Result<std::vector<int>> bars_at(const ConfigReading& reading) {
  const ConfigEntry* entry = pattern_entry(reading);
  const std::string text = entry == nullptr ? "" : entry->value.joined();
  const std::string_view layers = std::string_view(text).substr(0, text.find('/'));
  if (layers.find('|') == std::string_view::npos) return std::vector<int>{};
  std::vector<int> chunks = {0};
  for (const char c : layers) {
    if (c == '|') chunks.push_back(0);
    if (c != '|') ++chunks.back();
  }
  const int pp = std::max(1, reading.config.plan.pp);
  if (chunks.size() % static_cast<std::size_t>(pp) == 0) return chunks;
  return input_error(reading.place(*entry), fmt::format("a pattern of {} chunks", chunks.size()),
                     fmt::format("a multiple of pp {}", pp));
}

}  // namespace

bool states_hybrid(const ConfigDocument& options) {
  const ConfigFormat none;
  const ConfigReading reading{none, options};
  const auto positive = [&](std::string_view key) {
    const Result<double> ratio = ratio_at(reading, key);
    return !ratio || *ratio > 0;
  };
  return pattern_entry(reading) != nullptr || hybrid_mark(reading) != nullptr ||
         positive(kAttentionRatio) || positive(kMlpRatio);
}

std::vector<ConfigRow> megatron_layer_rows() {
  return {
      computed(
          &M::layers,
          {"num-layers", kPattern, kOldPattern, kAttentionRatio, kMlpRatio, "is-hybrid-model"},
          [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
            write_number(out, row.keys[0], config.model.layers);
          },
          read_layers),
      computed(&M::layer_pattern, {}, write_letters, read_letters),
      follows(&S::layers, state_space_layers),
      follows(&M::mlp_only_layers, mlp_layers),
      computed(
          &M::prediction_modules, {kModules, kModulePattern},
          [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
            const int modules = config.model.prediction_modules;
            if (modules > 0) write_number(out, row.keys[0], modules);
          },
          read_prediction),
  };
}

std::vector<ConfigRow> megatron_mamba_rows() {
  return {
      mamba_row<&S::state_dim, 128>("mamba-state-dim"),
      mamba_row<&S::head_dim, 64>("mamba-head-dim"),
      mamba_row<&S::groups, 8>("mamba-num-groups"),
      mamba_heads_row(),
      computed(&S::conv_kernel, {}, nullptr, convolution),
  };
}

void write_megatron_vpp(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.model.layer_pattern.empty()) write_vpp(row, config, out);
}

MaybeValue read_megatron_vpp(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::vector<int>> chunks = bars_at(reading);
  if (!chunks) return chunks.error();
  if (chunks->empty()) return read_vpp(row, reading);
  const int pp = std::max(1, reading.config.plan.pp);
  return std::optional(derived(static_cast<std::int64_t>(chunks->size()) / pp,
                               reading.place(*pattern_entry(reading))));
}

void write_megatron_stages(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.model.layer_pattern.empty()) write_stage_layers(row, config, out);
}

MaybeValue read_megatron_stages(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::vector<int>> chunks = bars_at(reading);
  if (!chunks) return chunks.error();
  if (chunks->empty()) return read_stage_layers(row, reading);
  return stages_of_chunks(reading, reading.place(*pattern_entry(reading)), *chunks);
}

std::string why_megatron_loses(const ConfigField& field, const RunConfig& config) {
  const ModelSpec& model = config.model;
  const bool of_layers =
      std::holds_alternative<int S::*>(field) || field == ConfigField{&M::mlp_only_layers};
  if (!of_layers || !model.layer_pattern.empty()) return {};
  if (model.mlp_only_layers == 0) {
    return fmt::format(
        "{} of {} layers with a state space and an MLP each: Megatron-LM runs them as two layers "
        "each (--hybrid-layer-pattern, --mamba-*), but which of the layers they are is not known "
        "here",
        model.ssm.layers, model.layers);
  }
  return fmt::format(
      "{} layers with a state space and {} of an MLP alone: Megatron-LM runs them "
      "(--hybrid-layer-pattern, --mamba-*), but the order of the {} layers is not known here; add "
      "\"layer_pattern\" to the model's file",
      model.ssm.layers, model.mlp_only_layers, model.layers);
}

}  // namespace echelon
