// Source of keys, defaults and shapes: transformers 5.24, models/kimi_linear/
// configuration_kimi_linear.py and modeling_kimi_linear.py; the keys of linear_attn_config are
// those of the published files.
#include "core/model/huggingface_kimi_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

constexpr std::string_view kObject = "linear_attn_config";

void set_heads(GatedDeltaNet& delta, std::int64_t heads, std::int64_t width, std::int64_t kernel) {
  delta.key_heads = delta.value_heads = small(heads);
  delta.key_head_dim = delta.value_head_dim = delta.gate_rank = small(width);
  delta.conv_kernel = small(kernel);
}

/// The published form: an object with the numbers of both kinds of layers, counted from 1.
void read_published_layers(JsonReader& outer, const Json& object, ModelSpec& model) {
  JsonReader reader(object, outer.where(), "/" + std::string(kObject));
  GatedDeltaNet& delta = model.delta;
  set_heads(delta, reader.integer_or("num_heads", 1, kMaxHeads, 32),
            reader.integer_or("head_dim", 1, kMaxHeadDim, 128),
            reader.integer_or("short_conv_kernel_size", 1, kMaxHeadDim, 4));
  std::vector<int> seen(static_cast<std::size_t>(model.layers));
  for (const char* key : {"kda_layers", "full_attn_layers"}) {
    const Json* list = reader.member(key);
    const bool fits = list != nullptr && list->is_array();
    for (std::size_t i = 0; fits && i < list->size(); ++i) {
      const Json& entry = (*list)[i];
      const std::int64_t layer = entry.is_number_integer() ? entry.get<std::int64_t>() : 0;
      if (layer >= 1 && layer <= model.layers) ++seen[static_cast<std::size_t>(layer - 1)];
    }
    if (fits && key == std::string_view("kda_layers")) delta.layers = small(list->size());
  }
  if (std::count(seen.begin(), seen.end(), 1) != model.layers) {
    reader.fail("kda_layers", "layers that are in neither list, or in both",
                fmt::format("each of the layers 1 to {} in kda_layers or in full_attn_layers",
                            model.layers));
  }
  if (const Status read = reader.finish(); !read) {
    outer.fail(kObject, read.error().found, read.error().expected);
  }
}

/// The form that transformers writes.
void read_written_layers(JsonReader& reader, ModelSpec& model) {
  set_heads(model.delta, reader.integer_or("linear_num_heads", 1, kMaxHeads, 32),
            reader.integer_or("linear_head_dim", 1, kMaxHeadDim, 128),
            reader.integer_or("linear_conv_kernel_dim", 1, kMaxHeadDim, 4));
  // Without a list every fourth layer but the first has full attention.
  model.delta.layers = listed_layers(reader, model, "linear_attention")
                           .value_or(model.layers - (model.layers - 1) / 4);
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
  moe.router_score = RouterScore::sigmoid;
  moe.router_bias = true;  // e_score_correction_bias
  moe.router_normalized = reader.boolean_or("moe_renormalize", true);
  constexpr double kMostScaling = 1000;
  moe.router_scaling = reader.number_or("routed_scaling_factor", 0, kMostScaling, 2.446);
  if (read_mlp_kinds(reader, model)) return;
  const std::int64_t dense = reader.integer_or("first_k_dense_replace", 0, kMaxLayers, 1);
  std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
  for (std::int64_t i = dense; i < model.layers; ++i) {
    has_experts[static_cast<std::size_t>(i)] = true;
  }
  set_pattern(reader, "first_k_dense_replace", model, has_experts);
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
  const Json* object = reader.member(kObject);
  if (object != nullptr && object->is_object()) {
    read_published_layers(reader, *object, model);
  } else {
    read_written_layers(reader, model);
  }
  read_kimi_experts(reader, model);
  // Of rotary positions, which no layer has; and what follows from the rest.
  reader.ignore({"rope_theta", "rope_scaling", "num_key_value_heads", "head_dim", "qk_head_dim",
                 "moe_layer_freq", "use_grouped_topk", "linear_num_heads", "linear_head_dim",
                 "linear_conv_kernel_dim", "layer_types", "kv_lora_rank"});
}

}  // namespace echelon
