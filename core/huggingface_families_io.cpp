// HuggingFace config.json: one reader per family, because each spells and defaults its own way.
// A key that is missing takes the default of that family's configuration class in transformers;
// where that default is a particular model's shape, the key is required instead.
#include "core/huggingface_families_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/model_formats_io.hpp"

namespace echelon {

namespace {

int small(std::int64_t value) { return static_cast<int>(value); }  // bounded by the reader

// --- pieces shared by families ---

Activation read_activation(JsonReader& reader, std::string_view key, Activation otherwise) {
  if (!reader.has(key)) return otherwise;
  const std::string word = reader.choice(key, {"silu", "swish", "gelu", "gelu_new", "gelu_fast",
                                               "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2"});
  if (word == "silu" || word == "swish") return Activation::silu;
  if (word == "relu") return Activation::relu;
  if (word == "relu2") return Activation::squared_relu;
  return Activation::gelu;
}

/// Widths under the names most families use.
void read_widths(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer("num_hidden_layers", 1, kMostLayers));
  model.hidden = small(reader.integer("hidden_size", 1, kMostHidden));
  model.heads = small(reader.integer("num_attention_heads", 1, kMostHeads));
  model.ffn_hidden = small(reader.integer("intermediate_size", 1, kMostFfn));
  model.vocab = small(reader.integer("vocab_size", 1, kMostVocab));
}

void read_positions(JsonReader& reader, ModelSpec& model) {
  // The first Llama configurations call it max_sequence_length.
  const bool old = !reader.has("max_position_embeddings") && reader.has("max_sequence_length");
  const char* key = old ? "max_sequence_length" : "max_position_embeddings";
  model.max_positions = small(reader.integer(key, 1, kMostPositions));
}

enum class MissingKvHeads { mean_multi_head, are_an_error };

/// null always means multi-head attention; a missing key only where the family's default says so.
void read_kv_heads(JsonReader& reader, ModelSpec& model, MissingKvHeads missing) {
  const Json* value = reader.member("num_key_value_heads");
  const bool absent = value == nullptr;
  if (absent && missing == MissingKvHeads::are_an_error) {
    reader.fail("num_key_value_heads", "the key 'num_key_value_heads' is missing",
                "the number of key-value heads, or null for multi-head attention");
  }
  model.kv_heads = small(reader.integer_or("num_key_value_heads", 1, kMostHeads, model.heads));
  if (model.heads % model.kv_heads != 0) {
    reader.fail(
        "num_key_value_heads",
        fmt::format("{} key-value heads do not divide {} heads", model.kv_heads, model.heads),
        "a divisor of num_attention_heads");
  }
}

/// An explicit head_dim, or hidden / heads.
void read_head_dim(JsonReader& reader, ModelSpec& model) {
  if (reader.has("head_dim")) {
    model.head_dim = small(reader.integer("head_dim", 1, kMostHeadDim));
    return;
  }
  if (model.hidden % model.heads != 0) {
    reader.fail("num_attention_heads",
                fmt::format("{} heads do not divide hidden_size {}", model.heads, model.hidden),
                "a divisor of hidden_size, or an explicit head_dim");
  }
  model.head_dim = std::max(1, model.hidden / model.heads);
}

void read_attention_bias(JsonReader& reader, ModelSpec& model) {
  model.qkv_bias = reader.boolean_or("attention_bias", false);
  model.attention_output_bias = model.qkv_bias;
}

void read_dropout(JsonReader& reader, ModelSpec& model) {
  model.attention_dropout = reader.number_or("attention_dropout", 0, 1, 0);
}

/// Newer files list every layer: "full_attention" or "sliding_attention". -1 when there is no list.
int listed_windowed_layers(JsonReader& reader, const ModelSpec& model) {
  const Json* list = reader.member("layer_types");
  if (list == nullptr || list->is_null()) return -1;
  const bool fits = list->is_array() && list->size() == static_cast<std::size_t>(model.layers);
  if (!fits) {
    reader.fail("layer_types",
                list->is_array() ? fmt::format("a list of {} entries", list->size()) : "not a list",
                fmt::format("a list of {} entries, one for each layer", model.layers));
    return -1;
  }
  int windowed = 0;
  for (const Json& type : *list) {
    const std::string word = type.is_string() ? type.get<std::string>() : "";
    if (word == "sliding_attention") {
      ++windowed;
    } else if (word != "full_attention") {
      reader.fail("layer_types", "an entry other than full_attention and sliding_attention",
                  "layers with full or sliding-window attention only");
      return -1;
    }
  }
  return windowed;
}

/// `otherwise` layers use the window unless the file lists them.
void read_window(JsonReader& reader, ModelSpec& model, int window_default, int otherwise) {
  const Json* value = reader.member("sliding_window");
  const bool is_null = value != nullptr && value->is_null();
  const std::int64_t window =
      is_null ? 0 : reader.integer_or("sliding_window", 0, kMostPositions, window_default);
  const int listed = listed_windowed_layers(reader, model);
  const int layers = listed >= 0 ? listed : otherwise;
  if (window == 0 || layers == 0) return;
  model.sliding_window = small(window);
  model.windowed_layers = layers;
}

// --- families ---

void read_gpt2(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer("n_layer", 1, kMostLayers));
  model.hidden = small(reader.integer("n_embd", 1, kMostHidden));
  model.heads = small(reader.integer("n_head", 1, kMostHeads));
  model.kv_heads = model.heads;
  if (model.hidden % model.heads != 0) {
    reader.fail("n_head",
                fmt::format("{} heads do not divide n_embd {}", model.heads, model.hidden),
                "a divisor of n_embd");
  }
  model.head_dim = std::max(1, model.hidden / model.heads);
  model.ffn_hidden =
      small(reader.integer_or("n_inner", 1, kMostFfn, std::int64_t{4} * model.hidden));
  model.vocab = small(reader.integer("vocab_size", 1, kMostVocab));
  const bool old = !reader.has("n_positions") && reader.has("n_ctx");
  model.max_positions = small(reader.integer(old ? "n_ctx" : "n_positions", 1, kMostPositions));
  model.normalization = Normalization::layer_norm;
  model.position = PositionEmbedding::learned;
  model.activation = read_activation(reader, "activation_function", Activation::gelu);
  model.gated_mlp = false;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  constexpr double kClassDefault = 0.1;
  model.hidden_dropout = reader.number_or("resid_pdrop", 0, 1, kClassDefault);
  model.attention_dropout = reader.number_or("attn_pdrop", 0, 1, kClassDefault);
}

