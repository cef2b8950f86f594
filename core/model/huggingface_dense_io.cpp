// Source of keys, defaults and shapes: transformers, models/FAMILY/configuration_FAMILY.py and
// modeling_FAMILY.py; of InternLM2 and 3 the code in the repositories of their models.
#include "core/model/huggingface_dense_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// LayerNorm without bias: the parameters of RMSNorm.
void read_norm_without_bias(JsonReader& reader, ModelSpec& model) {
  read_norm_epsilon(reader, model, "layer_norm_eps", 1e-5);
  add_arithmetic(model, "norms that subtract the mean");
}

/// Every `pattern`-th layer attends to all tokens, without rotary positions; null: every layer.
void read_mixed_windows(JsonReader& reader, ModelSpec& model, std::int64_t pattern) {
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, model.layers - model.layers / small(pattern));
  if (model.windowed_layers > 0) {
    add_arithmetic(model, "layers with full attention without rotary positions");
  }
}

}  // namespace

void read_cohere_block(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::mean_multi_head);
  read_head_dim(reader, model);
  model.activation = read_activation(reader, "hidden_act", Activation::silu, model);
  model.parallel_block = true;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  read_norm_without_bias(reader, model);
  read_rope(reader, model);
  add_arithmetic(model, "rotary pairs next to each other");
  read_attention_bias(reader, model);
  read_dropout(reader, model);
  const double scale = reader.number_or("logit_scale", 0, 1e9, 0.0625);
  if (scale != 1) add_arithmetic(model, fmt::format("logits multiplied by {:g}", scale));
}

void read_apertus(JsonReader& reader, ModelSpec& model) {
  read_llama_like(
      reader, model,
      {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5, .rope = {.theta = 12e6}});
  read_attention_bias(reader, model);
  model.gated_mlp = false;
  model.qk_norm = true;
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  reader.ignore({"qk_norm", "post_norm"});  // true and false in every model
}

void read_arcee(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  if (!reader.has("hidden_act")) model.activation = Activation::squared_relu;
  model.gated_mlp = false;
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
}

/// Command R. In its larger models each head has a norm of its own for queries and keys.
void read_cohere(JsonReader& reader, ModelSpec& model) {
  read_cohere_block(reader, model);
  model.qk_norm_all_heads = reader.boolean_or("use_qk_norm", false);
  if (model.qk_norm_all_heads) {
    add_arithmetic(model, "norms of queries and keys of each head, with gains of all heads");
  }
}

/// Command A and Command R7B.
void read_cohere2(JsonReader& reader, ModelSpec& model) {
  read_cohere_block(reader, model);
  read_mixed_windows(reader, model, reader.integer_or("sliding_window_pattern", 1, kMaxLayers, 4));
  // What the code does whatever they say.
  reader.ignore({"order_of_interleaved_layers", "position_embedding_type", "rotary_pct",
                 "use_embedding_sharing", "use_gated_activation", "use_parallel_block"});
}

void read_ernie4_5(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.theta = 500'000}});
  require_head_dim(reader);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qkv_bias = reader.boolean_or("use_bias", false);
  model.attention_output_bias = model.mlp_bias = model.qkv_bias;
}

/// Norms follow attention and MLP. The pattern of windows is a number, or letters: "LLLG".
void read_exaone4(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5});
  model.qk_norm = true;
  add_arithmetic(model, "norms after attention and MLP instead of before");
  constexpr const char* kPattern = "sliding_window_pattern";
  const Json* pattern = reader.member(kPattern);
  std::int64_t every = 4;
  if (pattern != nullptr && pattern->is_string()) {
    const std::string letters = pattern->get<std::string>();
    if (letters.empty() || letters.find('G') != letters.size() - 1) {
      reader.fail(kPattern, "letters that do not end with the only G",
                  "a number, or letters such as LLLG");
      return;
    }
    every = static_cast<std::int64_t>(letters.size());
  } else if (pattern != nullptr && !pattern->is_null()) {
    every = reader.integer(kPattern, 1, kMaxLayers);
  }
  read_mixed_windows(reader, model, every);
}

/// GLM-4: its output projection has no bias.
void read_glm(JsonReader& reader, ModelSpec& model) {
  constexpr double kEpsilon = 1.5625e-7;
  read_llama_like(reader, model, {.norm_epsilon = kEpsilon, .rope = {.rotated_part = 0.5}});
  require_head_dim(reader);
  model.qkv_bias = reader.boolean_or("attention_bias", true);
  add_arithmetic(model, "rotary pairs next to each other");
}

/// GLM-4-0414, which has norms after attention and MLP too.
void read_glm4(JsonReader& reader, ModelSpec& model) {
  read_glm(reader, model);
  model.post_norms = true;
}

/// GLM-4.1V: GLM-4-0414's block, whose heads share the hidden width.
void read_glm4v(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5});
  model.qkv_bias = model.post_norms = true;
  reader.ignore({"attention_bias"});  // true in every model, and for the class
  add_arithmetic(model, "rotary pairs next to each other");
}

