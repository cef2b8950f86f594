// Models of a few layers that differ in what a chunk treats differently. golden/make_golden.py has
// the same shapes.
#pragma once

#include "core/model/model.hpp"
#include "core/model/router_arithmetic.hpp"
#include "tests/runtime/training/small_models.hpp"

namespace echelon {

inline ModelSpec test_gpt() {
  ModelSpec model;
  model.constants.emplace();
  model.layers = 3;
  model.hidden = 16;
  model.heads = 4;
  model.head_dim = 4;
  model.ffn_hidden = 24;
  model.vocab = 29;
  model.max_positions = 11;
  return like_gpt2(model);
}

/// Llama-like: fewer kv heads than heads, width of the heads not that of the model.
inline ModelSpec test_llama() {
  ModelSpec model;
  model.constants.emplace();
  model.layers = 3;
  model.hidden = 16;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 6;
  model.ffn_hidden = 20;
  model.vocab = 29;
  model.max_positions = 64;
  return model;
}

/// Mixtral-like: every layer has experts, whose weights are normalized.
inline ModelSpec test_mixtral() {
  ModelSpec model = test_llama();
  model.ffn_hidden = 0;
  model.moe.experts = 5;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn_hidden = 12;
  return model;
}

/// Like Qwen3-MoE's: norms of heads; a dense layer between those with experts, whose weights are
/// parts of the softmax over all of them.
inline ModelSpec test_qwen3_moe() {
  ModelSpec model = test_llama();
  model.qk_norm = true;
  model.moe.experts = 8;
  model.moe.experts_per_token = 3;
  model.moe.expert_ffn_hidden = 8;
  model.moe.every = 2;
  model.moe.router_normalized = false;
  model.moe.router_scaling = 1.5;
  return model;
}

/// Like Qwen2-MoE's: biases of q, k and v, and shared experts that a gate weights.
inline ModelSpec test_qwen2_moe() {
  return like_qwen2_moe(
      test_llama(),
      {.experts = 6, .experts_per_token = 2, .expert_ffn_hidden = 8, .shared_ffn_hidden = 20});
}

/// DeepSeek-V3-like: latents of queries, keys and values; heads of three widths.
inline ModelSpec test_latent() {
  return like_deepseek(test_llama(), {.kv_lora_rank = 9,
                                      .q_lora_rank = 11,
                                      .qk_nope_head_dim = 5,
                                      .qk_rope_head_dim = 4,
                                      .v_head_dim = 6});
}

/// DeepSeek-V2-Lite-like: queries from the hidden state, YaRN that scales the scores too, experts
/// behind a dense layer.
inline ModelSpec test_latent_direct() {
  ModelSpec model = test_latent();
  model.mla.q_lora_rank = 0;
  RotaryEmbedding& rope = model.constants->rope;
  rope = {.theta = 500, .scaling = RopeScaling::yarn, .factor = 4};
  rope.original_positions = 64;
  rope.beta_fast = 4;
  rope.beta_slow = 0.5;
  rope.attention_factor = 1.25;
  rope.score_mscale = 0.7;
  model.moe.experts = 5;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn_hidden = 12;
  model.moe.first_dense_layers = 1;
  model.moe.router_normalized = false;
  return model;
}

/// Like DeepSeek-V3's mixture, with shared experts.
inline ModelSpec test_deepseek_experts() {
  ModelSpec model = test_llama();
  model.moe = like_deepseek_v3(
      {.experts = 8, .experts_per_token = 3, .expert_ffn_hidden = 8, .shared_ffn_hidden = 8});
  return model;
}

/// Like DeepSeek-V3 as a whole: its mixture behind its attention.
inline ModelSpec test_deepseek_v3() {
  ModelSpec model = test_latent();
  model.moe = test_deepseek_experts().moe;
  return model;
}

/// Like DeepSeek-V2's: groups by their best expert, weights of the softmax over all, not
/// normalized.
inline ModelSpec test_deepseek_v2_experts() {
  ModelSpec model = test_deepseek_experts();
  model.moe.router_score = RouterScore::softmax;
  model.moe.router_bias = model.moe.router_normalized = false;
  model.moe.router_scaling = 16;
  model.constants->other_arithmetic = {kGroupsByBestExpert};
  return model;
}

/// Like GLM-4.5's: norms of heads of which the first half is rotated, biases of q, k and v;
/// sigmoid scores with a correction.
inline ModelSpec test_glm4_moe() {
  ModelSpec model = test_deepseek_experts();
  model.head_dim = 8;
  model.qkv_bias = model.qk_norm = true;
  model.constants->rope.rotated_part = 0.5;
  model.moe.router_groups = model.moe.router_group_topk = 1;
  model.moe.router_normalized = false;
  model.moe.router_scaling = 1;
  return model;
}

/// Shared experts without a gate, wider than all routed ones that a token visits.
inline ModelSpec test_shared_experts() {
  ModelSpec model = test_qwen3_moe();
  model.moe.first_dense_layers = 1;
  model.moe.every = 1;
  model.moe.shared_ffn_hidden = 48;
  return model;
}

}  // namespace echelon
