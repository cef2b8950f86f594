// config.json: what of it shapes do not say, and writing one.
#include <fmt/format.h>

#include "core/json_io.hpp"
#include "core/model_io.hpp"
#include "runtime/weights/huggingface.hpp"

namespace echelon {
namespace {

constexpr double kDefaultTheta = 10000;  // of every family's configuration class

/// Rotation at another speed or of a part of the head is not computed.
void read_rotation(JsonReader& reader, ModelConstants& constants) {
  constants.rope_theta = reader.number_or("rope_theta", 1e-9, 1e12, kDefaultTheta);
  if (reader.number_or("partial_rotary_factor", 0, 1, 1) != 1) {
    reader.fail("partial_rotary_factor", "a part of each head is rotated", "1");
  }
  // transformers 5 keeps both in rope_parameters; before, scaling was rope_scaling.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    JsonReader inner(*reader.member(key), reader.where(), "/" + std::string(key));
    inner.ignore_rest();
    const char* type = inner.has("rope_type") ? "rope_type" : "type";
    const std::string word = inner.string_or(type, "default");
    if (word != "default") {
      inner.fail(type, "'" + word + "' scaling of the rotary embedding", "'default': no scaling");
    }
    constants.rope_theta = inner.number_or("rope_theta", 1e-9, 1e12, constants.rope_theta);
    const Status read = inner.finish();
    if (!read) reader.fail(key, read.error().found, read.error().expected);
  }
}

void read_gpt2_constants(JsonReader& reader, ModelConstants& constants) {
  constexpr double kClassDefault = 1e-5;
  constants.norm_eps = reader.number_or("layer_norm_epsilon", 0, 1, kClassDefault);
  const std::string word = reader.string_or("activation_function", "gelu_new");
  if (word != "gelu_new" && word != "gelu_pytorch_tanh" && word != "gelu_fast") {
    reader.fail("activation_function", "'" + word + "'",
                "gelu_new, gelu_pytorch_tanh or gelu_fast: the tanh form is what is computed");
  }
  if (!reader.boolean_or("scale_attn_weights", true)) {
    reader.fail("scale_attn_weights", "scores are not scaled", "true");
  }
  if (reader.boolean_or("scale_attn_by_inverse_layer_idx", false)) {
    reader.fail("scale_attn_by_inverse_layer_idx", "scores are scaled by layer", "false");
  }
}

void read_llama_constants(JsonReader& reader, ModelConstants& constants) {
  constexpr double kClassDefault = 1e-6;
  constants.norm_eps = reader.number_or("rms_norm_eps", 0, 1, kClassDefault);
  read_rotation(reader, constants);
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

Json gpt2_json(const ModelSpec& m, const ModelConstants& constants) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_layer", m.layers},
          {"n_embd", m.hidden},
          {"n_head", m.heads},
          {"n_inner", m.ffn_hidden},
          {"n_positions", m.max_positions},
          {"vocab_size", m.vocab},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", constants.norm_eps},
          {"resid_pdrop", m.hidden_dropout},
          {"embd_pdrop", m.hidden_dropout},
          {"attn_pdrop", m.attention_dropout},
          {"tie_word_embeddings", m.tied_embeddings}};
}

Json llama_json(const ModelSpec& m, const ModelConstants& constants, bool qwen2) {
  Json json{{"architectures", {qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
            {"model_type", qwen2 ? "qwen2" : "llama"},
            {"num_hidden_layers", m.layers},
            {"hidden_size", m.hidden},
            {"intermediate_size", m.ffn_hidden},
            {"num_attention_heads", m.heads},
            {"num_key_value_heads", m.kv_heads},
            {"head_dim", m.head_dim},
            {"max_position_embeddings", m.max_positions},
            {"vocab_size", m.vocab},
            {"hidden_act", "silu"},
            {"rms_norm_eps", constants.norm_eps},
            {"rope_theta", constants.rope_theta},
            {"attention_dropout", m.attention_dropout},
            {"tie_word_embeddings", m.tied_embeddings}};
  if (qwen2) {
    json["use_sliding_window"] = false;
  } else {
    json["attention_bias"] = m.qkv_bias;
    json["mlp_bias"] = m.mlp_bias;
  }
  return json;
}

}  // namespace

Result<HuggingFaceConfig> parse_huggingface_config(std::string_view json, std::string_view where) {
  Result<ModelSpec> model = parse_model(json, where);
  if (!model) return model.error();
  const Result<Json> document = parse_json(json, where);
  if (!document) return document.error();
  HuggingFaceConfig config;
  config.model = std::move(*model);
  JsonReader reader(*document, std::string(where));
  reader.ignore_rest();
  const std::string& family = config.model.architecture;
  if (family == "gpt2") {
    config.names = HuggingFaceNames::gpt2;
    read_gpt2_constants(reader, config.constants);
  } else if (family == "llama" || family == "mistral" || family == "qwen2") {
    read_llama_constants(reader, config.constants);
  } else {
    reader.fail("model_type", "'" + family + "' is not executed",
                "one of gpt2, llama, mistral, qwen2");
  }
  const Status read = reader.finish();
  if (!read) return read.error();
  return config;
}

Result<std::string> huggingface_config(const ModelSpec& model, const ModelConstants& constants,
                                       Element element, HuggingFaceNames& names) {
  // Llama's attention_bias is all four or none; Qwen2 has those of q, k and v.
  const bool qwen2 = model.qkv_bias && !model.attention_output_bias && !model.mlp_bias;
  const bool llama =
      is_llama_like(model) && (qwen2 || model.qkv_bias == model.attention_output_bias);
  if (!llama && !is_gpt2(model)) {
    return input_error(model.name, "no HuggingFace family has this model's shapes",
                       "those of GPT-2, Llama or Qwen2");
  }
  names = llama ? HuggingFaceNames::llama : HuggingFaceNames::gpt2;
  Json json = llama ? llama_json(model, constants, qwen2) : gpt2_json(model, constants);
  // The class default of GPT-2 is its own end of text, which other vocabularies need not have.
  constexpr int kEndOfText = 50256;
  if (!llama && model.vocab <= kEndOfText) json["bos_token_id"] = json["eos_token_id"] = nullptr;
  json["torch_dtype"] = element == Element::bf16  ? "bfloat16"
                        : element == Element::f64 ? "float64"
                                                  : "float32";
  return json.dump(2) + "\n";
}

}  // namespace echelon
