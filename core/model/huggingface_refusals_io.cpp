// Why a HuggingFace config.json is not read: operators without a price, other kinds of models,
// unknown families.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/model/huggingface_families_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// An unsupported family, and the supported one with the most similar layers.
struct Relative {
  std::string_view model_type;
  std::string_view nearest;
};
/// Families with an operator that is not priced, and its name. None of them is priced as attention
/// over all keys, which would be another computation.
struct UnpricedOperator {
  Relative family;
  std::string_view name;
};
constexpr std::string_view kStateSpace = "state-space layers (Mamba)";
constexpr std::string_view kFirstMamba = "state-space layers of the first generation (Mamba-1)";
constexpr std::string_view kSharedBlock = "state-space layers and one attention block for several";
constexpr std::string_view kAlone = "state-space layers without attention or MLP";
constexpr std::string_view kSparse =
    "sparse attention whose indexer chooses the keys (DSA), in a family whose attention differs "
    "from DeepSeek-V3.2's";
constexpr std::string_view kLightning = "lightning attention";
constexpr std::string_view kRecurrence = "a recurrence instead of attention";
constexpr std::string_view kStreams = "several residual streams (hyper-connections)";
constexpr std::string_view kSharedKeys =
    "layers that share an indexer's choice of keys, or latent keys";
constexpr std::string_view kMoreHeads = "a number of heads that differs between layers";
constexpr std::string_view kPerLayer = "embeddings of each layer and keys shared by layers";
constexpr std::string_view kLoops = "layers that run several times";
constexpr std::string_view kInkling =
    "relative positions in attention scores, and convolutions of keys, values and branches";
