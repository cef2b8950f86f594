// Models of a few layers that differ in what a chunk treats differently. golden/make_golden.py has
// the same shapes.
#pragma once

#include "core/model/model.hpp"
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
  ModelSpec model = test_llama();
  model.qkv_bias = true;
  model.moe.experts = 6;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn_hidden = 8;
  model.moe.shared_ffn_hidden = 20;
  model.moe.shared_expert_gate = true;
  model.moe.router_normalized = false;
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
