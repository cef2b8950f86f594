// Source of keys, defaults and shapes: transformers 5.24, models/FAMILY/configuration_FAMILY.py and
// modeling_FAMILY.py; of EXAONE 3 and MiniCPM3 also the keys of the published files.
#include "core/model/huggingface_recent_dense_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/model/huggingface_dense_io.hpp"
#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// Every fourth layer, from the first, has full attention.
int windowed_but_each_fourth(const ModelSpec& model) {
  return model.layers - (model.layers + 3) / 4;
}

/// One rotary base for each layer, 0 for none; it replaces that of all layers.
void read_layer_bases(JsonReader& reader, ModelSpec& model) {
  constexpr const char* kKey = "layer_rope_theta";
  const Json* bases = reader.member(kKey);
  if (bases == nullptr || bases->is_null()) return;
  const bool fits =
      bases->is_array() && bases->size() == static_cast<std::size_t>(model.layers) &&
      std::ranges::all_of(*bases, [](const Json& each) {
        return each.is_number() && each.get<double>() >= 0 && each.get<double>() <= kMaxTheta;
      });
  if (!fits) {
    reader.fail(kKey, "not a list with a base for each layer",
                fmt::format("a list of {} numbers between 0 and {:g}", model.layers, kMaxTheta));
    return;
  }
  double base = 0;
  bool without = false;
  bool differ = false;
  for (const Json& each : *bases) {
    const auto number = each.get<double>();
    without = without || number == 0;
    differ = differ || (number > 0 && base > 0 && number != base);
    if (number > 0) base = number;
  }
  if (base == 0) {
    model.position = PositionEmbedding::none;
    return;
  }
  model.constants->rope.theta = base;
  if (without) add_arithmetic(model, "layers without rotary positions");
  if (differ) add_arithmetic(model, "rotary embeddings that differ between layers");
}

}  // namespace

/// Apertus 1.5: the vocabulary of its input may be larger than that of its output.
void read_apertus1p5(JsonReader& reader, ModelSpec& model) {
  read_apertus(reader, model);
  constexpr const char* kKey = "output_vocab_size";
  const Json* kept = reader.member(kKey);
  if (kept == nullptr || kept->is_null()) return;
  const std::int64_t outputs = reader.integer(kKey, 1, kMaxVocab);
  if (reader.failed() || outputs == model.vocab) return;
  reader.fail(kKey, fmt::format("a head of {} of {} tokens", outputs, model.vocab),
              "null: a head of the whole vocabulary; a part of it has no price here");
}

/// Code World Model. The class extends its context where the file states no rotary embedding.
void read_cwm(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.theta = 1e6}});
  require_head_dim(reader);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  if (!reader.has("rope_parameters") && !reader.has("rope_scaling")) {
    RotaryEmbedding& rope = model.constants->rope;
    rope.scaling = RopeScaling::llama3;
    rope.factor = 16;
    rope.original_positions = 8192;
  }
  constexpr int kClassDefault = 8192;
  read_window(reader, model, kClassDefault, windowed_but_each_fourth(model));
}

/// EXAONE 3 and 3.5: Llama's block. The published files have keys of their own code.
void read_exaone(JsonReader& reader, ModelSpec& model) {
  const auto present = [&](const char* old, const char* key) {
    return reader.has(old) ? old : key;
  };
  model.layers = small(reader.integer(present("num_layers", "num_hidden_layers"), 1, kMaxLayers));
  model.hidden = small(reader.integer("hidden_size", 1, kMaxHidden));
  model.heads = small(reader.integer("num_attention_heads", 1, kMaxHeads));
  model.ffn_hidden = small(reader.integer("intermediate_size", 1, kMaxFfn));
  model.vocab = small(reader.integer("vocab_size", 1, kMaxVocab));
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::are_an_error);
  read_head_dim(reader, model);
  model.activation = read_activation(reader, present("activation_function", "hidden_act"),
                                     Activation::silu, model);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  read_norm_epsilon(reader, model, present("layer_norm_epsilon", "rms_norm_eps"), 1e-5);
  read_rope(reader, model, {.theta = 500'000});
  read_dropout(reader, model);
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  reader.ignore({"num_layers", "num_hidden_layers", "embed_dropout"});  // 0 in every model
}

void read_granite_windows(JsonReader& reader, ModelSpec& model) {
  model.attention_sinks = true;
  read_layer_bases(reader, model);
  constexpr int kClassDefault = 128;
  read_window(reader, model, kClassDefault, windowed_but_each_fourth(model));
}

void read_granite_swa(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  if (reader.lacks("tie_word_embeddings")) model.tied_embeddings = true;
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  read_granite_factors(reader, model);
  read_granite_windows(reader, model);
}

/// Kyutai's Helium: its output projection has no bias and reads the hidden width.
void read_helium(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head,
                   .norm_epsilon = 1e-8,
                   .rope = {.theta = 100'000}});
  if (!reader.failed() && model.query_width() != model.hidden) {
    reader.fail("head_dim",
                fmt::format("{} heads of {} with a hidden width of {}", model.heads, model.head_dim,
                            model.hidden),
                "heads that are as wide as the hidden state together");
    return;
  }
  model.qkv_bias = reader.boolean_or("attention_bias", false);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  add_arithmetic(model, "rotary pairs next to each other");
}

/// HyperCLOVA X: Granite's block; norms behind attention and MLP too, but for use_post_norm.
void read_hyperclovax(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  model.post_norms = reader.boolean_or("use_post_norm", true);
  constexpr double kMost = 1e9;
  const auto factor = [&](const char* key, const char* words, double usual) {
    const double found = reader.number_or(key, 0, kMost, usual);
    if (std::abs(found - usual) > 1e-6 * usual) {
      add_arithmetic(model, fmt::format("{} multiplied by {:g}", words, found));
    }
  };
  factor("embedding_multiplier", "word embeddings", 1);
  factor("residual_multiplier", "residuals", 1);
  factor("logits_scaling", "logits", 1);
  factor("attention_multiplier", "attention scores",
         1 / std::sqrt(static_cast<double>(model.head_dim)));
}

/// IQuest-Coder: Llama's block; no model has what its own code would do with these keys.
void read_iquestcoder(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5});
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  const Json* clip = reader.member("clip_qkv");
  if (clip != nullptr && !clip->is_null()) add_arithmetic(model, "clipped queries, keys, values");
  if (reader.boolean_or("use_sliding_window", false)) {
    reader.fail("use_sliding_window", "true, which transformers' iquestcoder does not have",
                "false");
  }
  reader.ignore({"sliding_window", "max_window_layers"});
}