constexpr std::array kUnpriced = {
    UnpricedOperator{{"jamba", "mixtral"}, kFirstMamba},
    UnpricedOperator{{"zamba", "bamba"}, kSharedBlock},
    UnpricedOperator{{"zamba2", "bamba"}, kSharedBlock},
    UnpricedOperator{{"minimax", "minimax_m2"}, kLightning},
    UnpricedOperator{{"minimax_text_01", "minimax_m2"}, kLightning},
    UnpricedOperator{{"recurrent_gemma", "gemma"}, "a gated linear recurrence (RG-LRU)"},
    UnpricedOperator{{"deepseek_v4", "deepseek_v3"},
                     "attention over compressed keys and several residual streams "
                     "(hyper-connections)"},
    UnpricedOperator{{"hy_v4", "hy_v3"}, kStreams},
    UnpricedOperator{{"glm5_next_text", "glm_moe_dsa"}, kStreams},
    UnpricedOperator{{"qwen4_exp_text", "qwen3_5_moe_text"},
                     "several residual streams and embeddings of n-grams"},
    UnpricedOperator{{"mistral_large4_text", "glm_moe_dsa"}, kSharedKeys},
    UnpricedOperator{{"minimax_m3_vl_text", "minimax_m2"},
                     "sparse attention whose indexer chooses blocks of keys"},
    UnpricedOperator{{"mimo_v2_flash", "qwen3_moe"},
                     "heads that differ between windowed and full attention, with values narrower "
                     "than keys"},
    UnpricedOperator{{"step3p5", "qwen3_moe"}, kMoreHeads},
    UnpricedOperator{{"step3p7_text", "qwen3_moe"}, kMoreHeads},
    UnpricedOperator{{"laguna", "qwen3_moe"}, kMoreHeads},
    UnpricedOperator{{"zaya", "qwen3_moe"}, "attention in a space that convolutions compress"},
    UnpricedOperator{{"mamba", "bamba"}, kAlone},
    UnpricedOperator{{"mamba2", "bamba"}, kAlone},
    UnpricedOperator{{"falcon_mamba", "bamba"}, kAlone},
    UnpricedOperator{{"minimax_m1", "minimax_m2"}, kLightning},
    UnpricedOperator{{"bailing_moe_linear", "bailing_moe"}, kLightning},
    UnpricedOperator{{"bailing_hybrid", "bailing_moe"},
                     "linear attention (lightning or Kimi delta) next to latent attention"},
    UnpricedOperator{{"rwkv", "llama"}, kRecurrence},
    UnpricedOperator{{"rwkv6", "llama"}, kRecurrence},
    UnpricedOperator{{"rwkv7", "llama"}, kRecurrence},
    UnpricedOperator{{"xlstm", "llama"}, kRecurrence},
    UnpricedOperator{{"gemma3n", "gemma3_text"}, kPerLayer},
    UnpricedOperator{{"gemma3n_text", "gemma3_text"}, kPerLayer},
    UnpricedOperator{{"mllama", "llama"}, "cross-attention to images"},
    UnpricedOperator{{"longcat_flash", "deepseek_v3"}, "two attention blocks in each layer"},
    UnpricedOperator{{"nemotron-nas", "llama"}, "blocks that differ between layers"},
    UnpricedOperator{{"axk2", "deepseek_v32"},
                     "norms with a gate of low rank, and gated latent attention"},
    UnpricedOperator{{"lfm3", "lfm2"},
                     "short convolutions next to windowed attention, whose heads have gates"},
    UnpricedOperator{{"lara_mini", "qwen3_next"}, "gated delta nets next to windowed attention"},
    UnpricedOperator{{"inkling_text", "exaone_moe"}, kInkling},
    UnpricedOperator{{"inkling2_text", "exaone_moe"}, kInkling},
    UnpricedOperator{{"inkling2_loop_text", "exaone_moe"}, kInkling},
    UnpricedOperator{{"muse_spark_text", "nemotron_h"},
                     "gates of residuals, and norms around a latent of experts"},
    UnpricedOperator{{"hrm_text", "llama"}, kLoops},
    UnpricedOperator{{"dory", "llama"}, kLoops},
    UnpricedOperator{{"bitnet", "llama"}, "ternary weights, and norms within attention and MLP"},
    UnpricedOperator{{"blt", "llama"}, "patches of bytes, with cross-attention to them"},
    UnpricedOperator{{"diffllama", "llama"}, "differential attention (two softmaxes in each head)"},
    UnpricedOperator{{"doge", "llama"}, "attention with a mask that it computes"},
    UnpricedOperator{{"jetmoe", "mixtral"}, "experts in attention's projections"},
    UnpricedOperator{{"reformer", "gpt2"}, "attention by hashing, and reversible layers"},
};
/// Keys that announce such an operator under another family's name.
struct UnpricedKey {
  std::string_view key;
  std::string_view name;
  std::array<std::string_view, 3> but{};  ///< families that are priced with it
};
constexpr std::array kUnpricedKeys = {
    UnpricedKey{"index_topk", kSparse, {"deepseek_v32", "glm_moe_dsa"}},
    UnpricedKey{"linear_attn_config", "Kimi delta attention", {"kimi_linear"}},
    UnpricedKey{"hybrid_override_pattern", kStateSpace, {"nemotron_h"}},
    UnpricedKey{"mamba_d_state", kStateSpace, {"bamba", "granitemoehybrid", "falcon_h1"}},
};
/// Families with experts in a block of another shape.
constexpr std::array kMixtures = {
    Relative{"dbrx", "mixtral"},
    Relative{"grok-1", "mixtral"},
    Relative{"arctic", "mixtral"},
    Relative{"nllb-moe", "mixtral"},
};
constexpr std::array<std::string_view, 5> kExpertCounts = {
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "n_experts"};
constexpr auto kOtherKinds = std::to_array<std::string_view>({"camembert",
                                                              "ernie",
                                                              "roc_bert",
                                                              "rembert",
                                                              "roformer",
                                                              "big_bird",
                                                              "bert-generation",
                                                              "data2vec-text",
                                                              "megatron-bert",
                                                              "xlm-roberta-xl",
                                                              "roberta-prelayernorm",
                                                              "xmod",
                                                              "xlm",
                                                              "xlnet",
                                                              "trocr",
                                                              "git",
                                                              "moshi",
                                                              "bert",
                                                              "roberta",
                                                              "distilbert",
                                                              "albert",
                                                              "electra",
                                                              "deberta",
                                                              "deberta-v2",
                                                              "xlm-roberta",
                                                              "modernbert",
                                                              "t5",
                                                              "mt5",
                                                              "umt5",
                                                              "bart",
                                                              "mbart",
                                                              "pegasus",
                                                              "marian",
                                                              "m2m_100",
                                                              "longt5",
                                                              "whisper",
                                                              "vit",
                                                              "clip",
                                                              "siglip",
                                                              "siglip2",
                                                              "wav2vec2",
                                                              "t5gemma"});

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

template <class List>
const Relative* find_relative(const List& list, std::string_view type) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Relative& relative) {
    return relative.model_type == type;
  });
  return at == list.end() ? nullptr : &*at;
}

std::vector<std::string> names_of_families(bool with_experts_only) {
  std::vector<std::string> names;
  for (const HuggingFaceFamily& family : huggingface_families()) {
    if (family.experts || !with_experts_only) names.emplace_back(family.model_type);
  }
  return names;
}

