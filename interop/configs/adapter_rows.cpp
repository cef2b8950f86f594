// Adapters and weights in 4 bits, as trainers of transformers' models name them: TRL and the
// examples of PEFT, LLaMA-Factory, axolotl.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/plan/adapters.hpp"
#include "core/plan/quantized_weights.hpp"
#include "interop/configs/adapter_targets.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using Target = AdapterTarget;

using Keys = std::span<const std::string_view>;

// As files spell them, and command lines. Source: TRL f2cd5771, trl/trainer/model_config.py; PEFT
// 5d602fdb, examples/sft/train.py; LLaMA-Factory ff6d4d12e,
// src/llamafactory/hparams/finetuning_args.py and model_args.py; axolotl 067b021c,
// src/axolotl/utils/schemas/peft.py.
constexpr std::array<std::string_view, 6> kAdapterSwitches = {
    "use_peft", "use-peft", "use_peft_lora", "use-peft-lora", "finetuning_type", "adapter"};
constexpr std::array<std::string_view, 3> kRanks = {"lora_r", "lora-r", "lora_rank"};
constexpr std::array<std::string_view, 3> kTargets = {"lora_target_modules", "lora-target-modules",
                                                      "lora_target"};
constexpr std::array<std::string_view, 1> kAllLinear = {"lora_target_linear"};
constexpr std::array<std::string_view, 5> kFourBits = {"load_in_4bit", "load-in-4bit",
                                                       "use_4bit_quantization",
                                                       "use-4bit-quantization", "quantization_bit"};
constexpr std::array<std::string_view, 4> kFourBitTypes = {
    "bnb_4bit_quant_type", "bnb-4bit-quant-type", "quantization_type",
    "bnb_config_kwargs.bnb_4bit_quant_type"};
constexpr std::array<std::string_view, 1> kFourBitLibraries = {"quantization_method"};
constexpr std::array<std::string_view, 8> kNested = {
    "use_bnb_nested_quant",      "use-bnb-nested-quant",
    "bnb_4bit_use_double_quant", "bnb-4bit-use-double-quant",
    "use_nested_quant",          "use-nested-quant",
    "double_quantization",       "bnb_config_kwargs.bnb_4bit_use_double_quant"};

/// The first of them that is given.
const ConfigEntry* stated_of(const ConfigReading& reading, Keys keys) {
  for (const std::string_view key : keys) {
    if (const ConfigEntry* entry = reading.find(key)) return entry;
  }
  return nullptr;
}

