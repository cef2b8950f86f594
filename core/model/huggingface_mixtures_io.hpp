// HuggingFace families with experts, latent attention, or both. For *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_mixtral(JsonReader& reader, ModelSpec& model);
void read_qwen2_moe(JsonReader& reader, ModelSpec& model);
void read_qwen3_moe(JsonReader& reader, ModelSpec& model);
void read_qwen3_next(JsonReader& reader, ModelSpec& model);
void read_glm4_moe(JsonReader& reader, ModelSpec& model);
void read_glm4v_moe(JsonReader& reader, ModelSpec& model);
void read_minimax_m2(JsonReader& reader, ModelSpec& model);
void read_olmoe(JsonReader& reader, ModelSpec& model);
/// If n_routed_experts is null: dense layers with latent attention.
void read_deepseek_v2(JsonReader& reader, ModelSpec& model);
void read_deepseek_v3(JsonReader& reader, ModelSpec& model);
/// With sparse attention; layers that share one indexer's keys are errors.
void read_deepseek_v32(JsonReader& reader, ModelSpec& model);
void read_glm_moe_dsa(JsonReader& reader, ModelSpec& model);
/// The language model of Llama 4. Its QK-norm has no weights.
void read_llama4(JsonReader& reader, ModelSpec& model);
void read_gpt_oss(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
