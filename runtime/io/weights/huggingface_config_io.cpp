// config.json: checks which models are executed, and writes one.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/expects.hpp"
#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "runtime/io/weights/huggingface.hpp"

namespace echelon {
namespace {

/// A sequence that fits every window: a plan's own length was checked before.
constexpr int kOneToken = 1;

/// rope_scaling as transformers reads it; null: none.
Json scaling_json(const RotaryEmbedding& rope, bool latent) {
  switch (rope.scaling) {
    case RopeScaling::linear: return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::llama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_frequency_factor},
              {"high_freq_factor", rope.high_frequency_factor},
              {"original_max_position_embeddings", rope.original_positions}};
    case RopeScaling::yarn: {
      Json json{{"rope_type", "yarn"},
                {"factor", rope.factor},
                {"original_max_position_embeddings", rope.original_positions},
                {"beta_fast", rope.beta_fast},
                {"beta_slow", rope.beta_slow},
                {"truncate", rope.whole_pairs},
                {"attention_factor", rope.attention_factor}};
      if (latent) json["mscale_all_dim"] = rope.score_mscale;
      return json;
    }
    case RopeScaling::none:
    case RopeScaling::dynamic:   // not executed,
    case RopeScaling::longrope:  // so never exported
      break;
  }
  return nullptr;
}

bool is_gpt2(const ModelSpec& m) {
  return m.position == PositionEmbedding::learned && m.normalization == Normalization::layer_norm &&
         !m.gated_mlp && m.activation == Activation::gelu && m.qkv_bias &&
         m.attention_output_bias && m.mlp_bias && !m.head_bias && m.kv_heads == m.heads &&
         m.query_width() == m.hidden;
}

bool is_llama_like(const ModelSpec& m) {
  return m.position == PositionEmbedding::rope && m.normalization == Normalization::rms_norm &&
         m.gated_mlp && m.activation == Activation::silu && !m.head_bias;
}

Json gpt2_json(const ModelSpec& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_layer", m.layers},
          {"n_embd", m.hidden},
          {"n_head", m.heads},
          {"n_inner", m.ffn_hidden},
          {"n_positions", m.max_positions},
          {"vocab_size", m.vocab},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", m.constants->norm_epsilon},
          {"resid_pdrop", m.hidden_dropout},
          {"embd_pdrop", m.hidden_dropout},
          {"attn_pdrop", m.attention_dropout},
          {"tie_word_embeddings", m.tied_embeddings}};
}

/// Families whose tensors have Llama's names, and their differences.
struct LlamaFamily {
  const char* model_type;
  const char* model_class;
};
constexpr LlamaFamily kLlama = {"llama", "LlamaForCausalLM"};
constexpr LlamaFamily kMistral = {"mistral", "MistralForCausalLM"};
constexpr LlamaFamily kQwen2 = {"qwen2", "Qwen2ForCausalLM"};
constexpr LlamaFamily kQwen3 = {"qwen3", "Qwen3ForCausalLM"};
constexpr LlamaFamily kMixtral = {"mixtral", "MixtralForCausalLM"};
constexpr LlamaFamily kQwen2Moe = {"qwen2_moe", "Qwen2MoeForCausalLM"};
constexpr LlamaFamily kGlm4Moe = {"glm4_moe", "Glm4MoeForCausalLM"};
constexpr LlamaFamily kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM"};
constexpr LlamaFamily kDeepSeekV2 = {"deepseek_v2", "DeepseekV2ForCausalLM"};
constexpr LlamaFamily kDeepSeekV3 = {"deepseek_v3", "DeepseekV3ForCausalLM"};

/// DeepSeek-V3's with sigmoid scores and their correction, or without experts; V2's with softmax
/// scores that are not normalized. Both have experts in every layer from some one on, and shared
/// experts as wide as several routed ones. Null: neither.
const LlamaFamily* latent_family(const ModelSpec& m) {
  if (m.qkv_bias || m.attention_output_bias || m.mlp_bias) return nullptr;
  const MixtureOfExperts& moe = m.moe;
  if (moe.experts == 0) return &kDeepSeekV3;
  const bool to_the_end = m.moe_layers() == m.layers - moe.first_dense_layers;
  const bool shared = !moe.shared_expert_gate && moe.shared_ffn_hidden % moe.expert_ffn_hidden == 0;
  if (!to_the_end || !shared) return nullptr;
  if (moe.router_score == RouterScore::sigmoid) return moe.router_bias ? &kDeepSeekV3 : nullptr;
  return moe.router_normalized ? nullptr : &kDeepSeekV2;
}

