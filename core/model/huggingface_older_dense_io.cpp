// Source of keys, defaults and shapes: transformers 5.24, models/FAMILY/configuration_FAMILY.py and
// modeling_FAMILY.py.
#include "core/model/huggingface_older_dense_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// Heads as wide as the hidden width together.
void share_hidden_width(JsonReader& reader, ModelSpec& model, const char* key) {
  if (model.hidden % model.heads != 0) {
    reader.fail(key, fmt::format("{} heads do not divide the width {}", model.heads, model.hidden),
                "a divisor of the width");
  }
  model.head_dim = std::max(1, model.hidden / model.heads);
}

/// An error unless the key is missing or has this value, the only one with a price.
void require(JsonReader& reader, const char* key, bool only, const char* words) {
  if (reader.boolean_or(key, only) != only) {
    reader.fail(key, fmt::format("{}: {}", !only, words), only ? "true" : "false");
  }
}

void read_clip(JsonReader& reader, ModelSpec& model) {
  const Json* clip = reader.member("clip_qkv");
  if (clip != nullptr && !clip->is_null()) add_arithmetic(model, "clipped queries, keys, values");
}

/// MPT's object attn_config; all that the class builds is attention with ALiBi.
void read_mpt_attention(JsonReader& reader, ModelSpec& model) {
  constexpr const char* kKey = "attn_config";
  const Json* object = reader.member(kKey);
  if (object == nullptr || object->is_null()) return;
  JsonReader inner(*object, reader.where(), "/" + std::string(kKey));
  inner.ignore_rest();
  if (!inner.failed()) {
    model.attention_dropout = inner.number_or("attn_pdrop", 0, 1, 0);
    read_clip(inner, model);
    require(inner, "alibi", true, "learned positions, which the class does not build");
    require(inner, "qk_ln", false, "norms of queries and keys, which the class does not build");
    require(inner, "prefix_lm", false, "attention within a prefix in both directions");
    const std::string kind = inner.string_or("attn_type", "multihead_attention");
    if (kind != "multihead_attention") {
      inner.fail("attn_type", "'" + kind + "', which the class does not build",
                 "multihead_attention");
    }
    if (inner.has("softmax_scale")) add_arithmetic(model, "attention scores of another scale");
  }
  if (const Status read = inner.finish(); !read) {
    const std::string& place = read.error().where;
    const std::string within = place.substr(place.rfind('/') + 1);
    reader.fail(kKey, (within == kKey ? "" : within + " ") + read.error().found,
                read.error().expected);
  }
}

}  // namespace

void read_bloom(JsonReader& reader, ModelSpec& model) {
  const bool old_width = !reader.has("hidden_size") && reader.has("n_embed");
  const bool old_heads = !reader.has("n_head") && reader.has("num_attention_heads");
  model.layers = small(reader.integer("n_layer", 1, kMaxLayers));
  model.hidden = small(reader.integer(old_width ? "n_embed" : "hidden_size", 1, kMaxHidden));
  model.heads = small(reader.integer(old_heads ? "num_attention_heads" : "n_head", 1, kMaxHeads));
  model.kv_heads = model.heads;
  share_hidden_width(reader, model, old_heads ? "num_attention_heads" : "n_head");
  model.ffn_hidden = small(std::int64_t{4} * model.hidden);
  model.vocab = small(reader.integer("vocab_size", 1, kMaxVocab));
  constexpr int kTrainedOn = 2048;  // ALiBi has no table; BLOOM was trained at 2048
  model.max_positions = small(reader.integer_or("seq_length", 1, kMaxPositions, kTrainedOn));
  model.normalization = Normalization::layer_norm;
  model.position = PositionEmbedding::alibi;
  model.activation = Activation::gelu;
  model.gated_mlp = false;
  model.embedding_norm = true;
  read_norm_epsilon(reader, model, "layer_norm_epsilon", 1e-5);
  if (reader.boolean_or("apply_residual_connection_post_layernorm", false)) {
    add_arithmetic(model, "residuals taken after the norm");
  }
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  read_dropout(reader, model);
  // How scores are computed, and a second name of n_head.
  reader.ignore({"attention_softmax_in_fp32", "masked_softmax_fusion", "num_attention_heads",
                 "slow_but_exact", "skip_bias_add", "skip_bias_add_qkv", "offset_alibi",
                 "bias_dropout_fusion", "unk_token_id", "n_inner"});
}

