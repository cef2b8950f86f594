// The settings that make a small model one of GPT-2's family; without them it is one of Llama's.
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

}  // namespace echelon
