// Source of keys, defaults and shapes: transformers 5.24, models/kimi_linear/
// configuration_kimi_linear.py and modeling_kimi_linear.py; the keys of linear_attn_config are
// those of the published files.
#include "core/model/huggingface_kimi_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

constexpr std::string_view kObject = "linear_attn_config";

/// Heads and kernel by the keys of transformers.
void read_heads(JsonReader& reader, GatedDeltaNet& delta) {
  delta.key_heads = small(reader.integer_or("linear_num_heads", 1, kMaxHeads, 32));
  delta.key_head_dim = small(reader.integer_or("linear_head_dim", 1, kMaxHeadDim, 128));
  delta.conv_kernel = small(reader.integer_or("linear_conv_kernel_dim", 1, kMaxHeadDim, 4));
}

/// … and by those of the published files, which come first.
void read_published_heads(JsonReader& reader, GatedDeltaNet& delta) {
  delta.key_heads = small(reader.integer_or("num_heads", 1, kMaxHeads, delta.key_heads));
  delta.key_head_dim = small(reader.integer_or("head_dim", 1, kMaxHeadDim, delta.key_head_dim));
  delta.conv_kernel =
      small(reader.integer_or("short_conv_kernel_size", 1, kMaxHeadDim, delta.conv_kernel));
}

/// The published lists of layers of both kinds, counted from 1. Nothing without them.
std::optional<int> read_published_layers(JsonReader& reader, int layers) {
  constexpr std::string_view kDelta = "kda_layers", kFull = "full_attn_layers";
  if (!reader.has(kDelta) && !reader.has(kFull)) return std::nullopt;
  std::vector<int> seen(static_cast<std::size_t>(layers));
  const std::string expected =
      fmt::format("each of the layers 1 to {} in kda_layers or in full_attn_layers", layers);
  for (const std::string_view key : {kDelta, kFull}) {
    const Json* list = reader.member(key);
    if (list == nullptr || !list->is_array()) {
      reader.fail(key, "no list", expected);
      return std::nullopt;
    }
    for (const Json& entry : *list) {
      const std::int64_t layer = entry.is_number_integer() ? entry.get<std::int64_t>() : 0;
      if (layer < 1 || layer > layers) {
        reader.fail(key, "an entry that is no layer", expected);
        return std::nullopt;
      }
      ++seen[static_cast<std::size_t>(layer - 1)];
    }
  }
  if (std::count(seen.begin(), seen.end(), 1) != layers) {
    reader.fail(kDelta, "layers that are in neither list, or in both", expected);
  }
  return small(reader.member(kDelta)->size());
}

/// Which layers have full attention: by the published lists, by transformers' list, or, without
/// one, every fourth but the first. A file with both lists is read where they agree.
void read_layers(JsonReader& reader, ModelSpec& model) {
  GatedDeltaNet& delta = model.delta;
  read_heads(reader, delta);
  std::optional<int> published;
  if (const Json* object = reader.member(kObject); object != nullptr && !object->is_null()) {
    if (!object->is_object()) {
      reader.fail(kObject, "not an object", "an object with the heads and layers of both kinds");
      return;
    }
    JsonReader inner(*object, reader.where(), "/" + std::string(kObject));
    read_published_heads(inner, delta);
    published = read_published_layers(inner, model.layers);
    if (const Status read = inner.finish(); !read) {
      reader.fail(kObject, read.error().found, read.error().expected);
    }
  }
  delta.value_heads = delta.key_heads;
  delta.value_head_dim = delta.gate_rank = delta.key_head_dim;
  const std::optional<int> listed = listed_layers(reader, model, "linear_attention");
  if (published && listed && *published != *listed) {
    reader.fail(
        "layer_types",
        fmt::format("{} layers with linear attention, {} in kda_layers", *listed, *published),
        "the layers of kda_layers, or no list");
  }
  const int otherwise = model.layers - (model.layers - 1) / 4;
  delta.layers = published.value_or(listed.value_or(otherwise));
}

/// Under the names of the published files, which transformers keeps; the router is DeepSeek-V3's.
void read_kimi_experts(JsonReader& reader, ModelSpec& model) {
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("num_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_token", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  set_shared_experts(reader, "num_shared_experts", moe,
                     reader.integer_or("num_shared_experts", 0, kMaxExperts, 1),
                     moe.expert_ffn_hidden);
  moe.router_groups = small(reader.integer_or("num_expert_group", 1, kMaxExperts, 1));
  const int topk = small(reader.integer_or("topk_group", 1, kMaxExperts, 1));
  moe.router_group_topk = moe.router_groups > 1 ? topk : 1;
  const std::string score = reader.string_or("moe_router_activation_func", "sigmoid");
  if (score != "sigmoid") reader.fail("moe_router_activation_func", "'" + score + "'", "sigmoid");
  set_corrected_router(reader, moe, "routed_scaling_factor", 2.446);
  moe.router_normalized = reader.boolean_or("moe_renormalize", true);
  if (read_mlp_kinds(reader, model)) return;
  if (reader.integer_or("moe_layer_freq", 1, kMaxLayers, 1) != 1) {
    reader.fail("moe_layer_freq", "experts in some of the layers behind the dense ones",
                "1: experts in each of them");
  }
  set_dense_layers(reader, model, "first_k_dense_replace", 1);
}

}  // namespace

/// Kimi delta attention, and in the other layers latent attention without positions.
void read_kimi_linear(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model);
  const bool renamed = reader.has("model_max_length");
  model.max_positions = small(
      reader.integer(renamed ? "model_max_length" : "max_position_embeddings", 1, kMaxPositions));
  read_latent_attention(reader, model);
  model.activation = read_activation(reader, "hidden_act", Activation::silu, model);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  read_norm_epsilon(reader, model, "rms_norm_eps", 1e-5);
  read_attention_bias(reader, model);
  read_dropout(reader, model);
  model.position = PositionEmbedding::none;
  if (!reader.boolean_or("mla_use_nope", true)) {
    reader.fail("mla_use_nope", "false", "true: latent attention without positions");
  }
  read_layers(reader, model);
  read_kimi_experts(reader, model);
  // Of rotary positions, which no layer has; and what follows from the rest.
  reader.ignore({"rope_theta", "rope_scaling", "head_dim", "qk_head_dim", "use_grouped_topk"});
}

}  // namespace echelon
