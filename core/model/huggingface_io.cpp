// HuggingFace config.json: finds the family of a file, and explains why other families are
// rejected.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/model/huggingface_families_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"
#include "core/model/model_io.hpp"

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
constexpr std::string_view kSparse = "sparse attention whose indexer chooses the keys (DSA)";
constexpr std::string_view kConvolution = "gated short convolutions";
constexpr std::array kUnpriced = {
    UnpricedOperator{{"jamba", "mixtral"}, kStateSpace},
    UnpricedOperator{{"nemotron_h", "nemotron"}, kStateSpace},
    UnpricedOperator{{"bamba", "llama"}, kStateSpace},
    UnpricedOperator{{"zamba", "llama"}, kStateSpace},
    UnpricedOperator{{"zamba2", "llama"}, kStateSpace},
    UnpricedOperator{{"falcon_h1", "llama"}, kStateSpace},
    UnpricedOperator{{"granitemoehybrid", "mixtral"}, kStateSpace},
    UnpricedOperator{{"lfm2", "llama"}, kConvolution},
    UnpricedOperator{{"lfm2_moe", "mixtral"}, kConvolution},
    UnpricedOperator{{"minimax", "minimax_m2"}, "lightning attention"},
    UnpricedOperator{{"minimax_text_01", "minimax_m2"}, "lightning attention"},
    UnpricedOperator{{"kimi_linear", "deepseek_v3"}, "Kimi delta attention"},
    UnpricedOperator{{"recurrent_gemma", "gemma"}, "a gated linear recurrence (RG-LRU)"},
    UnpricedOperator{{"deepseek_v32", "deepseek_v3"}, kSparse},
    UnpricedOperator{{"glm_moe_dsa", "deepseek_v3"}, kSparse},
    UnpricedOperator{{"deepseek_v4", "deepseek_v3"}, "attention over compressed keys"},
};
/// Keys that announce such an operator under another family's name.
struct UnpricedKey {
  std::string_view key;
  std::string_view name;
};
constexpr std::array kUnpricedKeys = {
    UnpricedKey{"index_topk", kSparse},
    UnpricedKey{"linear_attn_config", "Kimi delta attention"},
    UnpricedKey{"hybrid_override_pattern", kStateSpace},
    UnpricedKey{"mamba_d_state", kStateSpace},
};
/// Families with experts in a block of another shape.
constexpr std::array kMixtures = {
    Relative{"dots1", "deepseek_v3"},
    Relative{"ernie4_5_moe", "qwen2_moe"},
    Relative{"hunyuan_v1_moe", "qwen3_moe"},
    Relative{"phimoe", "mixtral"},
    Relative{"dbrx", "mixtral"},
    Relative{"grok-1", "mixtral"},
    Relative{"granitemoe", "mixtral"},
    Relative{"arctic", "mixtral"},
    Relative{"nllb-moe", "mixtral"},
};
constexpr std::array<std::string_view, 5> kExpertCounts = {
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "n_experts"};
constexpr std::array<std::string_view, 20> kOtherKinds = {
    "bert",        "roberta",    "distilbert", "albert", "electra", "deberta", "deberta-v2",
    "xlm-roberta", "modernbert", "t5",         "mt5",    "umt5",    "bart",    "mbart",
    "pegasus",     "marian",     "m2m_100",    "longt5", "whisper", "vit"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// model_type; in files without one, the family of the class in architectures[0].
std::string family_name(JsonReader& reader) {
  if (reader.has("model_type")) return reader.string("model_type");
  const Json* classes = reader.member("architectures");
  const bool named = classes != nullptr && classes->is_array() && !classes->empty() &&
                     classes->front().is_string();
  if (!named) {
    reader.fail("model_type", "the key 'model_type' is missing",
                "a HuggingFace config.json (key model_type) or an Echelon model file (key schema)");
    return {};
  }
  const std::string name = classes->front().get<std::string>();
  const std::string prefix = name.substr(0, std::min(name.find("For"), name.find("LMHead")));
  for (const HuggingFaceFamily& family : huggingface_families()) {
    if (family.class_prefix == prefix) return std::string(family.model_type);
  }
  return name;
}

template <class List>
const Relative* find_relative(const List& list, std::string_view type) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Relative& relative) {
    return relative.model_type == type;
  });
  return at == list.end() ? nullptr : &*at;
}

std::string list_of_families(bool with_experts_only) {
  std::string list;
  for (const HuggingFaceFamily& family : huggingface_families()) {
    if (with_experts_only && !family.experts) continue;
    list += (list.empty() ? "one of " : ", ") + std::string(family.model_type);
  }
  return list;
}

std::string nearest_supported(const Relative* relative) {
  return relative == nullptr
             ? ""
             : "the nearest supported family is '" + std::string(relative->nearest) + "'";
}

/// True after an error: the file has an operator without a price.
bool refuse_unpriced(JsonReader& reader, std::string_view type) {
  constexpr const char* kPriced =
      "layers with full, windowed or latent attention, or gated delta nets";
  for (const UnpricedOperator& each : kUnpriced) {
    if (each.family.model_type != type) continue;
    reader.fail("model_type",
                in_quotes(std::string(type)) + " has " + std::string(each.name) +
                    ", which has no price here",
                kPriced, nearest_supported(&each.family));
    return true;
  }
  for (const UnpricedKey& each : kUnpricedKeys) {
    if (!reader.has(each.key)) continue;
    reader.fail(each.key, std::string(each.name) + ", which has no price here", kPriced);
    return true;
  }
  return false;
}

void refuse_mixture(JsonReader& reader, const std::string& type) {
  reader.fail("model_type", in_quotes(type) + " is a mixture-of-experts model of another family",
              list_of_families(true), nearest_supported(find_relative(kMixtures, type)));
}