/// All of them only where no name is near: nobody finds the near one in a line of a hundred.
std::string expected_family(const std::vector<std::string>& names, const std::string& near) {
  return near.empty() ? fmt::format("one of {}", fmt::join(names, ", "))
                      : fmt::format("one of {} supported families", names.size());
}

std::string nearest_supported(const Relative* relative) {
  return relative == nullptr
             ? ""
             : "the nearest supported family is '" + std::string(relative->nearest) + "'";
}

void refuse_other_kind(JsonReader& reader, std::string_view type) {
  reader.fail("model_type", in_quotes(type) + " is not a decoder-only language model",
              "a decoder-only transformer such as gpt2 or llama");
}

void refuse_mixture(JsonReader& reader, const std::string& type) {
  const std::vector<std::string> known = names_of_families(true);
  const Relative* relative = find_relative(kMixtures, type);
  std::string near = relative == nullptr ? did_you_mean(type, known) : nearest_supported(relative);
  reader.fail("model_type", in_quotes(type) + " is a mixture-of-experts model of another family",
              expected_family(known, near), near);
}

void refuse_unknown(JsonReader& reader, const std::string& type) {
  const std::vector<std::string> known = names_of_families(false);
  const std::string near = did_you_mean(type, known);
  reader.fail("model_type", "unknown architecture " + in_quotes(type), expected_family(known, near),
              near);
}

/// Rejects experts under the name of a dense family.
bool counts_experts(JsonReader& reader) {
  for (const std::string_view key : kExpertCounts) {
    if (reader.has(key) && reader.integer(key, 0, kMaxExperts) > 1) return true;
  }
  return false;
}

/// Files next to a config.json that are handed in for it, by a key that only they have.
struct OtherFile {
  std::string_view key;
  std::string_view name;
};
constexpr std::array kOtherFiles = {
    OtherFile{"weight_map", "the index of a model's tensors"},
    OtherFile{"peft_type", "the configuration of an adapter"},
    OtherFile{"added_tokens_decoder", "the configuration of a tokenizer"},
    OtherFile{"added_tokens", "a tokenizer"},
    OtherFile{"do_sample", "settings of text generation"},
    OtherFile{"zero_optimization", "a configuration of DeepSpeed"},
    OtherFile{"n_kv_heads", "a params.json of Meta's own code"},
};

}  // namespace

void refuse_unnamed(JsonReader& reader) {
  std::string found = "the key 'model_type' is missing";
  for (const OtherFile& each : kOtherFiles) {
    if (!reader.has(each.key)) continue;
    found += ": this is " + std::string(each.name);
    break;
  }
  reader.fail("model_type", std::move(found),
              "a HuggingFace config.json (key model_type) or an Echelon model file (key schema)");
}

bool refuse_kind(JsonReader& reader, std::string_view type) {
  if (contains(kOtherKinds, type)) {
    refuse_other_kind(reader, type);
    return true;
  }
  constexpr const char* kPriced =
      "layers with full, windowed, latent or sparse attention (DeepSeek-V3.2's), gated delta nets, "
      "Kimi delta attention, Mamba-2's state spaces or gated short convolutions";
  for (const UnpricedOperator& each : kUnpriced) {
    if (each.family.model_type != type) continue;
    reader.fail("model_type",
                in_quotes(std::string(type)) + " has " + std::string(each.name) +
                    ", which has no price here",
                kPriced, nearest_supported(&each.family));
    return true;
  }
  for (const UnpricedKey& each : kUnpricedKeys) {
    const bool priced = !type.empty() && contains(each.but, type);
    if (!reader.has(each.key) || priced) continue;
    reader.fail(each.key, std::string(each.name) + ", which has no price here", kPriced);
    return true;
  }
  return false;
}

const HuggingFaceFamily* find_family(JsonReader& reader, const std::string& type) {
  if (refuse_kind(reader, type)) return nullptr;
  const auto families = huggingface_families();
  const auto family = std::find_if(families.begin(), families.end(),
                                   [&](const auto& each) { return each.model_type == type; });
  const bool supported = family != families.end();
  if (supported && family->experts) return &*family;
  if (find_relative(kMixtures, type) != nullptr || counts_experts(reader) ||
      type.find("moe") != std::string::npos) {
    refuse_mixture(reader, type);
    return nullptr;
  }
  const bool encoder = reader.has("is_encoder_decoder") && reader.boolean("is_encoder_decoder");
  if (encoder) {
    refuse_other_kind(reader, type);
    return nullptr;
  }
  if (supported) return &*family;
  refuse_unknown(reader, type);
  return nullptr;
}

}  // namespace echelon