/// Falcon: 7B with one key-value head, 40B and 180B with groups and a norm for each branch, the
/// first ones with ALiBi and branches one after the other.
void read_falcon(JsonReader& reader, ModelSpec& model) {
  const bool old_width = !reader.has("hidden_size") && reader.has("n_embed");
  model.layers = small(reader.integer("num_hidden_layers", 1, kMaxLayers));
  model.hidden = small(reader.integer(old_width ? "n_embed" : "hidden_size", 1, kMaxHidden));
  model.heads = small(reader.integer("num_attention_heads", 1, kMaxHeads));
  share_hidden_width(reader, model, "num_attention_heads");
  const bool grouped = reader.boolean_or("new_decoder_architecture", false);
  const bool one = reader.boolean_or("multi_query", true);
  const int stated = small(reader.integer_or("num_kv_heads", 1, kMaxHeads, model.heads));
  model.kv_heads = grouped ? stated : one ? 1 : model.heads;
  model.ffn_hidden =
      small(reader.integer_or("ffn_hidden_size", 1, kMaxFfn, 4 * std::int64_t{model.hidden}));
  model.vocab = small(reader.integer("vocab_size", 1, kMaxVocab));
  constexpr int kTrainedOn = 2048;  // rotary positions and ALiBi have no table
  model.max_positions =
      small(reader.integer_or("max_position_embeddings", 1, kMaxPositions, kTrainedOn));
  model.normalization = Normalization::layer_norm;
  read_norm_epsilon(reader, model, "layer_norm_epsilon", 1e-5);
  if (reader.boolean_or("alibi", false)) model.position = PositionEmbedding::alibi;
  read_rope(reader, model);
  if (!reader.has("activation")) {
    add_arithmetic(model, "activation 'gelu'; the runtime computes gelu_new (the tanh form)");
  }
  model.activation = read_activation(reader, "activation", Activation::gelu, model);
  model.gated_mlp = false;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  const bool bias = reader.boolean_or("bias", false);
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = bias;
  const bool parallel = reader.boolean_or("parallel_attn", true);
  const std::int64_t norms = reader.integer_or("num_ln_in_parallel_attn", 1, 2, grouped ? 2 : 1);
  if (parallel && norms == 2) {
    add_arithmetic(model, "attention and MLP of the same input, with a norm each");
  } else {
    model.parallel_block = parallel;
  }
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  read_dropout(reader, model);
  reader.ignore({"num_kv_heads", "multi_query", "rotary"});
}

void read_gpt2(JsonReader& reader, ModelSpec& model) {
  read_gpt_widths(reader, model);
  const bool old = !reader.has("n_positions") && reader.has("n_ctx");
  model.max_positions = small(reader.integer(old ? "n_ctx" : "n_positions", 1, kMaxPositions));
  model.normalization = Normalization::layer_norm;
  model.position = PositionEmbedding::learned;
  model.activation = read_activation(reader, "activation_function", Activation::gelu, model);
  model.gated_mlp = false;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  read_norm_epsilon(reader, model, "layer_norm_epsilon", 1e-5);
  if (!reader.boolean_or("scale_attn_weights", true)) {
    add_arithmetic(model, "attention scores that are not scaled (scale_attn_weights)");
  }
  if (reader.boolean_or("scale_attn_by_inverse_layer_idx", false)) {
    add_arithmetic(model, "attention scores scaled by layer (scale_attn_by_inverse_layer_idx)");
  }
  // n_ctx repeats the context length; the planner models only two dropouts.
  reader.ignore({"n_ctx", "embd_pdrop"});
  constexpr double kClassDefault = 0.1;
  model.hidden_dropout = reader.number_or("resid_pdrop", 0, 1, kClassDefault);
  model.attention_dropout = reader.number_or("attn_pdrop", 0, 1, kClassDefault);
}