/// GPT-NeoX and Pythia.
void read_gpt_neox(JsonReader& reader, ModelSpec& model) {
  read_layer_norm_block(reader, model);
  model.kv_heads = model.heads;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  model.qkv_bias = reader.boolean_or("attention_bias", true);
  model.attention_output_bias = model.qkv_bias;
  model.mlp_bias = true;
  read_norm_epsilon(reader, model, "layer_norm_eps", 1e-5);
  const double theta = reader.number_or("rotary_emb_base", kMinTheta, kMaxTheta, 10'000);
  const double part = reader.number_or("rotary_pct", 0, 1, 0.25);
  read_rope(reader, model, {.theta = theta, .rotated_part = part});
  if (reader.boolean_or("use_parallel_residual", true)) {
    add_arithmetic(model, "attention and MLP of the same input, with a norm each");
  }
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  read_dropout(reader, model);
  reader.ignore(
      {"attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout"});  // unused
}

void read_gptj(JsonReader& reader, ModelSpec& model) {
  read_gpt_widths(reader, model);
  model.max_positions = small(reader.integer("n_positions", 1, kMaxPositions));
  model.normalization = Normalization::layer_norm;
  model.activation = read_activation(reader, "activation_function", Activation::gelu, model);
  model.gated_mlp = false;
  model.parallel_block = true;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  model.mlp_bias = model.head_bias = true;
  read_norm_epsilon(reader, model, "layer_norm_epsilon", 1e-5);
  constexpr int kClassDefault = 64;
  const std::int64_t rotated =
      reader.integer_or("rotary_dim", 1, model.head_dim, std::min(kClassDefault, model.head_dim));
  model.constants->rope.rotated_part = static_cast<double>(rotated) / model.head_dim;
  add_arithmetic(model, "rotary pairs next to each other");
  reader.ignore({"n_ctx", "embd_pdrop", "rotary", "scale_attn_weights"});
  model.hidden_dropout = reader.number_or("resid_pdrop", 0, 1, 0);
  model.attention_dropout = reader.number_or("attn_pdrop", 0, 1, 0);
}

void read_granite_factors(JsonReader& reader, ModelSpec& model) {
  constexpr std::pair<const char*, const char*> kFactors[] = {
      {"embedding_multiplier", "word embeddings multiplied by {:g}"},
      {"residual_multiplier", "residuals multiplied by {:g}"},
      {"attention_multiplier", "attention scores multiplied by {:g}"},
      {"logits_scaling", "logits divided by {:g}"}};
  for (const auto& [key, words] : kFactors) {
    const double factor = reader.number_or(key, 0, 1e9, 1);
    // Scores are multiplied by it instead of by one over the root of the head's width.
    const double usual = std::string_view(key) == "attention_multiplier"
                             ? 1 / std::sqrt(static_cast<double>(model.head_dim))
                             : 1;
    if (std::abs(factor - usual) > 1e-6 * usual)
      add_arithmetic(model, fmt::format(fmt::runtime(words), factor));
  }
}

void read_granite(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  read_granite_factors(reader, model);
}

void read_hunyuan_dense(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  read_attention_bias(reader, model);
  model.qk_norm = reader.boolean_or("use_qk_norm", true);
  if (model.qk_norm) add_arithmetic(model, "norms of query and key heads after the rotation");
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  reader.ignore({"attention_head_dim"});  // repeats head_dim
}

void read_internlm2(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  model.qkv_bias = reader.boolean_or("bias", true);
  model.attention_output_bias = model.qkv_bias;
}

void read_internlm3(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  model.qkv_bias = reader.boolean_or("qkv_bias", false);
  model.attention_output_bias = model.mlp_bias = reader.boolean_or("bias", false);
}

void read_ministral3(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5});
  require_head_dim(reader);
  read_window(reader, model, 0, model.layers);
}

void read_seed_oss(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  require_head_dim(reader);
  model.qkv_bias = reader.boolean_or("attention_bias", true);
  model.attention_output_bias = reader.boolean_or("attention_out_bias", false);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  model.hidden_dropout = reader.number_or("residual_dropout", 0, 1, 0.1);
  model.attention_dropout = reader.number_or("attention_dropout", 0, 1, 0.1);
}

/// Every fourth layer has no rotary positions; with use_sliding_window these have windows.
void read_smollm3(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  const std::int64_t interval = reader.integer_or("no_rope_layer_interval", 1, kMaxLayers, 4);
  int without = model.layers / small(interval);
  const Json* rotary = reader.member("no_rope_layers");  // 1: rotary, despite the name
  if (rotary != nullptr && rotary->is_array()) {
    without = small(std::count(rotary->begin(), rotary->end(), Json(0)));
  }
  if (without > 0) add_arithmetic(model, "layers without rotary positions");
  const bool windowed = reader.boolean_or("use_sliding_window", false);
  reader.ignore({"sliding_window", "layer_types", "max_window_layers"});
  if (windowed) read_window(reader, model, 0, without);
}

void read_starcoder2(JsonReader& reader, ModelSpec& model) {
  read_layer_norm_block(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::are_an_error);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qkv_bias = reader.boolean_or("use_bias", true);
  model.attention_output_bias = model.mlp_bias = model.qkv_bias;
  read_norm_epsilon(reader, model, "norm_epsilon", 1e-5);
  read_rope(reader, model);
  read_window(reader, model, 0, model.layers);
  for (const auto& [key, only] :
       {std::pair{"mlp_type", "default"}, std::pair{"norm_type", "layer_norm"}}) {
    const std::string found = reader.string_or(key, only);
    if (found != only) reader.fail(key, "'" + found + "'", only);
  }
  model.hidden_dropout = reader.number_or("residual_dropout", 0, 1, 0);
  read_dropout(reader, model);
  reader.ignore({"embedding_dropout"});  // the planner models two dropouts
}

}  // namespace echelon
