// HuggingFace config.json: one reader per family, because keys and defaults differ between
// families. A missing key takes the default of the family's configuration class in transformers; if
// that default is the shape of a particular model, the key is required instead.
#include "core/model/huggingface_families_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/model/huggingface_dense_io.hpp"
#include "core/model/huggingface_gemma4_io.hpp"
#include "core/model/huggingface_hybrids_io.hpp"
#include "core/model/huggingface_kimi_io.hpp"
#include "core/model/huggingface_lfm2_io.hpp"
#include "core/model/huggingface_mixtures_io.hpp"
#include "core/model/huggingface_more_mixtures_io.hpp"
#include "core/model/huggingface_newer_mixtures_io.hpp"
#include "core/model/huggingface_older_dense_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/huggingface_recent_dense_io.hpp"
#include "core/model/huggingface_recent_mixtures_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

void read_llama(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
}

void read_mistral(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, model.layers);
}

/// Qwen windows the layers from max_window_layers on, and only with use_sliding_window.
void read_qwen_window(JsonReader& reader, ModelSpec& model) {
  const bool used = reader.boolean_or("use_sliding_window", false);
  const std::int64_t full = reader.integer_or("max_window_layers", 0, kMaxLayers, model.layers);
  reader.ignore({"sliding_window", "layer_types"});  // unused without use_sliding_window
  if (!used) return;
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, std::max(0, model.layers - small(full)));
}

void read_qwen2(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  model.qkv_bias = true;
  read_qwen_window(reader, model);
}

/// MiMo: Qwen2's block.
void read_mimo(JsonReader& reader, ModelSpec& model) {
  read_qwen2(reader, model);
  model.qkv_bias = reader.boolean_or("attention_bias", true);
}

void read_qwen3(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  require_head_dim(reader);
  model.qk_norm = true;
  read_attention_bias(reader, model);
  read_qwen_window(reader, model);
}

/// Operations of all Gemma models that no field describes.
void add_gemma_arithmetic(ModelSpec& model) {
  add_arithmetic(model, "word embeddings multiplied by the root of the hidden width");
  add_arithmetic(model, "gains of norms counted from one");
}

/// Soft caps and scales of attention scores and logits; null: none.
void read_gemma_scores(JsonReader& reader, ModelSpec& model, bool capped_by_default) {
  const auto cap = [&](const char* key, const char* what, double class_default) {
    const Json* value = reader.member(key);
    const bool none = value == nullptr ? !capped_by_default : value->is_null();
    if (none) return;
    add_arithmetic(model, fmt::format("{} capped at {:g}", what,
                                      reader.number_or(key, 0, 1e9, class_default)));
  };
  cap("attn_logit_softcapping", "attention scores", 50);
  cap("final_logit_softcapping", "logits", 30);
  constexpr double kClassDefault = 256;
  const double scalar = reader.number_or("query_pre_attn_scalar", 1e-6, 1e9, kClassDefault);
  if (scalar != model.head_dim) {
    add_arithmetic(model, fmt::format("attention scores divided by the root of {:g}", scalar));
  }
}

void read_gemma(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::are_an_error);
  model.head_dim = small(reader.integer("head_dim", 1, kMaxHeadDim));
  // "gelu" in the older key hidden_act means the tanh form, which is also the default.
  const bool renamed = reader.has("hidden_activation") || reader.member("hidden_act") == nullptr;
  const bool tanh_form = !renamed && *reader.member("hidden_act") == Json("gelu");
  model.activation = tanh_form
                         ? Activation::gelu
                         : read_activation(reader, renamed ? "hidden_activation" : "hidden_act",
                                           Activation::gelu, model);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  read_norm_epsilon(reader, model, "rms_norm_eps", 1e-6);
  read_rope(reader, model);
  read_attention_bias(reader, model);
  read_dropout(reader, model);
  add_gemma_arithmetic(model);
  // Older names of hidden_activation and sliding_window.
  reader.ignore({"hidden_act", "sliding_window_size"});
}

/// VaultGemma: Gemma 2 without the norms behind attention and MLP.
void read_vaultgemma(JsonReader& reader, ModelSpec& model) {
  read_gemma(reader, model);
  read_gemma_scores(reader, model, true);
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, (model.layers + 1) / 2);
}

