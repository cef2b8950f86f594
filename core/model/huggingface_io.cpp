// HuggingFace config.json: finds the language model and the family of a file, and says what of the
// file is not planned.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/model/huggingface_families_io.hpp"
#include "core/model/huggingface_networks_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"
#include "core/model/model_io.hpp"

namespace echelon {

namespace {

/// Keys of all families that do not change the forward pass: bookkeeping, text generation, initial
/// weights, the format of stored weights, what a loss adds to balance experts, and facts that the
/// tensors themselves contain. Source: transformers, configuration_utils.py (PreTrainedConfig) and
/// configurations as published.
constexpr auto kBookkeeping = std::to_array<std::string_view>({"_attn_implementation",
                                                               "_attn_implementation_autoset",
                                                               "_commit_hash",
                                                               "_flash_attn_2_enabled",
                                                               "_name_or_path",
                                                               "architectures",
                                                               "attn_implementation",
                                                               "audio_config",
                                                               "auto_map",
                                                               "aux_loss_alpha",
                                                               "bad_words_ids",
                                                               "begin_suppress_tokens",
                                                               "bos_token_id",
                                                               "cache_implementation",
                                                               "chunk_size_feed_forward",
                                                               "decoder_start_token_id",
                                                               "diversity_penalty",
                                                               "do_sample",
                                                               "dtype",
                                                               "early_stopping",
                                                               "encoder_no_repeat_ngram_size",
                                                               "eod_token_id",
                                                               "eos_token_id",
                                                               "ep_size",
                                                               "exponential_decay_length_penalty",
                                                               "finetuning_task",
                                                               "forced_bos_token_id",
                                                               "forced_eos_token_id",
                                                               "gradient_checkpointing",
                                                               "id2label",
                                                               "image_token_id",
                                                               "image_token_index",
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
                                                               "output_router_logits",
                                                               "output_scores",
                                                               "pad_token_id",
                                                               "prefix",
                                                               "pretraining_tp",
                                                               "problem_type",
                                                               "quantization_config",
                                                               "remove_invalid_values",
                                                               "reorder_and_upcast_attn",
                                                               "repetition_penalty",
                                                               "return_dict",
                                                               "return_dict_in_generate",
                                                               "router_aux_loss_coef",
                                                               "router_jitter_noise",
                                                               "router_z_loss_coef",
                                                               "sep_token_id",
                                                               "seq_aux",
                                                               "summary_activation",
                                                               "summary_first_dropout",
                                                               "summary_proj_to_labels",
                                                               "summary_type",
                                                               "summary_use_proj",
                                                               "suppress_tokens",
                                                               "task_specific_params",
                                                               "temperature",
                                                               "text_config",
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
                                                               "use_cache",
                                                               "video_token_id",
                                                               "vision_config",
                                                               "vision_end_token_id",
                                                               "vision_start_token_id",
                                                               "vision_token_id"});

/// The name of the class in architectures[0], if there is one.
std::string class_name(JsonReader& reader) {
  const Json* classes = reader.member("architectures");
  const bool named = classes != nullptr && classes->is_array() && !classes->empty() &&
                     classes->front().is_string();
  return named ? classes->front().get<std::string>() : "";
}

/// model_type; in files without one, the family of the class in architectures[0].
std::string family_name(JsonReader& reader) {
  if (reader.has("model_type")) return reader.string("model_type");
  const std::string name = class_name(reader);
  if (name.empty()) {
    refuse_unnamed(reader);
    return {};
  }
  const std::string prefix = name.substr(0, std::min(name.find("For"), name.find("LMHead")));
  for (const HuggingFaceFamily& family : huggingface_families()) {
    if (family.class_prefix == prefix) return std::string(family.model_type);
  }
  return name;
}

/// An unknown key may change the model's computation; it is recorded, so that no run ignores it.
void note_unknown_keys(const JsonReader& reader, ModelReading& reading) {
  std::string list;
  for (const std::string& key : reader.unread()) {
    if (std::find(kBookkeeping.begin(), kBookkeeping.end(), key) != kBookkeeping.end()) continue;
    add_arithmetic(reading.model, "unknown config.json key " + in_quotes(key));
    list += (list.empty() ? "" : ", ") + printable(key);
  }
  if (list.empty()) return;
  reading.remarks.push_back("not priced: what unknown keys of the model's file may change (" +
                            list + ")");
}

/// A kind of rotary scaling that this version does not know.
void note_unknown_scaling(ModelReading& reading) {
  for (const std::string& each : reading.model.constants->other_arithmetic) {
    if (each.ends_with(kUnknownRopeScaling)) {
      reading.remarks.push_back("not priced: " + each + " in the model's file");
    }
  }
}

std::string_view hidden_act_of(Activation activation) {
  switch (activation) {
    case Activation::gelu: return "gelu";
    case Activation::relu: return "relu";
    case Activation::squared_relu: return "relu2";
    case Activation::silu: return "silu";
  }
  return "";
}

/// Keys that published files of most families state: where one is missing, the file may be cut
/// short or of another family.
void note_defaults(const JsonReader& reader, const Json& object, ModelReading& reading) {
  const ModelSpec& model = reading.model;
  std::string list;
  const auto note = [&](const char* key, const std::string& value) {
    if (!reader.lacks(key) || object.contains(key)) return;  // null is stated
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", key, value);
  };
  note("num_key_value_heads",
       fmt::format("{}{}", model.kv_heads, model.kv_heads == model.heads ? " (multi-head)" : ""));
  if (!reader.has("hidden_activation"))
    note("hidden_act", std::string(hidden_act_of(model.activation)));
  note("rms_norm_eps", fmt::format("{:g}", model.constants->norm_epsilon));
  // Files of families whose default is true leave it out.
  if (!model.tied_embeddings) note("tie_word_embeddings", "false");
  if (list.empty()) return;
  reading.remarks.push_back(fmt::format(
      "by default of {}, since the model's file has no such keys: {}", model.architecture, list));
}

void note_other_networks(const Json& document, ModelReading& reading) {
  const std::string others = other_networks(document);
  if (others.empty()) return;
  reading.remarks.push_back("not planned: " + others +
                            " of the model's file; the plan is for its language model alone");
}

/// Weights may be stored in fewer bits than they are trained in.
void note_quantization(JsonReader& reader, ModelReading& reading) {
  const Json* stored = reader.member("quantization_config");
  if (stored == nullptr || stored->is_null()) return;
  std::string method;
  if (stored->is_object() && stored->contains("quant_method")) {
    const Json& name = (*stored)["quant_method"];
    if (name.is_string()) method = " (" + printable(name.get<std::string>()) + ")";
  }
  // Source: transformers 5.24, utils/quantization_config.py, BitsAndBytesConfig.
  const auto says = [&](const char* key, const Json& value) {
    return stored->is_object() && stored->contains(key) && (*stored)[key] == value;
  };
  std::string packed;
  if (says("load_in_4bit", true) && says("bnb_4bit_quant_type", "nf4")) {
    packed = std::string(", under adapters (--lora) --quantized-weights nf4") +
             (says("bnb_4bit_use_double_quant", true) ? ":double-quant" : "");
  }
  reading.remarks.push_back("quantization_config" + method +
                            " of the model's file is the format of stored weights; training has "
                            "that of --precision" +
                            packed);
}

/// Classifiers and reward models have a head of a few outputs.
void note_head(JsonReader& reader, ModelReading& reading) {
  const std::string name = class_name(reader);
  for (const char* other :
       {"ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"}) {
    if (!name.ends_with(other)) continue;
    reading.remarks.push_back("planned with the head of a language model, not with that of " +
                              printable(name));
  }
}

/// Keys of the families' files that hold a field of a model; of several the one in the file is
/// meant.
struct FileKeys {
  std::string_view field;
  std::vector<std::string_view> keys;
};
const std::vector<FileKeys>& file_keys() {
  static const std::vector<FileKeys> all = {
      {"layers", {"num_hidden_layers", "n_layer"}},
      {"heads", {"num_attention_heads", "n_head"}},
      {"kv_heads", {"num_key_value_heads", "num_kv_heads", "n_head_kv"}},
      {"windowed_layers", {"sliding_window", "sliding_window_size"}},
      {"moe/experts", {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}},
      {"moe/experts_per_token", {"num_experts_per_tok", "moe_k", "moe_topk"}},
      {"moe/expert_ffn_hidden", {"moe_intermediate_size", "intermediate_size"}},
      {"moe/shared_ffn_hidden",
       {"n_shared_experts", "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size"}},
      {"moe/first_dense_layers", {"first_k_dense_replace", "moe_layer_start_index"}},
      {"moe/every",
       {"moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step",
        "moe_layer_interval"}},
      {"moe/router_groups", {"n_group"}},
      {"moe/router_group_topk", {"topk_group"}},
      {"mla/kv_lora_rank", {"kv_lora_rank"}},
      {"mla/q_lora_rank", {"q_lora_rank"}},
      {"mla/qk_nope_head_dim", {"qk_nope_head_dim"}},
      {"mla/qk_rope_head_dim", {"qk_rope_head_dim"}},
      {"mla/v_head_dim", {"v_head_dim"}},
      {"global/layers", {"layer_types"}},
      {"global/kv_heads", {"num_global_key_value_heads", "num_key_value_heads"}},
      {"global/head_dim", {"global_head_dim"}},
      {"conv/layers", {"layer_types", "full_attn_idxs"}},
      {"conv/kernel", {"conv_L_cache"}},
      {"delta/layers", {"layer_types", "full_attention_interval"}},
      {"delta/key_heads", {"linear_num_key_heads"}},
      {"delta/value_heads", {"linear_num_value_heads"}},
      {"delta/key_head_dim", {"linear_key_head_dim"}},
      {"delta/value_head_dim", {"linear_value_head_dim"}},
      {"delta/conv_kernel", {"linear_conv_kernel_dim"}},
      {"ssm/layers",
       {"attn_layer_indices", "layers_block_type", "layer_types", "hybrid_override_pattern"}},
      {"mlp_only_layers", {"layers_block_type", "hybrid_override_pattern"}},
      {"ssm/heads", {"mamba_num_heads", "mamba_n_heads"}},
      {"ssm/head_dim", {"mamba_head_dim", "mamba_d_head"}},
      {"ssm/groups", {"n_groups", "mamba_n_groups"}},
      {"ssm/state_dim", {"ssm_state_size", "mamba_d_state"}},
      {"ssm/conv_kernel", {"conv_kernel", "mamba_d_conv"}},
  };
  return all;
}

/// An error of check_model by the file's key; a value that the file does not state is the family's
/// default.
Error by_key_of_file(const JsonReader& reader, Error error) {
  const std::string place = reader.where() + " at /";
  const std::string field = error.where.starts_with(place) ? error.where.substr(place.size()) : "";
  const auto known = std::ranges::find(file_keys(), field, &FileKeys::field);
  if (known == file_keys().end()) return error;
  const auto stated =
      std::ranges::find_if(known->keys, [&](std::string_view key) { return reader.has(key); });
  const bool found = stated != known->keys.end();
  error.where = reader.pointer_to(found ? *stated : known->keys.front());
  if (!found) error.found += ", by default";
  return error;
}

/// Files with experts of which no layer is made.
void note_unused_experts(JsonReader& reader, ModelReading& reading) {
  constexpr const char* kExperts = "n_routed_experts";
  constexpr const char* kFirst = "first_k_dense_replace";
  if (reading.model.moe.experts > 0 || !reader.has(kExperts) || !reader.has(kFirst)) return;
  reading.remarks.push_back(fmt::format(
      "planned without experts, as transformers builds it: {} {} leaves none of the {} layers for "
      "them",
      kFirst, reader.integer(kFirst, 0, kMaxLayers), reading.model.layers));
}

}  // namespace

Result<ModelReading> read_huggingface(const Json& document, std::string_view where) {
  JsonReader outer(document, std::string(where));
  outer.ignore_rest();
  const std::string type = outer.failed() ? "" : family_name(outer);
  const LanguageModel language = language_model(document, outer, type);
  JsonReader reader(language.object, std::string(where), language.pointer);
  reader.ignore_rest();
  const HuggingFaceFamily* family =
      outer.failed() || reader.failed() ? nullptr : find_family(reader, language.type);
  ModelReading reading;
  reading.model.architecture = language.type;
  reading.model.source = "HuggingFace configuration " + std::string(where);
  reading.model.constants.emplace();
  if (family != nullptr) {
    family->read(reader, reading.model);
    read_prediction_modules(reader, reading.model);
    if (family->note != nullptr) family->note(reader, reading.model, reading.remarks);
    note_other_networks(document, reading);
    note_quantization(outer.has("quantization_config") ? outer : reader, reading);
    note_head(outer, reading);
    note_unused_experts(reader, reading);
    note_defaults(reader, language.object, reading);
    note_unknown_scaling(reading);
    note_unknown_keys(reader, reading);
  }
  for (JsonReader* step : {&outer, &reader}) {
    const Status read = step->finish();
    if (!read) return read.error();
  }
  const Status sound = check_model(reading.model, where);
  if (!sound) return by_key_of_file(reader, sound.error());
  return reading;
}

}  // namespace echelon
