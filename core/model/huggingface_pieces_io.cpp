#include "core/model/huggingface_pieces_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/model/model_formats_io.hpp"

namespace echelon {

Activation read_activation(JsonReader& reader, std::string_view key, Activation otherwise,
                           ModelSpec& model) {
  (void)reader.member(key);
  if (!reader.has(key)) return otherwise;
  const std::string word =
      reader.choice(key, {"silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh",
                          "quick_gelu", "relu", "relu2", "xielu"});
  if (word == "silu" || word == "swish") return Activation::silu;
  if (word == "relu") return Activation::relu;
  if (word == "relu2") return Activation::squared_relu;
  if (word == "xielu") {  // squares what is positive
    add_arithmetic(model, "activation 'xielu'; priced as squared ReLU");
    return Activation::squared_relu;
  }
  if (word == "gelu" || word == "quick_gelu") {
    add_arithmetic(model,
                   "activation '" + word + "'; the runtime computes gelu_new (the tanh form)");
  }
  return Activation::gelu;
}

void read_widths(JsonReader& reader, ModelSpec& model, bool mlp_width) {
  model.layers = small(reader.integer("num_hidden_layers", 1, kMaxLayers));
  model.hidden = small(reader.integer("hidden_size", 1, kMaxHidden));
  model.heads = small(reader.integer("num_attention_heads", 1, kMaxHeads));
  if (mlp_width) model.ffn_hidden = small(reader.integer("intermediate_size", 1, kMaxFfn));
  model.vocab = small(reader.integer("vocab_size", 1, kMaxVocab));
}

void read_gpt_widths(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer("n_layer", 1, kMaxLayers));
  model.hidden = small(reader.integer("n_embd", 1, kMaxHidden));
  model.heads = small(reader.integer("n_head", 1, kMaxHeads));
  model.kv_heads = model.heads;
  if (model.hidden % model.heads != 0) {
    reader.fail("n_head",
                fmt::format("{} heads do not divide n_embd {}", model.heads, model.hidden),
                "a divisor of n_embd");
  }
  model.head_dim = std::max(1, model.hidden / model.heads);
  model.ffn_hidden =
      small(reader.integer_or("n_inner", 1, kMaxFfn, std::int64_t{4} * model.hidden));
  model.vocab = small(reader.integer("vocab_size", 1, kMaxVocab));
}

void read_layer_norm_block(JsonReader& reader, ModelSpec& model) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_head_dim(reader, model);
  model.normalization = Normalization::layer_norm;
  model.activation = read_activation(reader, "hidden_act", Activation::gelu, model);
  model.gated_mlp = false;
}

void read_positions(JsonReader& reader, ModelSpec& model) {
  // In the first Llama configurations the key is max_sequence_length.
  const bool old = !reader.has("max_position_embeddings") && reader.has("max_sequence_length");
  const char* key = old ? "max_sequence_length" : "max_position_embeddings";
  model.max_positions = small(reader.integer(key, 1, kMaxPositions));
}

void read_kv_heads(JsonReader& reader, ModelSpec& model, MissingKvHeads missing) {
  const Json* value = reader.member("num_key_value_heads");
  const bool absent = value == nullptr;
  if (absent && missing == MissingKvHeads::are_an_error) {
    reader.fail("num_key_value_heads", "the key 'num_key_value_heads' is missing",
                "the number of key-value heads, or null for multi-head attention");
  }
  model.kv_heads = small(reader.integer_or("num_key_value_heads", 1, kMaxHeads, model.heads));
  if (model.heads % model.kv_heads != 0) {
    reader.fail(
        "num_key_value_heads",
        fmt::format("{} key-value heads do not divide {} heads", model.kv_heads, model.heads),
        "a divisor of num_attention_heads");
  }
}

void read_head_dim(JsonReader& reader, ModelSpec& model) {
  if (reader.has("head_dim")) {
    model.head_dim = small(reader.integer("head_dim", 1, kMaxHeadDim));
    return;
  }
  if (model.hidden % model.heads != 0) {
    reader.fail("num_attention_heads",
                fmt::format("{} heads do not divide hidden_size {}", model.heads, model.hidden),
                "a divisor of hidden_size, or an explicit head_dim");
  }
  model.head_dim = std::max(1, model.hidden / model.heads);
}

void require_head_dim(JsonReader& reader) {
  if (!reader.has("head_dim")) reader.integer("head_dim", 1, kMaxHeadDim);
}