/// StarCoder and SantaCoder: GPT-2's block with one key-value head.
void read_gpt_bigcode(JsonReader& reader, ModelSpec& model) {
  read_gpt2(reader, model);
  if (reader.boolean_or("multi_query", true)) model.kv_heads = 1;
  if (reader.boolean_or("add_cross_attention", false)) {
    reader.fail("add_cross_attention", "true", "false: cross-attention has no price here");
  }
  reader.ignore({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
                 "num_key_value_heads", "inference_runner", "max_batch_size", "max_sequence_length",
                 "pad_key_length", "pre_allocate_kv_cache", "validate_runner_input"});
}

/// GPT-Neo: every second layer has a window; scores are not scaled.
void read_gpt_neo(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer("num_layers", 1, kMaxLayers));
  model.hidden = small(reader.integer("hidden_size", 1, kMaxHidden));
  model.heads = model.kv_heads = small(reader.integer("num_heads", 1, kMaxHeads));
  share_hidden_width(reader, model, "num_heads");
  model.ffn_hidden =
      small(reader.integer_or("intermediate_size", 1, kMaxFfn, 4 * std::int64_t{model.hidden}));
  model.vocab = small(reader.integer("vocab_size", 1, kMaxVocab));
  model.max_positions = small(reader.integer("max_position_embeddings", 1, kMaxPositions));
  model.normalization = Normalization::layer_norm;
  read_norm_epsilon(reader, model, "layer_norm_epsilon", 1e-5);
  model.position = PositionEmbedding::learned;
  model.activation = read_activation(reader, "activation_function", Activation::gelu, model);
  model.gated_mlp = false;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.attention_output_bias = model.mlp_bias = true;
  add_arithmetic(model, "attention scores that are not scaled");
  constexpr const char* kKinds = "attention_layers";  // attention_types lists them in short
  const Json* kinds = reader.member(kKinds);
  int windows = model.layers / 2;
  if (kinds != nullptr && !kinds->is_null()) {
    const bool fits = kinds->is_array() && kinds->size() == static_cast<std::size_t>(model.layers);
    if (!fits) {
      reader.fail(kKinds, "not a list with an entry for each layer",
                  fmt::format("a list of {} entries, each global or local", model.layers));
      return;
    }
    windows = small(std::count(kinds->begin(), kinds->end(), Json("local")));
  }
  if (windows > 0) {
    model.sliding_window = small(reader.integer_or("window_size", 1, kMaxPositions, 256));
    model.windowed_layers = windows;
  }
  model.hidden_dropout = reader.number_or("resid_dropout", 0, 1, 0);
  read_dropout(reader, model);
  reader.ignore({"attention_types", "embed_dropout", "classifier_dropout", "window_size"});
}

/// MPT: LayerNorm without bias, ALiBi.
void read_mpt(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer("n_layers", 1, kMaxLayers));
  model.hidden = small(reader.integer("d_model", 1, kMaxHidden));
  model.heads = model.kv_heads = small(reader.integer("n_heads", 1, kMaxHeads));
  share_hidden_width(reader, model, "n_heads");
  constexpr std::int64_t kMostTimes = 64;
  const std::int64_t times = reader.integer_or("expansion_ratio", 1, kMostTimes, 4);
  if (times * model.hidden > kMaxFfn) {
    reader.fail("expansion_ratio", fmt::format("an MLP of {}", times * model.hidden),
                fmt::format("an MLP of at most {}", kMaxFfn));
    return;
  }
  model.ffn_hidden = small(times * model.hidden);
  model.vocab = small(reader.integer("vocab_size", 1, kMaxVocab));
  model.max_positions = small(reader.integer("max_seq_len", 1, kMaxPositions));
  model.position = PositionEmbedding::alibi;
  read_norm_epsilon(reader, model, "layer_norm_epsilon", 1e-5);
  add_arithmetic(model, "norms that subtract the mean");
  model.activation = Activation::gelu;
  add_arithmetic(model, "activation 'gelu'; the runtime computes gelu_new (the tanh form)");
  model.gated_mlp = false;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  require(reader, "no_bias", true, "biases, which the class does not build");
  read_mpt_attention(reader, model);
  model.hidden_dropout = reader.number_or("resid_pdrop", 0, 1, 0);
  // How the published code initializes and computes; the class builds what stands above.
  reader.ignore({"emb_pdrop", "learned_pos_emb", "norm_type", "init_device", "embedding_fraction",
                 "logit_scale", "init_config", "ffn_config", "fc_type", "verbose"});
}