void read_gemma2(JsonReader& reader, ModelSpec& model) {
  read_gemma(reader, model);
  read_gemma_scores(reader, model, true);
  model.post_norms = true;
  constexpr int kClassDefault = 4096;
  // Every second layer, from the first.
  read_window(reader, model, kClassDefault, (model.layers + 1) / 2);
}

/// Files of multimodal Gemma 3 omit values equal to the class default, including shapes.
void read_gemma3(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer_or("num_hidden_layers", 1, kMaxLayers, 26));
  model.hidden = small(reader.integer_or("hidden_size", 1, kMaxHidden, 2304));
  model.heads = small(reader.integer_or("num_attention_heads", 1, kMaxHeads, 8));
  model.kv_heads = small(reader.integer_or("num_key_value_heads", 1, kMaxHeads, 4));
  model.head_dim = small(reader.integer_or("head_dim", 1, kMaxHeadDim, 256));
  model.ffn_hidden = small(reader.integer_or("intermediate_size", 1, kMaxFfn, 9216));
  model.vocab = small(reader.integer_or("vocab_size", 1, kMaxVocab, 262'208));
  model.max_positions =
      small(reader.integer_or("max_position_embeddings", 1, kMaxPositions, 131'072));
  model.activation = read_activation(reader, "hidden_activation", Activation::gelu, model);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qk_norm = true;
  model.post_norms = true;
  read_norm_epsilon(reader, model, "rms_norm_eps", 1e-6);
  read_rope(reader, model, {.theta = 1e6});
  add_gemma_arithmetic(model);
  read_gemma_scores(reader, model, false);
  const double local = reader.number_or("rope_local_base_freq", 1e-9, 1e12, 10'000);
  if (local != model.constants->rope.theta) {
    add_arithmetic(model, fmt::format("a rotary base of {:g} in windowed layers", local));
  }
  read_attention_bias(reader, model);
  read_dropout(reader, model);
  // One layer in `pattern` has full attention.
  reader.ignore({"_sliding_window_pattern", "sliding_window_pattern"});
  const bool renamed = reader.has("_sliding_window_pattern");
  const std::int64_t pattern = reader.integer_or(
      renamed ? "_sliding_window_pattern" : "sliding_window_pattern", 1, kMaxLayers, 6);
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, model.layers - model.layers / small(pattern));
}

void read_phi(JsonReader& reader, ModelSpec& model) {
  read_layer_norm_block(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::mean_multi_head);
  read_norm_epsilon(reader, model, "layer_norm_eps", 1e-5);
  read_rope(reader, model, {.rotated_part = 0.5});
  model.parallel_block = true;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = model.head_bias = true;
  model.qk_norm = reader.boolean_or("qk_layernorm", false);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  model.hidden_dropout = reader.number_or("resid_pdrop", 0, 1, 0);
  read_dropout(reader, model);
  reader.ignore({"embd_pdrop"});  // the planner models two dropouts
}

void read_phi3(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  model.hidden_dropout = reader.number_or("resid_pdrop", 0, 1, 0);
  // One dropout of three; 1 in every file.
  reader.ignore({"embd_pdrop", "full_attn_mod", "interpolate_factor"});
  read_window(reader, model, 0, model.layers);
}

/// Phi-4-multimodal: the published file describes its other networks by keys of its own.
constexpr std::array kPhi4Networks = {"audio_processor", "embd_layer", "img_processor",
                                      "speech_lora", "vision_lora"};
void read_phi4_multimodal(JsonReader& reader, ModelSpec& model) {
  read_phi3(reader, model);
  for (const char* key : kPhi4Networks) reader.ignore({key});
}

void note_phi4_multimodal(JsonReader& reader, const ModelSpec&, std::vector<std::string>& remarks) {
  std::string found;
  for (const char* key : kPhi4Networks) {
    if (reader.has(key)) found += (found.empty() ? "" : ", ") + std::string(key);
  }
  if (found.empty()) return;
  remarks.push_back("not planned: " + found +
                    " of the model's file; the plan is for its language model alone");
}

void read_nemotron(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .rope = {.rotated_part = 0.5}});
  model.normalization = Normalization::layer_norm;
  if (!reader.has("hidden_act")) model.activation = Activation::squared_relu;
  read_norm_epsilon(reader, model, "norm_eps", 1e-5);
  add_arithmetic(model, "gains of norms counted from one");
  model.gated_mlp = false;
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
}

void read_qwen3_5(JsonReader& reader, ModelSpec& model) {
  read_gated_qwen(reader, model);
  reader.integer("intermediate_size", 1, kMaxFfn);  // required
}

/// OLMo 2 and 3: norms of queries and keys span all heads, and norms after attention and MLP
/// replace those before. OLMo 3 windows three of four layers. Source: transformers, models/olmo2/
/// and models/olmo3/modeling_olmo3.py.
void read_olmo2(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  read_attention_bias(reader, model);
  model.qk_norm_all_heads = true;
  add_arithmetic(model, "norms after attention and MLP instead of before");
}

void read_olmo3(JsonReader& reader, ModelSpec& model) {
  read_olmo2(reader, model);
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, model.layers - model.layers / 4);
  if (model.constants->rope.scaling != RopeScaling::none) {
    add_arithmetic(model, "rotary embeddings that differ between layers");
  }
}