void read_llama_like(JsonReader& reader, ModelSpec& model, MissingKvHeads missing) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_kv_heads(reader, model, missing);
  read_head_dim(reader, model);
  model.activation = read_activation(reader, "hidden_act", Activation::silu);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  read_dropout(reader, model);
}

void read_llama(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, MissingKvHeads::mean_multi_head);
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
}

void read_mistral(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, MissingKvHeads::are_an_error);
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, model.layers);
}

/// Qwen windows the layers from max_window_layers on, and only when told to.
void read_qwen_window(JsonReader& reader, ModelSpec& model) {
  const bool used = reader.boolean_or("use_sliding_window", false);
  const std::int64_t full = reader.integer_or("max_window_layers", 0, kMostLayers, model.layers);
  if (!used) return;
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, std::max(0, model.layers - small(full)));
}

void read_qwen2(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, MissingKvHeads::are_an_error);
  model.qkv_bias = true;
  read_qwen_window(reader, model);
}

void read_qwen3(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, MissingKvHeads::are_an_error);
  if (!reader.has("head_dim")) reader.integer("head_dim", 1, kMostHeadDim);  // required
  model.qk_norm = true;
  read_attention_bias(reader, model);
  read_qwen_window(reader, model);
}

void read_gemma(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::are_an_error);
  model.head_dim = small(reader.integer("head_dim", 1, kMostHeadDim));
  const bool renamed = reader.has("hidden_activation");  // the older hidden_act said "gelu"
  model.activation =
      read_activation(reader, renamed ? "hidden_activation" : "hidden_act", Activation::gelu);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  read_attention_bias(reader, model);
  read_dropout(reader, model);
}

void read_gemma2(JsonReader& reader, ModelSpec& model) {
  read_gemma(reader, model);
  model.post_norms = true;
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, (model.layers + 1) / 2);  // every other, from the first
}

