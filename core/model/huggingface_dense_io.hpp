// HuggingFace families of dense models beside Llama's and Qwen's. For *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_apertus(JsonReader& reader, ModelSpec& model);
void read_arcee(JsonReader& reader, ModelSpec& model);
/// Command R's and Command A's block but for norms of queries and keys, and windows.
void read_cohere_block(JsonReader& reader, ModelSpec& model);
void read_cohere(JsonReader& reader, ModelSpec& model);
void read_cohere2(JsonReader& reader, ModelSpec& model);
void read_ernie4_5(JsonReader& reader, ModelSpec& model);
void read_exaone4(JsonReader& reader, ModelSpec& model);
void read_glm(JsonReader& reader, ModelSpec& model);
void read_glm4(JsonReader& reader, ModelSpec& model);
void read_glm4v(JsonReader& reader, ModelSpec& model);
void read_gpt_neox(JsonReader& reader, ModelSpec& model);
void read_gptj(JsonReader& reader, ModelSpec& model);
void read_granite(JsonReader& reader, ModelSpec& model);
void read_hunyuan_dense(JsonReader& reader, ModelSpec& model);
void read_internlm2(JsonReader& reader, ModelSpec& model);
void read_internlm3(JsonReader& reader, ModelSpec& model);
void read_ministral3(JsonReader& reader, ModelSpec& model);
void read_seed_oss(JsonReader& reader, ModelSpec& model);
void read_smollm3(JsonReader& reader, ModelSpec& model);
void read_starcoder2(JsonReader& reader, ModelSpec& model);

/// Granite's factors of embeddings, scores, residuals and logits, which mixtures have too.
void read_granite_factors(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