constexpr std::array kAll = {
    HuggingFaceFamily{"gpt2", "GPT2", read_gpt2},
    HuggingFaceFamily{"llama", "Llama", read_llama},
    HuggingFaceFamily{"mistral", "Mistral", read_mistral},
    HuggingFaceFamily{"qwen2", "Qwen2", read_qwen2},
    HuggingFaceFamily{"qwen3", "Qwen3", read_qwen3},
    HuggingFaceFamily{"qwen3_5_text", "Qwen3_5", read_qwen3_5},
    HuggingFaceFamily{"olmo2", "Olmo2", read_olmo2},
    HuggingFaceFamily{"olmo3", "Olmo3", read_olmo3},
    HuggingFaceFamily{"gemma", "Gemma", read_gemma},
    HuggingFaceFamily{"gemma2", "Gemma2", read_gemma2},
    HuggingFaceFamily{"gemma3_text", "Gemma3", read_gemma3},
    HuggingFaceFamily{"gemma4_unified_text", "Gemma4Unified", read_gemma4_unified},
    HuggingFaceFamily{"phi", "Phi", read_phi},
    HuggingFaceFamily{"phi3", "Phi3", read_phi3},
    HuggingFaceFamily{"nemotron", "Nemotron", read_nemotron},
    HuggingFaceFamily{"bloom", "Bloom", read_bloom},
    HuggingFaceFamily{"ministral3", "Ministral3", read_ministral3},
    HuggingFaceFamily{"glm", "Glm", read_glm},
    HuggingFaceFamily{"glm4", "Glm4", read_glm4},
    HuggingFaceFamily{"smollm3", "SmolLM3", read_smollm3},
    HuggingFaceFamily{"seed_oss", "SeedOss", read_seed_oss},
    HuggingFaceFamily{"exaone4", "Exaone4", read_exaone4},
    HuggingFaceFamily{"granite", "Granite", read_granite},
    HuggingFaceFamily{"bamba", "Bamba", read_bamba},
    HuggingFaceFamily{"falcon_h1", "FalconH1", read_falcon_h1},
    HuggingFaceFamily{"cohere", "Cohere", read_cohere},
    HuggingFaceFamily{"cohere2", "Cohere2", read_cohere2},
    HuggingFaceFamily{"apertus", "Apertus", read_apertus},
    HuggingFaceFamily{"arcee", "Arcee", read_arcee},
    HuggingFaceFamily{"ernie4_5", "Ernie4_5", read_ernie4_5},
    HuggingFaceFamily{"hunyuan_v1_dense", "HunYuanDenseV1", read_hunyuan_dense},
    HuggingFaceFamily{"internlm2", "InternLM2", read_internlm2},
    HuggingFaceFamily{"internlm3", "InternLM3", read_internlm3},
    HuggingFaceFamily{"mimo", "MiMo", read_mimo},
    HuggingFaceFamily{"starcoder2", "Starcoder2", read_starcoder2},
    HuggingFaceFamily{"gpt_neox", "GPTNeoX", read_gpt_neox},
    HuggingFaceFamily{"gptj", "GPTJ", read_gptj},
    HuggingFaceFamily{"codegen", "CodeGen", read_gptj},
    HuggingFaceFamily{"gpt_bigcode", "GPTBigCode", read_gpt_bigcode},
    HuggingFaceFamily{"gpt_neo", "GPTNeo", read_gpt_neo},
    HuggingFaceFamily{"opt", "OPT", read_opt},
    HuggingFaceFamily{"falcon", "Falcon", read_falcon},
    HuggingFaceFamily{"mpt", "Mpt", read_mpt},
    HuggingFaceFamily{"stablelm", "StableLm", read_stablelm},
    HuggingFaceFamily{"persimmon", "Persimmon", read_persimmon},
    HuggingFaceFamily{"olmo", "Olmo", read_olmo},
    HuggingFaceFamily{"vaultgemma", "VaultGemma", read_vaultgemma},
    HuggingFaceFamily{"ministral", "Ministral", read_ministral},
    HuggingFaceFamily{"cwm", "Cwm", read_cwm},
    HuggingFaceFamily{"exaone", "Exaone", read_exaone},
    HuggingFaceFamily{"granite_swa", "GraniteSWA", read_granite_swa},
    HuggingFaceFamily{"hyperclovax", "HyperCLOVAX", read_hyperclovax},
    HuggingFaceFamily{"helium", "Helium", read_helium},
    HuggingFaceFamily{"iquestcoder", "IQuestCoder", read_iquestcoder},
    HuggingFaceFamily{"jais2", "Jais2", read_jais2},
    HuggingFaceFamily{"minicpm3", "MiniCPM3", read_minicpm3},
    HuggingFaceFamily{"nanochat", "NanoChat", read_nanochat},
    HuggingFaceFamily{"apertus1p5_text", "Apertus1p5Text", read_apertus1p5},
    HuggingFaceFamily{"mixtral", "Mixtral", read_mixtral, true},
    HuggingFaceFamily{"qwen2_moe", "Qwen2Moe", read_qwen2_moe, true},
    HuggingFaceFamily{"qwen3_moe", "Qwen3Moe", read_qwen3_moe, true},
    HuggingFaceFamily{"qwen3_next", "Qwen3Next", read_qwen3_next, true},
    HuggingFaceFamily{"qwen3_5_moe_text", "Qwen3_5Moe", read_qwen3_next, true},
    HuggingFaceFamily{"olmoe", "Olmoe", read_olmoe, true},
    HuggingFaceFamily{"glm4_moe", "Glm4Moe", read_glm4_moe, true},
    HuggingFaceFamily{"minimax_m2", "MiniMaxM2", read_minimax_m2, true},
    HuggingFaceFamily{"deepseek_v2", "DeepseekV2", read_deepseek_v2, true},
    HuggingFaceFamily{"deepseek_v3", "DeepseekV3", read_deepseek_v3, true},
    HuggingFaceFamily{"deepseek_v32", "DeepseekV32", read_deepseek_v32, true},
    HuggingFaceFamily{"glm_moe_dsa", "GlmMoeDsa", read_glm_moe_dsa, true},
    HuggingFaceFamily{"kimi_k2", "KimiK2", read_deepseek_v3, true},  // the shapes of DeepSeek-V3
    HuggingFaceFamily{"kimi_linear", "KimiLinear", read_kimi_linear, true},
    HuggingFaceFamily{"llama4_text", "Llama4", read_llama4, true},
    HuggingFaceFamily{"gpt_oss", "GptOss", read_gpt_oss, true},
    HuggingFaceFamily{"gemma4_text", "Gemma4", read_gemma4, true},
    HuggingFaceFamily{"glm4_moe_lite", "Glm4MoeLite", read_glm4_moe_lite, true},
    HuggingFaceFamily{"dots1", "Dots1", read_dots1, true},
    HuggingFaceFamily{"ernie4_5_moe", "Ernie4_5_Moe", read_ernie4_5_moe, true},
    HuggingFaceFamily{"hunyuan_v1_moe", "HunYuanMoEV1", read_hunyuan_moe, true},
    HuggingFaceFamily{"bailing_moe", "BailingMoe", read_bailing_moe, true},
    HuggingFaceFamily{"bailing_moe_v2", "BailingMoeV2", read_bailing_moe, true},
    HuggingFaceFamily{"granitemoe", "GraniteMoe", read_granitemoe, true},
    HuggingFaceFamily{"granitemoehybrid", "GraniteMoeHybrid", read_granitemoehybrid, true},
    HuggingFaceFamily{"nemotron_h", "NemotronH", read_nemotron_h, true, note_nemotron_h},
    HuggingFaceFamily{"phimoe", "PhiMoE", read_phimoe, true},
    HuggingFaceFamily{"solar_open", "SolarOpen", read_solar_open, true},
    HuggingFaceFamily{"hy_v3", "HYV3", read_hy_v3, true},
    HuggingFaceFamily{"exaone_moe", "ExaoneMoe", read_exaone_moe, true},
    HuggingFaceFamily{"afmoe", "Afmoe", read_afmoe, true},
    HuggingFaceFamily{"olmo_hybrid", "OlmoHybrid", read_olmo_hybrid},
    HuggingFaceFamily{"youtu", "Youtu", read_youtu},
    HuggingFaceFamily{"mistral4", "Mistral4", read_mistral4, true},
    HuggingFaceFamily{"lfm2", "Lfm2", read_lfm2},
    HuggingFaceFamily{"lfm2_moe", "Lfm2Moe", read_lfm2_moe, true},
    HuggingFaceFamily{"granitemoeshared", "GraniteMoeShared", read_granitemoeshared, true},
    HuggingFaceFamily{"granitemoe_swa", "GraniteMoeSWA", read_granitemoe_swa, true},
    HuggingFaceFamily{"cohere2_moe", "Cohere2Moe", read_cohere2_moe, true},
    HuggingFaceFamily{"flex_olmo", "FlexOlmo", read_flex_olmo, true},
    HuggingFaceFamily{"mellum", "Mellum", read_mellum, true},
    HuggingFaceFamily{"sarvam_moe", "SarvamMoE", read_sarvam_moe, true},
    HuggingFaceFamily{"sarvam_mla", "SarvamMLA", read_sarvam_mla, true},
    HuggingFaceFamily{"axk1", "AXK1", read_axk1, true},
    HuggingFaceFamily{"beam", "Beam", read_beam, true},
    HuggingFaceFamily{"flint", "Flint", read_flint, true},
    HuggingFaceFamily{"kolibri1", "Kolibri1", read_kolibri1, true},
    // Language models of models that see images or hear.
    HuggingFaceFamily{"emu3_text_model", "Emu3", read_llama},
    HuggingFaceFamily{"glm4v_text", "Glm4v", read_glm4v},
    HuggingFaceFamily{"glm4v_moe_text", "Glm4vMoe", read_glm4v_moe, true},
    HuggingFaceFamily{"granite4_vision_text", "Granite4Vision", read_granite},
    HuggingFaceFamily{"granite_docling_text", "GraniteDocling", read_granite},
    HuggingFaceFamily{"muse_glimmer_text", "MuseGlimmer", read_muse_glimmer},
    HuggingFaceFamily{"paddleocr_vl_text", "PaddleOCRVL", read_ernie4_5},
    HuggingFaceFamily{"qwen2_5_omni_text", "Qwen2_5Omni", read_qwen2},
    HuggingFaceFamily{"qwen3_omni_moe_text", "Qwen3OmniMoe", read_qwen3_moe, true},
    HuggingFaceFamily{"aria_text", "AriaText", read_aria, true},
    HuggingFaceFamily{"phi4_multimodal", "Phi4Multimodal", read_phi4_multimodal, false,
                      note_phi4_multimodal},
    HuggingFaceFamily{"phi4mm", "Phi4MM", read_phi4_multimodal, false, note_phi4_multimodal},
    HuggingFaceFamily{"qwen2_vl", "Qwen2VL", read_qwen2},
    HuggingFaceFamily{"qwen2_vl_text", "Qwen2VL", read_qwen2},
    HuggingFaceFamily{"qwen2_5_vl", "Qwen2_5_VL", read_qwen2},
    HuggingFaceFamily{"qwen2_5_vl_text", "Qwen2_5_VL", read_qwen2},
    HuggingFaceFamily{"qwen3_vl_text", "Qwen3VL", read_qwen3},
    HuggingFaceFamily{"qwen3_vl_moe_text", "Qwen3VLMoe", read_qwen3_moe, true},
};

}  // namespace

std::span<const HuggingFaceFamily> huggingface_families() { return kAll; }

}  // namespace echelon