/// Files of multimodal Gemma 3 leave out what equals the class default, shapes included.
void read_gemma3(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer_or("num_hidden_layers", 1, kMostLayers, 26));
  model.hidden = small(reader.integer_or("hidden_size", 1, kMostHidden, 2304));
  model.heads = small(reader.integer_or("num_attention_heads", 1, kMostHeads, 8));
  model.kv_heads = small(reader.integer_or("num_key_value_heads", 1, kMostHeads, 4));
  model.head_dim = small(reader.integer_or("head_dim", 1, kMostHeadDim, 256));
  model.ffn_hidden = small(reader.integer_or("intermediate_size", 1, kMostFfn, 9216));
  model.vocab = small(reader.integer_or("vocab_size", 1, kMostVocab, 262'208));
  model.max_positions =
      small(reader.integer_or("max_position_embeddings", 1, kMostPositions, 131'072));
  model.activation = read_activation(reader, "hidden_activation", Activation::gelu);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qk_norm = true;
  model.post_norms = true;
  read_attention_bias(reader, model);
  read_dropout(reader, model);
  // One layer in `pattern` sees everything.
  const bool renamed = reader.has("_sliding_window_pattern");
  const std::int64_t pattern = reader.integer_or(
      renamed ? "_sliding_window_pattern" : "sliding_window_pattern", 1, kMostLayers, 6);
  constexpr int kClassDefault = 4096;
  read_window(reader, model, kClassDefault, model.layers - model.layers / small(pattern));
}

void read_phi(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::mean_multi_head);
  read_head_dim(reader, model);
  model.normalization = Normalization::layer_norm;
  model.activation = read_activation(reader, "hidden_act", Activation::gelu);
  model.gated_mlp = false;
  model.parallel_block = true;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = model.head_bias = true;
  model.qk_norm = reader.boolean_or("qk_layernorm", false);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  model.hidden_dropout = reader.number_or("resid_pdrop", 0, 1, 0);
  read_dropout(reader, model);
}

void read_phi3(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, MissingKvHeads::mean_multi_head);
  model.hidden_dropout = reader.number_or("resid_pdrop", 0, 1, 0);
  read_window(reader, model, 0, model.layers);
}

void read_nemotron(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, MissingKvHeads::mean_multi_head);
  model.normalization = Normalization::layer_norm;
  model.activation = read_activation(reader, "hidden_act", Activation::squared_relu);
  model.gated_mlp = false;
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
}

void read_bloom(JsonReader& reader, ModelSpec& model) {
  const bool old_width = !reader.has("hidden_size") && reader.has("n_embed");
  const bool old_heads = !reader.has("n_head") && reader.has("num_attention_heads");
  model.layers = small(reader.integer("n_layer", 1, kMostLayers));
  model.hidden = small(reader.integer(old_width ? "n_embed" : "hidden_size", 1, kMostHidden));
  model.heads = small(reader.integer(old_heads ? "num_attention_heads" : "n_head", 1, kMostHeads));
  model.kv_heads = model.heads;
  if (model.hidden % model.heads != 0) {
    reader.fail(old_heads ? "num_attention_heads" : "n_head",
                fmt::format("{} heads do not divide the width {}", model.heads, model.hidden),
                "a divisor of the width");
  }
  model.head_dim = std::max(1, model.hidden / model.heads);
  model.ffn_hidden = small(std::int64_t{4} * model.hidden);
  model.vocab = small(reader.integer("vocab_size", 1, kMostVocab));
  constexpr int kTrainedOn = 2048;  // ALiBi has no table; BLOOM was trained at 2048
  model.max_positions = small(reader.integer_or("seq_length", 1, kMostPositions, kTrainedOn));
  model.normalization = Normalization::layer_norm;
  model.position = PositionEmbedding::alibi;
  model.activation = Activation::gelu;
  model.gated_mlp = false;
  model.embedding_norm = true;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  read_dropout(reader, model);
}

constexpr std::array kAll = {
    HuggingFaceFamily{"gpt2", "GPT2", read_gpt2},
    HuggingFaceFamily{"llama", "Llama", read_llama},
    HuggingFaceFamily{"mistral", "Mistral", read_mistral},
    HuggingFaceFamily{"qwen2", "Qwen2", read_qwen2},
    HuggingFaceFamily{"qwen3", "Qwen3", read_qwen3},
    HuggingFaceFamily{"gemma", "Gemma", read_gemma},
    HuggingFaceFamily{"gemma2", "Gemma2", read_gemma2},
    HuggingFaceFamily{"gemma3_text", "Gemma3", read_gemma3},
    HuggingFaceFamily{"phi", "Phi", read_phi},
    HuggingFaceFamily{"phi3", "Phi3", read_phi3},
    HuggingFaceFamily{"nemotron", "Nemotron", read_nemotron},
    HuggingFaceFamily{"bloom", "Bloom", read_bloom},
};

}  // namespace

std::span<const HuggingFaceFamily> huggingface_families() { return kAll; }

}  // namespace echelon