bool is_glm4_moe(const ModelSpec& m) {
  const MixtureOfExperts& moe = m.moe;
  const bool attention = !m.attention_output_bias && !m.mlp_bias && m.windowed_layers == 0;
  const bool shared = moe.shared_ffn_hidden > 0 && !moe.shared_expert_gate &&
                      moe.shared_ffn_hidden % moe.expert_ffn_hidden == 0;
  const bool from_a_layer_on = m.moe_layers() == m.layers - moe.first_dense_layers;
  return attention && shared && from_a_layer_on && moe.router_bias;
}

/// Mixtral has experts in every layer, whose width is the only one of its configuration, and
/// neither biases nor norms of heads; Qwen3-MoE is Qwen3 with them in any layers, Qwen2-MoE the
/// same of Qwen2 with shared ones and their gate. GLM-4.5 has DeepSeek-V3's from a layer on. Null:
/// none of these.
const LlamaFamily* family_with_experts(const ModelSpec& m) {
  const MixtureOfExperts& moe = m.moe;
  if (moe.router_score == RouterScore::sigmoid) return is_glm4_moe(m) ? &kGlm4Moe : nullptr;
  const bool whole_heads = m.constants->rope.rotated_part == 1;
  if (moe.router_scaling != 1 || moe.router_groups > 1 || m.mlp_bias || !whole_heads)
    return nullptr;
  if (moe.shared_ffn_hidden > 0) {
    const bool plain = !m.qk_norm && !m.attention_output_bias && m.windowed_layers == 0;
    return plain && moe.shared_expert_gate ? &kQwen2Moe : nullptr;
  }
  if (m.qkv_bias != m.attention_output_bias) return nullptr;
  if (m.qk_norm) return m.windowed_layers % m.layers == 0 ? &kQwen3Moe : nullptr;
  const bool whole = m.moe_layers() == m.layers && m.ffn_hidden == moe.expert_ffn_hidden;
  const bool windows = m.windowed_layers % m.layers == 0;
  return whole && windows && moe.router_normalized && !m.qkv_bias ? &kMixtral : nullptr;
}

/// Null if no family has such a model: Llama's and Qwen3's attention_bias is all four or none,
/// Qwen2 has those of q, k and v, Mistral none; only Qwen3 has norms of heads, and no biases of the
/// MLP. Mistral has windows in all layers, Qwen in the last ones, Llama none. A model keeps its
/// family if that supports it.
const LlamaFamily* llama_family(const ModelSpec& m) {
  if (!is_llama_like(m)) return nullptr;
  if (m.latent()) return latent_family(m);
  if (m.moe.experts > 0) return family_with_experts(m);
  if (m.constants->rope.rotated_part != 1) return nullptr;
  if (m.qk_norm) return m.qkv_bias == m.attention_output_bias && !m.mlp_bias ? &kQwen3 : nullptr;
  const bool biased = m.qkv_bias || m.attention_output_bias || m.mlp_bias;
  const bool windowed = m.windowed_layers > 0;
  if ((m.architecture == "mistral" || windowed) && !biased)
    return !windowed || m.windowed_layers == m.layers ? &kMistral : nullptr;
  if (m.qkv_bias && !m.attention_output_bias && !m.mlp_bias) return &kQwen2;
  if (windowed) return nullptr;
  return m.qkv_bias == m.attention_output_bias ? &kLlama : nullptr;
}

/// Of a model_type; none: its tensors have other names than those of any family here.
std::optional<HuggingFaceNames> names_of(std::string_view family) {
  if (family == "gpt2") return HuggingFaceNames::gpt2;
  if (family == kMixtral.model_type) return HuggingFaceNames::mixtral;
  for (const LlamaFamily& each : {kGlm4Moe, kDeepSeekV2, kDeepSeekV3}) {
    if (family == each.model_type) return HuggingFaceNames::deepseek;
  }
  for (const LlamaFamily& each : {kQwen2Moe, kQwen3Moe}) {
    if (family == each.model_type) return HuggingFaceNames::qwen_moe;
  }
  for (const LlamaFamily& each : {kLlama, kMistral, kQwen2, kQwen3}) {
    if (family == each.model_type) return HuggingFaceNames::llama;
  }
  return std::nullopt;
}