/// The first OLMo: its norms have neither gains, which the count of parameters includes, nor
/// biases.
void read_olmo(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::mean_multi_head);
  read_head_dim(reader, model);
  model.activation = read_activation(reader, "hidden_act", Activation::silu, model);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  constexpr double kOfTheCode = 1e-5;
  model.constants->norm_epsilon = kOfTheCode;
  add_arithmetic(model, "norms that subtract the mean");
  add_arithmetic(model, "norms without gains, which are counted");
  read_rope(reader, model);
  read_dropout(reader, model);
  read_attention_bias(reader, model);
  read_clip(reader, model);
}

/// OPT, but for its 350M, whose embeddings are narrower and whose norms come behind.
void read_opt(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model, false);
  model.kv_heads = model.heads;
  share_hidden_width(reader, model, "num_attention_heads");
  model.ffn_hidden = small(reader.integer("ffn_dim", 1, kMaxFfn));
  read_positions(reader, model);
  model.normalization = Normalization::layer_norm;
  model.position = PositionEmbedding::learned;
  add_arithmetic(model, "learned positions counted from two, of which two more are not counted");
  model.activation = read_activation(reader, "activation_function", Activation::relu, model);
  model.gated_mlp = false;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  const bool bias = reader.boolean_or("enable_bias", true);
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = bias;
  const std::int64_t width = reader.integer_or("word_embed_proj_dim", 1, kMaxHidden, model.hidden);
  if (!reader.failed() && width != model.hidden) {
    reader.fail("word_embed_proj_dim",
                fmt::format("word embeddings of {} with a hidden width of {}", width, model.hidden),
                "the hidden width; projections between them have no price here");
  }
  require(reader, "do_layer_norm_before", true, "norms behind attention and MLP");
  require(reader, "layer_norm_elementwise_affine", true, "norms without gains");
  require(reader, "_remove_final_layer_norm", false, "no norm before the head");
  model.constants->norm_epsilon = 1e-5;
  model.hidden_dropout = reader.number_or("dropout", 0, 1, 0.1);
  read_dropout(reader, model);
  if (reader.number_or("layerdrop", 0, 1, 0) > 0)
    add_arithmetic(model, "layers left out at random");
  reader.ignore({"init_std", "activation_dropout"});
}

/// Persimmon, and the language model of Fuyu.
void read_persimmon(JsonReader& reader, ModelSpec& model) {
  read_layer_norm_block(reader, model);
  model.kv_heads = model.heads;
  if (!reader.has("hidden_act")) model.activation = Activation::squared_relu;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  model.qk_norm = reader.boolean_or("qk_layernorm", true);
  read_norm_epsilon(reader, model, "layer_norm_eps", 1e-5);
  read_rope(reader, model, {.rotated_part = 0.5});
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  read_dropout(reader, model);
}

/// StableLM 2 and 3B-4E1T; norms of queries and keys have gains for each head in its 12B.
void read_stablelm(JsonReader& reader, ModelSpec& model) {
  read_layer_norm_block(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::mean_multi_head);
  if (!reader.has("hidden_act")) model.activation = Activation::silu;
  model.gated_mlp = true;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  model.qkv_bias = reader.boolean_or("use_qkv_bias", false);
  model.parallel_block = reader.boolean_or("use_parallel_residual", false);
  require(reader, "qk_layernorm", false, "norms of queries and keys without biases, one per head");
  read_norm_epsilon(reader, model, "layer_norm_eps", 1e-5);
  read_rope(reader, model, {.rotated_part = 0.25});
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  read_dropout(reader, model);
}

}  // namespace echelon
