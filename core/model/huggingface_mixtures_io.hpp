// HuggingFace families with experts, latent attention, or both. For *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_mixtral(JsonReader& reader, ModelSpec& model);
void read_qwen2_moe(JsonReader& reader, ModelSpec& model);
void read_qwen3_moe(JsonReader& reader, ModelSpec& model);
/// Without n_routed_experts: dense layers with latent attention.
void read_deepseek_v2(JsonReader& reader, ModelSpec& model);
/// Leaves out the module for multi-token prediction, which stands beside the model.
void read_deepseek_v3(JsonReader& reader, ModelSpec& model);
/// The language model of Llama 4. Its norm of queries and keys has no weights.
void read_llama4(JsonReader& reader, ModelSpec& model);
void read_gpt_oss(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