void read_attention_bias(JsonReader& reader, ModelSpec& model) {
  model.qkv_bias = reader.boolean_or("attention_bias", false);
  model.attention_output_bias = model.qkv_bias;
}

void read_dropout(JsonReader& reader, ModelSpec& model) {
  model.attention_dropout = reader.number_or("attention_dropout", 0, 1, 0);
}

std::optional<int> listed_layers(JsonReader& reader, const ModelSpec& model,
                                 std::string_view kind) {
  const Json* list = reader.member("layer_types");
  if (list == nullptr || list->is_null()) return std::nullopt;
  const bool fits = list->is_array() && list->size() == static_cast<std::size_t>(model.layers);
  if (!fits) {
    reader.fail("layer_types",
                list->is_array() ? fmt::format("a list of {} entries", list->size()) : "not a list",
                fmt::format("a list of {} entries, one for each layer", model.layers));
    return std::nullopt;
  }
  int count = 0;
  for (const Json& type : *list) {
    const std::string word = type.is_string() ? type.get<std::string>() : "";
    if (word == kind) {
      ++count;
    } else if (word != "full_attention") {
      reader.fail("layer_types", fmt::format("an entry other than full_attention and {}", kind),
                  "layers of these two kinds only");
      return std::nullopt;
    }
  }
  return count;
}

void read_window(JsonReader& reader, ModelSpec& model, int window_default, int otherwise) {
  const Json* value = reader.member("sliding_window");
  const bool is_null = value != nullptr && value->is_null();
  const std::int64_t window =
      is_null ? 0 : reader.integer_or("sliding_window", 0, kMaxPositions, window_default);
  const int layers = listed_layers(reader, model, "sliding_attention").value_or(otherwise);
  if (window == 0 || layers == 0) return;
  model.sliding_window = small(window);
  model.windowed_layers = layers;
}

void read_gated_qwen(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.rope = {.rotated_part = 0.25}, .mlp_width = false});
  require_head_dim(reader);
  model.ffn_hidden = small(reader.integer_or("intermediate_size", 1, kMaxFfn, 1));
  model.qk_norm = true;
  model.attention_output_gate = reader.boolean_or("attn_output_gate", true);
  read_attention_bias(reader, model);
  add_arithmetic(model, "gains of norms counted from one");
  GatedDeltaNet& delta = model.delta;
  const std::int64_t interval = reader.integer_or("full_attention_interval", 1, kMaxLayers, 4);
  delta.layers = listed_layers(reader, model, "linear_attention")
                     .value_or(model.layers - model.layers / small(interval));
  delta.key_heads = small(reader.integer("linear_num_key_heads", 1, kMaxHeads));
  delta.value_heads = small(reader.integer("linear_num_value_heads", 1, kMaxHeads));
  delta.key_head_dim = small(reader.integer("linear_key_head_dim", 1, kMaxHeadDim));
  delta.value_head_dim = small(reader.integer("linear_value_head_dim", 1, kMaxHeadDim));
  delta.conv_kernel = small(reader.integer("linear_conv_kernel_dim", 1, kMaxHeadDim));
  if (delta.layers == 0) delta = {};  // a short model may have full attention alone
}

void read_prediction_modules(JsonReader& reader, ModelSpec& model) {
  constexpr std::int64_t kMostModules = 100;
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"}) {
    if (reader.has(key)) model.prediction_modules = small(reader.integer(key, 0, kMostModules));
  }
  if (!reader.has("num_mtp_modules")) return;
  const std::int64_t modules = reader.integer("num_mtp_modules", 0, kMostModules);
  const std::int64_t depth = reader.integer_or("mtp_transformer_layers", 1, kMaxLayers, 1);
  if (!reader.boolean_or("use_mtp", true)) return;
  if (depth != 1) {
    reader.fail("mtp_transformer_layers",
                fmt::format("modules for multi-token prediction with {} layers each", depth),
                "1 layer in each");
    return;
  }
  model.prediction_modules = small(modules);
}

void read_llama_like(JsonReader& reader, ModelSpec& model, const LlamaDefaults& otherwise) {
  read_widths(reader, model, otherwise.mlp_width);
  read_positions(reader, model);
  read_kv_heads(reader, model, otherwise.kv_heads);
  read_head_dim(reader, model);
  model.activation = read_activation(reader, "hidden_act", Activation::silu, model);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  read_norm_epsilon(reader, model, "rms_norm_eps", otherwise.norm_epsilon);
  read_rope(reader, model, otherwise.rope);
  read_dropout(reader, model);
}

}  // namespace echelon