void refuse_unknown(JsonReader& reader, const std::string& type) {
  std::vector<std::string> known;
  for (const HuggingFaceFamily& family : huggingface_families()) {
    known.emplace_back(family.model_type);
  }
  reader.fail("model_type", "unknown architecture " + in_quotes(type), list_of_families(false),
              did_you_mean(type, known));
}

/// Rejects experts under the name of a dense family.
bool counts_experts(JsonReader& reader) {
  for (const std::string_view key : kExpertCounts) {
    if (reader.has(key) && reader.integer(key, 0, kMaxExperts) > 1) return true;
  }
  return false;
}

/// Null after an error that explains why this file is not supported.
const HuggingFaceFamily* find_family(JsonReader& reader, const std::string& type) {
  if (refuse_unpriced(reader, type)) return nullptr;
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
  if (encoder || contains(kOtherKinds, type)) {
    reader.fail("model_type", in_quotes(type) + " is not a decoder-only language model",
                "a decoder-only transformer such as gpt2 or llama");
    return nullptr;
  }
  if (supported) return &*family;
  refuse_unknown(reader, type);
  return nullptr;
}

/// Keys of all families that do not change the forward pass: bookkeeping, text generation, initial
/// weights, and facts that the tensors themselves contain. Source: transformers,
/// configuration_utils.py (PreTrainedConfig) and configurations as published.
constexpr std::array<std::string_view, 74> kBookkeeping = {"_attn_implementation",
                                                           "_attn_implementation_autoset",
                                                           "_commit_hash",
                                                           "_flash_attn_2_enabled",
                                                           "_name_or_path",
                                                           "architectures",
                                                           "attn_implementation",
                                                           "auto_map",
                                                           "bad_words_ids",
                                                           "begin_suppress_tokens",
                                                           "bos_token_id",
                                                           "chunk_size_feed_forward",
                                                           "decoder_start_token_id",
                                                           "diversity_penalty",
                                                           "do_sample",
                                                           "dtype",
                                                           "early_stopping",
                                                           "encoder_no_repeat_ngram_size",
                                                           "eos_token_id",
                                                           "exponential_decay_length_penalty",
                                                           "finetuning_task",
                                                           "forced_bos_token_id",
                                                           "forced_eos_token_id",
                                                           "gradient_checkpointing",
                                                           "id2label",
                                                           "initializer_range",
                                                           "is_decoder",
                                                           "is_encoder_decoder",
                                                           "keys_to_ignore_at_inference",
                                                           "label2id",
                                                           "length_penalty",
                                                           "license",
                                                           "max_length",
                                                           "min_length",
                                                           "model_type",
                                                           "no_repeat_ngram_size",
                                                           "num_beam_groups",
                                                           "num_beams",
                                                           "num_labels",
                                                           "num_return_sequences",
                                                           "output_attentions",
                                                           "output_hidden_states",
                                                           "output_scores",
                                                           "pad_token_id",
                                                           "prefix",
                                                           "pretraining_tp",
                                                           "problem_type",
                                                           "remove_invalid_values",
                                                           "reorder_and_upcast_attn",
                                                           "repetition_penalty",
                                                           "return_dict",
                                                           "return_dict_in_generate",
                                                           "sep_token_id",
                                                           "summary_activation",
                                                           "summary_first_dropout",
                                                           "summary_proj_to_labels",
                                                           "summary_type",
                                                           "summary_use_proj",
                                                           "suppress_tokens",
                                                           "task_specific_params",
                                                           "temperature",
                                                           "tf_legacy_loss",
                                                           "tie_encoder_decoder",
                                                           "tokenizer_class",
                                                           "top_k",
                                                           "top_p",
                                                           "torch_dtype",
                                                           "torchscript",
                                                           "transformers_version",
                                                           "typical_p",
                                                           "unsloth_fixed",
                                                           "unsloth_version",
                                                           "use_bfloat16",
                                                           "use_cache"};

/// An unknown key may change the model's computation; it is recorded, so that no run ignores it.
void note_unknown_keys(const JsonReader& reader, ModelSpec& model) {
  for (const std::string& key : reader.unread()) {
    if (contains(kBookkeeping, key)) continue;
    model.constants->other_arithmetic.push_back("unknown config.json key " + in_quotes(key));
  }
}

}  // namespace

Result<ModelSpec> read_huggingface(const Json& document, std::string_view where) {
  JsonReader outer(document, std::string(where));
  outer.ignore_rest();
  std::string type = outer.failed() ? "" : family_name(outer);
  // Multimodal Gemma 3, Llama 4 and Qwen3.5 describe their language model in text_config.
  const bool qwen = type == "qwen3_5" || type == "qwen3_5_moe";
  const bool multimodal = type.starts_with("gemma3") || type.starts_with("llama4") || qwen;
  const bool nested = multimodal && outer.has("text_config");
  if (type == "gemma3" || type == "llama4" || qwen) type += "_text";
  const Json* inside = nested ? outer.member("text_config") : &document;
  JsonReader reader(*inside, std::string(where), nested ? "/text_config" : "");
  reader.ignore_rest();
  const HuggingFaceFamily* family =
      outer.failed() || reader.failed() ? nullptr : find_family(reader, type);
  ModelSpec model;
  model.architecture = type;
  model.source = "HuggingFace configuration " + std::string(where);
  model.constants.emplace();
  if (family != nullptr) {
    family->read(reader, model);
    read_prediction_modules(reader, model);
  }
  if (family != nullptr && family->audited) note_unknown_keys(reader, model);
  for (JsonReader* step : {&outer, &reader}) {
    const Status read = step->finish();
    if (!read) return read.error();
  }
  const Status sound = check_model(model, where);
  if (!sound) return sound.error();
  return model;
}

}  // namespace echelon