/// Jais 2: layer norms and an MLP without gate, with biases.
void read_jais2(JsonReader& reader, ModelSpec& model) {
  read_layer_norm_block(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::mean_multi_head);
  if (!reader.has("hidden_act")) model.activation = Activation::squared_relu;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  model.qkv_bias = reader.boolean_or("attention_bias", true);
  model.attention_output_bias = model.qkv_bias;
  model.mlp_bias = reader.boolean_or("mlp_bias", true);
  read_norm_epsilon(reader, model, "layer_norm_eps", 1e-5);
  read_rope(reader, model);
  read_dropout(reader, model);
}

/// MiniCPM3: latent attention in front of dense MLPs; rotated pairs are half a head apart.
void read_minicpm3(JsonReader& reader, ModelSpec& model) {
  read_latent_block(reader, model,
                    {.tied_embeddings = true, .norm_epsilon = 1e-5, .hidden_value_heads = true});
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  add_arithmetic(model, "rotated pairs that are half a head apart in latent attention");
  constexpr double kMost = 1e9;
  const double embedding = reader.number_or("scale_emb", 0, kMost, 12);
  if (embedding != 1) {
    add_arithmetic(model, fmt::format("word embeddings multiplied by {:g}", embedding));
  }
  const auto number_unless_null = [&](const char* key, double usual, double none) {
    const Json* value = reader.member(key);
    const bool null = value != nullptr && value->is_null();
    return null ? none : reader.number_or(key, 0, kMost, usual);
  };
  const double root = std::sqrt(static_cast<double>(model.layers));
  const double residual = number_unless_null("scale_depth", 1.4, root) / root;
  if (residual != 1) add_arithmetic(model, fmt::format("residuals multiplied by {:g}", residual));
  const double base = number_unless_null("dim_model_base", 256, model.hidden);
  if (base != model.hidden) {
    add_arithmetic(model, fmt::format("logits divided by {:g} / {:g}",
                                      static_cast<double>(model.hidden), base));
  }
}

/// Ministral as transformers converts it: Mistral's block with a list of windows.
void read_ministral(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, model.layers);
}

/// Meta's Muse Glimmer: gated attention, norms before and behind both parts; every fourth layer,
/// from the last, has full attention without positions.
void read_muse_glimmer(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5});
  require_head_dim(reader);
  model.activation = read_activation(reader, "hidden_activation", Activation::silu, model);
  if (reader.boolean_or("attention_bias", false)) {
    reader.fail("attention_bias", "true: biases of all projections but the gate's", "false");
    return;
  }
  model.attention_output_gate = model.post_norms = true;
  add_arithmetic(model, "gains of norms counted from one");
  constexpr double kMost = 1e9;
  add_arithmetic(model, fmt::format("queries and keys divided by their norm, queries times {:g}",
                                    reader.number_or("qk_scale_factor", 0, kMost, 3.87)));
  add_arithmetic(model, fmt::format("logits capped at {:g}",
                                    reader.number_or("final_logit_softcapping", 0, kMost, 20)));
  add_arithmetic(model, fmt::format("logits multiplied by {:g}",
                                    reader.number_or("output_multiplier", 0, kMost, 0.196116)));
  read_layer_bases(reader, model);
  constexpr int kClassDefault = 2048;
  read_window(reader, model, kClassDefault, model.layers - (model.layers + 3) / 4);
  if (model.windowed_layers < model.layers && reader.lacks("layer_rope_theta")) {
    add_arithmetic(model, "layers without rotary positions");
  }
  reader.ignore({"post_norm_eps", "hidden_act"});
}

/// nanochat: its norms have no gains, which the count of parameters includes.
void read_nanochat(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  if (!reader.has("hidden_act")) model.activation = Activation::squared_relu;
  model.gated_mlp = false;
  read_attention_bias(reader, model);
  add_arithmetic(model, "norms without gains, which are counted");
  add_arithmetic(model, "a norm behind the word embedding");
  add_arithmetic(model, "queries and keys divided by their norm after the rotation");
  add_arithmetic(model, "rotary angles of the other sign");
  constexpr double kClassDefault = 15;
  const Json* cap = reader.member("final_logit_softcapping");
  if (cap == nullptr || !cap->is_null()) {
    add_arithmetic(model,
                   fmt::format("logits capped at {:g}",
                               reader.number_or("final_logit_softcapping", 0, 1e9, kClassDefault)));
  }
}

}  // namespace echelon
