// Cases that are small enough for emulated GPUs.
#pragma once

#include "core/model/model.hpp"
#include "runtime/cuda/measure/measure.hpp"

namespace echelon {

/// The model with a head_dim that the CUDA backend supports, and grouped heads if its positions are
/// rotary.
inline ModelSpec with_wide_heads(ModelSpec model) {
  model.hidden = 32;
  model.heads = 2;
  model.kv_heads = model.position == PositionEmbedding::rope ? 1 : 2;
  model.head_dim = 64;
  model.ffn_hidden = 64;
  if (model.moe.experts > 0) model.moe.expert_ffn_hidden = 32;
  if (model.moe.shared_ffn_hidden > 0) model.moe.shared_ffn_hidden = 64;
  if (model.latent()) {
    model.kv_heads = model.heads;
    model.mla.qk_nope_head_dim = model.mla.v_head_dim = 128;
    model.mla.qk_rope_head_dim = 64;
    model.head_dim = 192;
    model.mla.kv_lora_rank = 16;
    if (model.mla.q_lora_rank > 0) model.mla.q_lora_rank = 24;
  }
  return model;
}

inline cuda::MeasuredSizes small_sizes() {
  cuda::MeasuredSizes sizes;
  sizes.linears = {{16, 64, 128}};
  sizes.attentions = {cuda::attention_of_heads(64, 1, 2, 1, 64),
                      cuda::attention_of_heads(64, 1, 1, 1, 128)};
  sizes.matrices = {{8, 64}};
  sizes.logits = {{8, 256}};
  sizes.parameters = {1024};
  sizes.layers = {{1, 64, 64, 1}};
  sizes.copies = {4096};
  sizes.collectives = {256, 1024};
  sizes.launches = 4;
  sizes.nccl_calls = 4;
  sizes.max_time = Seconds{1000};
  return sizes;
}

}  // namespace echelon