void add_qwen_experts(const ModelSpec& m, Json& json) {
  json["num_experts"] = m.moe.experts;
  json["num_experts_per_tok"] = m.moe.experts_per_token;
  json["moe_intermediate_size"] = m.moe.expert_ffn_hidden;
  json["norm_topk_prob"] = m.moe.router_normalized;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
  for (int layer = 0; layer < m.layers; ++layer) {
    if (m.layer_kind(layer) == LayerKind::dense) json["mlp_only_layers"].push_back(layer);
  }
}

/// DeepSeek-V3's keys, which GLM-4.5 has too. A dense model's experts are those of no layer.
void add_deepseek_experts(const ModelSpec& m, Json& json) {
  const MixtureOfExperts& moe = m.moe;
  const bool dense = moe.experts == 0;
  json["first_k_dense_replace"] = dense ? m.layers : moe.first_dense_layers;
  json["n_routed_experts"] = std::max(1, moe.experts);
  json["num_experts_per_tok"] = std::max(1, moe.experts_per_token);
  json["moe_intermediate_size"] = dense ? m.ffn_hidden : moe.expert_ffn_hidden;
  json["n_shared_experts"] = dense ? 0 : moe.shared_ffn_hidden / moe.expert_ffn_hidden;
  json["n_group"] = dense ? 1 : moe.router_groups;
  json["topk_group"] = dense ? 1 : moe.router_group_topk;
  json["routed_scaling_factor"] = moe.router_scaling;
  json["num_nextn_predict_layers"] = 0;
  if (!dense) json["norm_topk_prob"] = moe.router_normalized;
}

void add_glm4(const ModelSpec& m, Json& json) {
  add_deepseek_experts(m, json);
  json["attention_bias"] = m.qkv_bias;
  json["use_qk_norm"] = m.qk_norm;
  json["partial_rotary_factor"] = m.constants->rope.rotated_part;
}

void add_latent_attention(const ModelSpec& m, Json& json) {
  const LatentAttention& mla = m.mla;
  json.erase("head_dim");
  json["kv_lora_rank"] = mla.kv_lora_rank;
  json["q_lora_rank"] = mla.q_lora_rank > 0 ? Json(mla.q_lora_rank) : nullptr;
  json["qk_nope_head_dim"] = mla.qk_nope_head_dim;
  json["qk_rope_head_dim"] = mla.qk_rope_head_dim;
  json["v_head_dim"] = mla.v_head_dim;
  json["attention_bias"] = false;
  add_deepseek_experts(m, json);
  if (m.moe.experts == 0 || m.moe.router_score == RouterScore::sigmoid) return;
  json["topk_method"] = m.moe.router_groups > 1 ? "group_limited_greedy" : "greedy";
}

