// Gemma 4: windowed layers, and between them layers with full attention whose heads are wider and
// whose keys are their values; with experts, routed and shared ones beside each other.
// Source of keys, defaults and shapes: transformers 5.24, models/gemma4/configuration_gemma4.py and
// modeling_gemma4.py, models/gemma4_unified/ (Gemma 4 12B).
#include "core/model/huggingface_gemma4_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// Layers with a window: those listed, else five of six; the last one has full attention whatever
/// the list says.
int gemma4_windowed_layers(JsonReader& reader, const ModelSpec& model) {
  const std::optional<int> listed = listed_layers(reader, model, "sliding_attention");
  if (!listed) return model.layers - 1 - (model.layers - 1) / 6;
  const bool last = reader.member("layer_types")->back() == "sliding_attention";
  return *listed - (last ? 1 : 0);
}

/// What files that transformers wrote state of each layer with full attention, the same of all.
/// Null: the file has no such object.
const Json* full_layers(JsonReader& reader, int layers) {
  const Json* object = reader.member("per_layer_config");
  if (object == nullptr || object->is_null()) return nullptr;
  const bool fits = object->is_object() && object->size() == static_cast<std::size_t>(layers) &&
                    std::ranges::all_of(*object, [&](const Json& each) {
                      return each.is_object() && each == object->front();
                    });
  if (fits) return &object->front();
  reader.fail("per_layer_config", "not the same heads for each layer with full attention",
              fmt::format("{} equal objects with head_dim", layers));
  return nullptr;
}

/// The heads of layers with full attention. Their number of keys is stated for models whose keys
/// are their values, and not read for others.
void read_global_attention(JsonReader& reader, ModelSpec& model) {
  GlobalAttention& global = model.global;
  constexpr int kClassDefault = 512;
  global.layers = model.layers - model.windowed_layers;
  global.head_dim = small(reader.integer_or("global_head_dim", 1, kMaxHeadDim, kClassDefault));
  global.keys_are_values = reader.boolean_or("attention_k_eq_v", false);
  const std::int64_t keys = reader.has("num_global_key_value_heads")
                                ? reader.integer("num_global_key_value_heads", 1, kMaxHeads)
                                : model.kv_heads;
  global.kv_heads = global.keys_are_values ? small(keys) : model.kv_heads;
  reader.ignore({"num_global_key_value_heads"});  // null
  if (const Json* written = full_layers(reader, global.layers); written != nullptr) {
    JsonReader inner(*written, reader.where(), "/per_layer_config");
    global.head_dim = small(inner.integer_or("head_dim", 1, kMaxHeadDim, model.head_dim));
    global.kv_heads = small(inner.integer_or("num_key_value_heads", 1, kMaxHeads, model.kv_heads));
    if (const Status read = inner.finish(); !read) {
      reader.fail("per_layer_config", read.error().found, read.error().expected);
    }
  }
}

/// The block of all Gemma 4 models, but for embeddings of each layer and experts.
void read_gemma4_block(JsonReader& reader, ModelSpec& model, int window) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::are_an_error);
  model.head_dim = small(reader.integer_or("head_dim", 1, kMaxHeadDim, 256));
  model.activation = read_activation(reader, "hidden_activation", Activation::gelu, model);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qk_norm = model.value_norm = model.post_norms = true;
  read_norm_epsilon(reader, model, "rms_norm_eps", 1e-6);
  read_rope(reader, model, {.theta = 1e6});
  read_attention_bias(reader, model);
  read_dropout(reader, model);
  add_arithmetic(model, "word embeddings multiplied by the root of the hidden width");
  add_arithmetic(model, "attention scores that are not scaled");
  add_arithmetic(model, "rotary embeddings that differ between layers");
  add_arithmetic(model, "layers whose output is multiplied by a number");
  const Json* cap = reader.member("final_logit_softcapping");
  if (cap != nullptr && !cap->is_null()) {
    add_arithmetic(model, fmt::format("logits capped at {:g}",
                                      reader.number("final_logit_softcapping", 0, 1e9)));
  }
  model.sliding_window = small(reader.integer_or("sliding_window", 1, kMaxPositions, window));
  model.windowed_layers = gemma4_windowed_layers(reader, model);
  if (model.windowed_layers == 0) {
    reader.fail("layer_types", "layers with full attention alone",
                "at least one layer with sliding_attention");
    return;
  }
  read_global_attention(reader, model);
  if (reader.string_or("use_bidirectional_attention", "vision") != "vision") {
    reader.fail("use_bidirectional_attention", "attention to later tokens of a text",
                "null, or vision: to later parts of an image alone");
  }
  if (reader.integer_or("num_kv_shared_layers", 0, kMaxLayers, 0) > 0) {
    reader.fail("num_kv_shared_layers",
                "layers that attend to the keys and values of an earlier one (Gemma 4 E2B, E4B), "
                "which have no price here",
                "0: keys and values of its own in each layer");
  }
  // Of the layers that share keys alone; a second name of the cap.
  reader.ignore({"use_double_wide_mlp", "attn_logit_softcapping"});
}

void read_gemma4_experts(JsonReader& reader, ModelSpec& model) {
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("num_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("top_k_experts", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  moe.shared_ffn_hidden = model.ffn_hidden;
  moe.branch_norms = true;
}

}  // namespace

void read_gemma4(JsonReader& reader, ModelSpec& model) {
  constexpr int kClassDefault = 256;
  const Json* width = reader.member("hidden_size_per_layer_input");
  const bool none = width != nullptr && width->is_null();
  if (!none && reader.integer_or("hidden_size_per_layer_input", 0, kMaxHidden, kClassDefault) > 0) {
    reader.fail("hidden_size_per_layer_input",
                "embeddings of each layer (Gemma 4 E2B, E4B), which have no price here",
                "0: word embeddings alone, as in Gemma 4 12B, 31B and 26B-A4B");
    return;
  }
  read_gemma4_block(reader, model, 512);
  if (reader.boolean_or("enable_moe_block", false)) read_gemma4_experts(reader, model);
  // Without experts, and of embeddings that the model does not have.
  reader.ignore(
      {"num_experts", "top_k_experts", "moe_intermediate_size", "vocab_size_per_layer_input"});
}

void read_gemma4_unified(JsonReader& reader, ModelSpec& model) {
  read_gemma4_block(reader, model, 1024);
  // Keys of the other models, which the class does not read.
  reader.ignore({"hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block",
                 "num_experts", "top_k_experts", "moe_intermediate_size"});
}

}  // namespace echelon
