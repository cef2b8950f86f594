// HuggingFace config.json: one reader per family, because each spells and defaults its own way.
// A key that is missing takes the default of that family's configuration class in transformers;
// where that default is a particular model's shape, the key is required instead.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/model_formats_io.hpp"
#include "core/model_io.hpp"
#include "core/nearest.hpp"

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

// --- which family is it ---

struct Family {
  std::string_view model_type;
  std::string_view class_prefix;  ///< of architectures[0], up to ForCausalLM or LMHeadModel
  void (*read)(JsonReader&, ModelSpec&);
};

constexpr std::array kFamilies = {
    Family{"gpt2", "GPT2", read_gpt2},
    Family{"llama", "Llama", read_llama},
    Family{"mistral", "Mistral", read_mistral},
    Family{"qwen2", "Qwen2", read_qwen2},
    Family{"qwen3", "Qwen3", read_qwen3},
    Family{"gemma", "Gemma", read_gemma},
    Family{"gemma2", "Gemma2", read_gemma2},
    Family{"gemma3_text", "Gemma3", read_gemma3},
    Family{"phi", "Phi", read_phi},
    Family{"phi3", "Phi3", read_phi3},
    Family{"nemotron", "Nemotron", read_nemotron},
    Family{"bloom", "Bloom", read_bloom},
};

constexpr std::array<std::string_view, 24> kMixtures = {
    "mixtral",    "deepseek_v2", "deepseek_v3", "deepseek_v32",   "qwen2_moe",  "qwen3_moe",
    "qwen3_next", "gpt_oss",     "llama4",      "llama4_text",    "phimoe",     "olmoe",
    "dbrx",       "grok-1",      "jamba",       "glm4_moe",       "granitemoe", "ernie4_5_moe",
    "minimax",    "kimi_k2",     "arctic",      "hunyuan_v1_moe", "dots1",      "nllb-moe"};
constexpr std::array<std::string_view, 5> kExpertCounts = {
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "n_experts"};
constexpr std::array<std::string_view, 20> kOtherKinds = {
    "bert",        "roberta",    "distilbert", "albert", "electra", "deberta", "deberta-v2",
    "xlm-roberta", "modernbert", "t5",         "mt5",    "umt5",    "bart",    "mbart",
    "pegasus",     "marian",     "m2m_100",    "longt5", "whisper", "vit"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// model_type; in files without one, the family of the class in architectures[0].
std::string family_name(JsonReader& reader) {
  if (reader.has("model_type")) return reader.string("model_type");
  const Json* classes = reader.member("architectures");
  const bool named = classes != nullptr && classes->is_array() && !classes->empty() &&
                     classes->front().is_string();
  if (!named) {
    reader.fail(
        "model_type", "the key 'model_type' is missing",
        "a HuggingFace config.json (key model_type) or one of our model files (key schema)");
    return {};
  }
  const std::string name = classes->front().get<std::string>();
  const std::string prefix = name.substr(0, std::min(name.find("For"), name.find("LMHead")));
  for (const Family& family : kFamilies) {
    if (family.class_prefix == prefix) return std::string(family.model_type);
  }
  return name;
}

void refuse_mixture(JsonReader& reader, const std::string& type) {
  reader.fail("model_type", "'" + type + "' is a mixture-of-experts model",
              "a dense decoder-only transformer",
              "mixture-of-experts models are not described by this version");
}

void refuse_unknown(JsonReader& reader, const std::string& type) {
  std::vector<std::string> known;
  std::string list = "one of ";
  for (const Family& family : kFamilies) {
    list += (known.empty() ? "" : ", ") + std::string(family.model_type);
    known.emplace_back(family.model_type);
  }
  constexpr std::size_t kShown = 60;
  reader.fail("model_type", "unknown architecture '" + type.substr(0, kShown) + "'", list,
              did_you_mean(type, known));
}

/// Null after an error that says why this file is not one we can describe.
const Family* find_family(JsonReader& reader, const std::string& type) {
  bool experts = contains(kMixtures, type) || type.find("moe") != std::string::npos;
  for (const std::string_view key : kExpertCounts) {
    if (reader.has(key)) experts = experts || reader.integer(key, 0, kMostFfn) > 1;
  }
  if (experts) {
    refuse_mixture(reader, type);
    return nullptr;
  }
  const bool encoder = reader.has("is_encoder_decoder") && reader.boolean("is_encoder_decoder");
  if (encoder || contains(kOtherKinds, type)) {
    reader.fail("model_type", "'" + type + "' is not a decoder-only language model",
                "a decoder-only transformer such as gpt2 or llama");
    return nullptr;
  }
  for (const Family& family : kFamilies) {
    if (family.model_type == type) return &family;
  }
  refuse_unknown(reader, type);
  return nullptr;
}

}  // namespace

Result<ModelSpec> read_huggingface(const Json& document, std::string_view where) {
  JsonReader outer(document, std::string(where));
  outer.ignore_rest();
  std::string type = outer.failed() ? "" : family_name(outer);
  // Multimodal Gemma 3 keeps its language model one level down.
  const bool nested = type.starts_with("gemma3") && outer.has("text_config");
  if (type == "gemma3") type = "gemma3_text";
  const Json* inside = nested ? outer.member("text_config") : &document;
  JsonReader reader(*inside, std::string(where), nested ? "/text_config" : "");
  reader.ignore_rest();
  const Family* family = outer.failed() || reader.failed() ? nullptr : find_family(reader, type);
  ModelSpec model;
  model.architecture = type;
  model.source = "HuggingFace configuration " + std::string(where);
  if (family != nullptr) family->read(reader, model);
  for (JsonReader* step : {&outer, &reader}) {
    const Status read = step->finish();
    if (!read) return read.error();
  }
  const Status sound = check_model(model, where);
  if (!sound) return sound.error();
  return model;
}

}  // namespace echelon