std::vector<std::string_view> keys_together(std::initializer_list<Keys> parts) {
  std::vector<std::string_view> all;
  for (const Keys part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string word_of(const ConfigEntry& entry) { return lower_case(entry.value.first().text); }

/// As transformers' parser of command lines takes it (hf_argparser.py, string_to_bool), and
/// LLaMA-Factory's `full`.
bool says_off(const std::string& word) {
  return word == "false" || word == "no" || word == "0" || word == "off" || word == "f" ||
         word == "n" || word == "full";
}

/// What PEFT adapts where nothing is named: queries and values, or their one matrix. Of families
/// that it does not list it asks for them. Source: PEFT 5d602fdb, src/peft/utils/constants.py:67,
/// TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.
std::optional<AdapterTargets> usual_targets_of(std::string_view family) {
  constexpr std::array<std::string_view, 14> kAttention = {
      "llama", "llama4", "mistral", "mixtral", "stablelm", "qwen2",    "qwen3",
      "opt",   "gptj",   "gpt2",    "bloom",   "falcon",   "gpt_neox", "gpt_neo"};
  if (family == "phi") {
    return AdapterTargets{Target::linear_qkv, Target::linear_fc1, Target::linear_fc2};
  }
  const bool known =
      std::ranges::find(kAttention, family) != kAttention.end() || family.starts_with("gemma");
  return known ? std::optional(AdapterTargets{Target::linear_qkv}) : std::nullopt;
}

/// The switch that says whether adapters are trained, or what the trainer does without one.
enum class Trained { unsaid, adapters, all };
Trained trained_by(const ConfigReading& reading) {
  const ConfigEntry* entry = stated_of(reading, kAdapterSwitches);
  if (entry == nullptr) {
    if (reading.format.adapters.trains_all) return Trained::all;
    return reading.format.adapters.trains_adapters ? Trained::adapters : Trained::unsaid;
  }
  const std::string word = word_of(*entry);
  if (says_off(word)) return Trained::all;
  return Trained::adapters;
}

/// 16 is TRL's default; of a trainer without one it is asked for.
Result<std::optional<int>> rank_in(const ConfigReading& reading) {
  if (const ConfigEntry* rank = stated_of(reading, kRanks)) {
    if (!rank->value.first().unresolved.empty()) return std::optional<int>{};
    const Result<int> number = number_of(reading, *rank);
    if (!number) return number.error();
    return std::optional(*number);
  }
  const ConfigEntry* said = stated_of(reading, kAdapterSwitches);
  const bool trl = said != nullptr && same_word(said->key, "use_peft");
  if (trl) return std::optional(16);
  const int usual = reading.format.adapters.rank;
  return usual > 0 ? std::optional(usual) : std::nullopt;
}

/// The modules that the file names, all of them, or the trainer's default.
std::optional<AdapterTargets> targets_of(const ConfigReading& reading) {
  const ConfigEntry* linear = stated_of(reading, kAllLinear);
  if (linear != nullptr && !says_off(word_of(*linear))) return kAllAdapterTargets;
  if (const ConfigEntry* named = stated_of(reading, kTargets))
    return adapter_targets(*named, reading.config.model);
  if (reading.format.adapters.all_linear) return kAllAdapterTargets;
  return usual_targets_of(reading.config.model.architecture);
}

/// Nothing where the rank or the targets are not known: --lora is asked for then (asked).
MaybeValue read_peft_adapters(const ConfigRow&, const ConfigReading& reading) {
  const Trained trained = trained_by(reading);
  const ConfigEntry* said = stated_of(reading, kAdapterSwitches);
  if (trained == Trained::all) {
    if (said == nullptr) return std::optional(assumed("none", "no adapter is stated"));
    return std::optional(ReadValue{"none", Origin::found, reading.place(*said)});
  }
  if (trained != Trained::adapters) return std::optional<ReadValue>{};
  const Result<std::optional<int>> rank = rank_in(reading);
  if (!rank) return rank.error();
  const std::optional<AdapterTargets> targets = targets_of(reading);
  if (!*rank || !targets) return std::optional<ReadValue>{};
  const ConfigEntry* stated = stated_of(reading, kRanks);
  if (stated == nullptr) stated = said;
  std::string from = stated != nullptr ? reading.place(*stated)
                                       : "default of " + std::string(reading.format.title);
  const ConfigEntry* named = stated_of(reading, kTargets);
  if (named == nullptr) named = stated_of(reading, kAllLinear);
  if (named != nullptr) from += ", " + reading.place(*named);
  if (named == nullptr) {
    from +=
        *targets == kAllAdapterTargets ? ", all linear modules" : ", the modules of PEFT's default";
  }
  return std::optional(derived(Adapters{**rank, *targets}.text(), std::move(from)));
}

/// In 8 bits weights have no price (unpriced), in fp4 or by other libraries they are asked for.
MaybeValue read_four_bits(const ConfigRow&, const ConfigReading& reading) {
  const ConfigEntry* bits = stated_of(reading, kFourBits);
  if (bits == nullptr || word_of(*bits) == "8") return std::optional<ReadValue>{};
  const AdapterHabits& habits = reading.format.adapters;
  const ConfigEntry* said = stated_of(reading, kAdapterSwitches);
  const bool other =
      !habits.quantizes.empty() && said != nullptr && word_of(*said) != habits.quantizes;
  if (says_off(word_of(*bits)) || other) {
    return std::optional(ReadValue{"none", Origin::found, reading.place(other ? *said : *bits)});
  }
  const ConfigEntry* type = stated_of(reading, kFourBitTypes);
  const ConfigEntry* library = stated_of(reading, kFourBitLibraries);
  const bool known = (type == nullptr || word_of(*type) == "nf4") &&
                     (library == nullptr || word_of(*library) == "bnb") &&
                     (word_of(*bits) == "4" || word_of(*bits).find_first_of("0123456789") != 0);
  if (!known) return std::optional<ReadValue>{};
  const ConfigEntry* nested = stated_of(reading, kNested);
  QuantizedWeights weights;
  weights.double_quant = nested != nullptr ? !says_off(word_of(*nested)) : habits.double_quant;
  std::string from = reading.place(*bits);
  if (nested != nullptr) from += ", " + reading.place(*nested);
  return std::optional(derived(weights.text(), std::move(from)));
}

/// Source: TRL f2cd5771, trl/trainer/model_config.py; PEFT 5d602fdb, src/peft/utils/constants.py.
constexpr std::string_view kAdaptersAsked =
    "adapters alone are trained: --lora RANK:TARGETS, as 16:linear_qkv for q_proj and v_proj";
constexpr std::string_view kModulesAsked =
    "a module that is not known, or no rank: --lora RANK:TARGETS, as 16:linear_qkv for q_proj and "
    "v_proj";
constexpr std::string_view kRankAlone =
    "a rank of adapters, and nothing says that they are trained (TRL: use_peft): --lora "
    "RANK:TARGETS, or the file with use_peft false";
constexpr std::string_view kQuantizedAsked =
    "frozen weights in 4 bits: --quantized-weights nf4, or nf4:double-quant with "
    "use_bnb_nested_quant; fp4 has no price";

}  // namespace

std::vector<ConfigRow> adapter_rows() {
  ConfigRow adapters = elsewhere(&RunConfig::adapters,
                                 "get_peft_model of PEFT, whose r and target_modules these are",
                                 keys_together({kAdapterSwitches, kRanks, kTargets, kAllLinear}));
  adapters.read = read_peft_adapters;
  ConfigRow quantized =
      elsewhere(&RunConfig::quantized, kQuantizedElsewhere,
                keys_together({kFourBits, kFourBitTypes, kFourBitLibraries, kNested}));
  quantized.read = read_four_bits;
  return {std::move(adapters), std::move(quantized)};
}

std::vector<AskedSetting> asked_of_adapters() {
  std::vector<AskedSetting> asked;
  const auto add = [&](Keys keys, std::string_view flag, std::string_view what) {
    for (const std::string_view key : keys) asked.push_back({key, flag, what});
  };
  add(kTargets, "lora", kModulesAsked);
  add(kAdapterSwitches, "lora", kAdaptersAsked);
  add(kRanks, "lora", kRankAlone);
  add(kFourBits, "quantized-weights", kQuantizedAsked);
  return asked;
}

std::vector<UnpricedSetting> unpriced_of_adapters() {
  constexpr std::string_view kEightBits = "weights of 8 bits";
  return {{"load_in_8bit", "", "", kEightBits},
          {"load-in-8bit", "", "", kEightBits},
          {"use_8bit_quantization", "", "", kEightBits},
          {"use-8bit-quantization", "", "", kEightBits},
          {"use_dora"},
          {"use-dora"},
          {"lora_modules_to_save"},
          {"lora-modules-to-save"},
          {"additional_target"},
          {"additional-target"}};
}

/// Adapters on a part of what one target stands for, which is priced as a whole; 8 bits.
void add_unpriced_adapters(const ConfigReading& reading, std::vector<std::string>& out) {
  const ConfigEntry* bits = stated_of(reading, kFourBits);
  if (bits != nullptr && word_of(*bits) == "8") {
    out.push_back(fmt::format("{} = 8", reading.place(*bits)));
  }
  if (!reading.knows(&RunConfig::adapters) || reading.config.adapters == "none") return;
  const ConfigEntry* named = stated_of(reading, kTargets);
  if (named == nullptr) {
    if (reading.config.adapters.ends_with(":linear_qkv")) {
      out.emplace_back("adapters on q_proj and v_proj alone, PEFT's default: priced with k_proj");
    }
    return;
  }
  const std::vector<std::string> words = adapted_modules(*named, reading.config.model);
  const auto lacks = [&](std::string_view name) {
    return std::ranges::find(words, name) == words.end();
  };
  struct Matrices {
    std::string_view target;
    std::vector<std::string_view> parts;
  };
  static const std::vector<Matrices> kSeveral = {{"linear_qkv", {"q_proj", "k_proj", "v_proj"}},
                                                 {"linear_fc1", {"gate_proj", "up_proj"}}};
  for (const Matrices& each : kSeveral) {
    if (std::ranges::none_of(each.parts, lacks) || std::ranges::all_of(each.parts, lacks)) continue;
    std::string absent;
    for (const std::string_view part : each.parts) {
      if (lacks(part)) absent += (absent.empty() ? "" : ", ") + std::string(part);
    }
    out.push_back(fmt::format("{} without {}: priced is {}, with all of them",
                              reading.place(*named), absent, each.target));
  }
}

}  // namespace echelon
