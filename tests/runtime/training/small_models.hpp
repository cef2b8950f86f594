// The settings that make a small model one of a family; without them it is one of Llama's.
#pragma once

#include "core/model/model.hpp"

namespace echelon {

inline ModelSpec like_gpt2(ModelSpec model) {
  model.kv_heads = model.heads;
  model.normalization = Normalization::layer_norm;
  model.activation = Activation::gelu;
  model.position = PositionEmbedding::learned;
  model.gated_mlp = false;
  model.tied_embeddings = true;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  return model;
}

/// DeepSeek's attention: latents of queries (none: V2-Lite's), keys and values; as many key as
/// query heads, each with a part that is rotated and one that is not.
inline ModelSpec like_deepseek(ModelSpec model, const LatentAttention& mla) {
  model.mla = mla;
  model.kv_heads = model.heads;
  model.head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  return model;
}

/// Biases of q, k and v; next to the routed experts, whose weights are not normalized, shared ones
/// that a gate weights.
inline ModelSpec like_qwen2_moe(ModelSpec model, const MixtureOfExperts& moe) {
  model.qkv_bias = true;
  model.moe = moe;
  model.moe.shared_expert_gate = true;
  model.moe.router_normalized = false;
  return model;
}

/// DeepSeek-V3's mixture: a dense layer, then sigmoid scores with a correction, groups of experts,
/// normalized and scaled weights.
inline MixtureOfExperts like_deepseek_v3(MixtureOfExperts moe) {
  moe.first_dense_layers = 1;
  moe.router_score = RouterScore::sigmoid;
  moe.router_bias = true;
  moe.router_groups = 4;
  moe.router_group_topk = 2;
  moe.router_scaling = 2.5;
  return moe;
}

}  // namespace echelon
