// LFM2: layers with gated short convolutions, and some with attention.
// Source of keys, defaults and shapes: transformers 5.24, models/lfm2/configuration_lfm2.py and
// modeling_lfm2.py, models/lfm2_moe/; the published files have keys of their trainer besides.
#include "core/model/huggingface_lfm2_io.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <set>

#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// By layer_types, else by the layers with attention; without both every layer has attention.
int convolution_layers(JsonReader& reader, const ModelSpec& model) {
  const auto attending = read_layer_list(reader, "full_attn_idxs", model.layers);
  const std::optional<int> listed = listed_layers(reader, model, "conv");
  if (listed) return *listed;
  if (!attending) return 0;
  const std::set<int> once(attending->begin(), attending->end());
  return model.layers - small(std::ssize(once));
}

/// The block but for its MLP.
void read_lfm2_block(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model, false);
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::are_an_error);
  read_head_dim(reader, model);
  model.qk_norm = true;
  const bool renamed = reader.has("tie_embedding");
  model.tied_embeddings =
      reader.boolean_or(renamed ? "tie_embedding" : "tie_word_embeddings", true);
  read_norm_epsilon(reader, model, "norm_eps", 1e-5);
  read_rope(reader, model, {.theta = 1e6});
  ShortConvolution& conv = model.conv;
  conv.layers = convolution_layers(reader, model);
  conv.kernel = small(reader.integer_or("conv_L_cache", 1, kMaxHeadDim, 3));
  conv.bias = reader.boolean_or("conv_bias", false);
  if (conv.layers == 0) conv = {};
  // What the classes do not read: initial values, second names of widths that they take from
  // elsewhere.
  reader.ignore({"tie_word_embeddings", "block_dim", "block_mlp_init_scale", "block_norm_eps",
                 "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init", "conv_dim",
                 "conv_dim_out", "conv_use_xavier_init", "num_heads", "theta", "use_pos_enc"});
}

/// Of `stated` two thirds, times a factor, rounded up to a multiple.
std::int64_t adjusted_width(JsonReader& reader, std::int64_t stated) {
  const bool adjusts = reader.boolean_or("block_auto_adjust_ff_dim", true);
  const std::int64_t unit = reader.integer_or("block_multiple_of", 1, kMaxFfn, 256);
  const Json* factor = reader.member("block_ffn_dim_multiplier");
  const bool none = factor != nullptr && factor->is_null();
  const double times = none ? 1 : reader.number_or("block_ffn_dim_multiplier", 0, 1e3, 1);
  if (!adjusts) return stated;
  const std::int64_t part = 2 * stated / 3;
  if (none) return part;
  const auto scaled = static_cast<std::int64_t>(times * static_cast<double>(part));
  return (scaled + unit - 1) / unit * unit;
}

}  // namespace

void read_lfm2(JsonReader& reader, ModelSpec& model) {
  read_lfm2_block(reader, model);
  const bool renamed = reader.has("block_ff_dim");
  const std::int64_t stated =
      reader.integer(renamed ? "block_ff_dim" : "intermediate_size", 1, kMaxFfn);
  const std::int64_t width = adjusted_width(reader, stated);
  reader.ignore({"intermediate_size"});
  if (width < 1 || width > kMaxFfn) {
    reader.fail(renamed ? "block_ff_dim" : "intermediate_size",
                fmt::format("an MLP that is {} wide after its adjustment", width),
                fmt::format("a width between 1 and {}", kMaxFfn));
    return;
  }
  model.ffn_hidden = small(width);
}

void read_lfm2_moe(JsonReader& reader, ModelSpec& model) {
  read_lfm2_block(reader, model);
  model.ffn_hidden = small(reader.integer("intermediate_size", 1, kMaxFfn));
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("num_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  set_corrected_router(reader, moe, "routed_scaling_factor", 1);
  moe.router_bias = reader.boolean_or("use_expert_bias", true);
  moe.router_normalized = reader.boolean_or("norm_topk_prob", true);
  set_dense_layers(reader, model, "num_dense_layers", 2);
}

}  // namespace echelon