Json llama_json(const ModelSpec& m, const LlamaFamily& family) {
  const RotaryEmbedding& rope = m.constants->rope;
  Json json{{"architectures", {family.model_class}},
            {"model_type", family.model_type},
            {"num_hidden_layers", m.layers},
            {"hidden_size", m.hidden},
            {"intermediate_size", m.ffn_hidden},
            {"num_attention_heads", m.heads},
            {"num_key_value_heads", m.kv_heads},
            {"head_dim", m.head_dim},
            {"max_position_embeddings", m.max_positions},
            {"vocab_size", m.vocab},
            {"hidden_act", "silu"},
            {"rms_norm_eps", m.constants->norm_epsilon},
            {"rope_theta", rope.theta},
            {"attention_dropout", m.attention_dropout},
            {"tie_word_embeddings", m.tied_embeddings}};
  if (Json scaling = scaling_json(rope, m.latent()); !scaling.is_null()) {
    json["rope_scaling"] = std::move(scaling);
  }
  const bool windowed = m.windowed_layers > 0;
  if (&family == &kQwen2 || &family == &kQwen3) {
    json["use_sliding_window"] = windowed;
    if (windowed) {
      json["sliding_window"] = m.sliding_window;
      json["max_window_layers"] = m.layers - m.windowed_layers;
    }
  }
  if (&family == &kMixtral) {
    json["num_local_experts"] = m.moe.experts;
    json["num_experts_per_tok"] = m.moe.experts_per_token;
    json["sliding_window"] = windowed ? Json(m.sliding_window) : nullptr;
  }
  if (&family == &kGlm4Moe) add_glm4(m, json);
  if (&family == &kQwen2Moe) {
    json["qkv_bias"] = m.qkv_bias;
    json["shared_expert_intermediate_size"] = m.moe.shared_ffn_hidden;
  }
  if (&family == &kQwen2Moe || &family == &kQwen3Moe) {
    add_qwen_experts(m, json);
    json["use_sliding_window"] = windowed;
    if (windowed) json["sliding_window"] = m.sliding_window;
  }
  if (m.latent()) add_latent_attention(m, json);
  if (&family == &kQwen3 || &family == &kQwen3Moe) json["attention_bias"] = m.qkv_bias;
  if (&family == &kMistral) json["sliding_window"] = windowed ? Json(m.sliding_window) : nullptr;
  if (&family == &kLlama) {
    json["attention_bias"] = m.qkv_bias;
    json["mlp_bias"] = m.mlp_bias;
  }
  return json;
}

}  // namespace

Result<HuggingFaceConfig> parse_huggingface_config(std::string_view json, std::string_view where) {
  Result<ModelSpec> model = parse_model(json, where);
  if (!model) return model.error();
  // Plans for this runtime have no dropout and no modules that predict further tokens, even if the
  // model has them.
  model->hidden_dropout = model->attention_dropout = 0;
  HuggingFaceConfig config;
  config.prediction_modules = std::exchange(model->prediction_modules, 0);
  const std::string& family = model->architecture;
  const std::optional<HuggingFaceNames> names = names_of(family);
  if (!names) {
    return input_error(std::string(where) + " at /model_type", "'" + family + "' is not executed",
                       "one of deepseek_v2, deepseek_v3, glm4_moe, gpt2, llama, mistral, mixtral, "
                       "qwen2, qwen2_moe, qwen3, qwen3_moe");
  }
  if (const auto why = not_executed(*model, kOneToken)) {
    return input_error(std::string(where), why->found, why->expected);
  }
  const double part = model->constants ? model->constants->rope.rotated_part : 1;
  if (part != 1 && *names != HuggingFaceNames::deepseek) {
    return input_error(std::string(where),
                       fmt::format("partial rotary embedding ({:g} of each head)", part),
                       "whole heads, as transformers rotates those of " + family);
  }
  config.names = *names;
  config.model = std::move(*model);
  return config;
}

Result<std::string> huggingface_config(const ModelSpec& model, Element element,
                                       HuggingFaceNames& names) {
  EXPECTS(!not_executed(model, kOneToken), "a model that is executed");
  const LlamaFamily* const llama = llama_family(model);
  if (llama == nullptr && !is_gpt2(model)) {
    return input_error(model.name, "no HuggingFace family has this model's shapes",
                       "those of GPT-2, Llama, Qwen2, Qwen3, Mixtral (experts in every layer, as "
                       "wide as ffn_hidden), Qwen2-MoE, Qwen3-MoE, GLM-4.5, DeepSeek-V2 or -V3");
  }
  names = names_of(llama != nullptr ? llama->model_type : "gpt2").value();
  Json json = llama != nullptr ? llama_json(model, *llama) : gpt2_json(model);
  // The class default of GPT-2 is its own end of text, which other vocabularies need not have.
  constexpr int kEndOfText = 50256;
  const bool foreign = llama == nullptr && model.vocab <= kEndOfText;
  if (foreign) json["bos_token_id"] = json["eos_token_id"] = nullptr;
  json["torch_dtype"] = element == Element::bf16  ? "bfloat16"
                        : element == Element::f64 ? "float64"
                                                  : "float32";
  return json.dump(2) + "\n";
}

}  // namespace echelon
