// Our own model file: the fields of ModelSpec under their own names.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/model_formats_io.hpp"
#include "core/model_io.hpp"

namespace echelon {

namespace {

constexpr int kSchema = 1;

template <class Enum, std::size_t N>
using Names = std::array<std::pair<Enum, std::string_view>, N>;

constexpr Names<Normalization, 2> kNormalizations = {
    {{Normalization::rms_norm, "rms_norm"}, {Normalization::layer_norm, "layer_norm"}}};
constexpr Names<Activation, 4> kActivations = {{{Activation::silu, "silu"},
                                                {Activation::gelu, "gelu"},
                                                {Activation::relu, "relu"},
                                                {Activation::squared_relu, "squared_relu"}}};
constexpr Names<PositionEmbedding, 4> kPositions = {{{PositionEmbedding::rope, "rope"},
                                                     {PositionEmbedding::learned, "learned"},
                                                     {PositionEmbedding::alibi, "alibi"},
                                                     {PositionEmbedding::none, "none"}}};

template <class Enum, std::size_t N>
std::string name_in(const Names<Enum, N>& names, Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return std::string(name);
  }
  EXPECTS(false, "an enumerator without a name");
  return {};
}

/// The default is the first name of the list.
template <class Enum, std::size_t N>
Enum choice_or_first(JsonReader& reader, std::string_view key, const Names<Enum, N>& names) {
  static_assert(N == 2 || N == 4);
  if (!reader.has(key)) {
    reader.ignore({key});
    return names[0].first;
  }
  std::string word;
  if constexpr (N == 2) {
    word = reader.choice(key, {names[0].second, names[1].second});
  } else {
    word = reader.choice(key, {names[0].second, names[1].second, names[2].second, names[3].second});
  }
  for (const auto& [value, name] : names) {
    if (name == word) return value;
  }
  return names[0].first;
}

int small(std::int64_t value) { return static_cast<int>(value); }  // bounded by the reader

void read_shapes(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer("layers", 1, kMostLayers));
  model.hidden = small(reader.integer("hidden", 1, kMostHidden));
  model.heads = small(reader.integer("heads", 1, kMostHeads));
  model.kv_heads = small(reader.integer_or("kv_heads", 1, kMostHeads, model.heads));
  if (!reader.has("head_dim") && model.hidden % model.heads != 0) {
    reader.fail("heads", fmt::format("{} heads do not divide hidden {}", model.heads, model.hidden),
                "a divisor of hidden, or an explicit head_dim");
  }
  model.head_dim = small(
      reader.integer_or("head_dim", 1, kMostHeadDim, std::max(1, model.hidden / model.heads)));
  model.ffn_hidden = small(reader.integer("ffn_hidden", 1, kMostFfn));
  model.vocab = small(reader.integer("vocab", 1, kMostVocab));
  model.max_positions = small(reader.integer("max_positions", 1, kMostPositions));
}

void read_block(JsonReader& reader, ModelSpec& model) {
  model.normalization = choice_or_first(reader, "normalization", kNormalizations);
  model.activation = choice_or_first(reader, "activation", kActivations);
  model.position = choice_or_first(reader, "position", kPositions);
  model.gated_mlp = reader.boolean_or("gated_mlp", model.gated_mlp);
  model.tied_embeddings = reader.boolean_or("tied_embeddings", model.tied_embeddings);
  model.qkv_bias = reader.boolean_or("qkv_bias", model.qkv_bias);
  model.attention_output_bias =
      reader.boolean_or("attention_output_bias", model.attention_output_bias);
  model.mlp_bias = reader.boolean_or("mlp_bias", model.mlp_bias);
  model.head_bias = reader.boolean_or("head_bias", model.head_bias);
  model.qk_norm = reader.boolean_or("qk_norm", model.qk_norm);
  model.parallel_block = reader.boolean_or("parallel_block", model.parallel_block);
  model.post_norms = reader.boolean_or("post_norms", model.post_norms);
  model.embedding_norm = reader.boolean_or("embedding_norm", model.embedding_norm);
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, model.hidden_dropout);
  model.attention_dropout = reader.number_or("attention_dropout", 0, 1, model.attention_dropout);
  model.sliding_window = small(reader.integer_or("sliding_window", 0, kMostPositions, 0));
  model.windowed_layers = small(reader.integer_or("windowed_layers", 0, kMostLayers,
                                                  model.sliding_window > 0 ? model.layers : 0));
  model.attention_sinks = reader.boolean_or("attention_sinks", model.attention_sinks);
}

/// Null when the file has no object of that name.
const Json* optional_object(JsonReader& reader, std::string_view key) {
  const Json* object = reader.member(key);
  return object == nullptr || object->is_null() ? nullptr : object;
}

Status read_mixture(JsonReader& outer, MixtureOfExperts& moe) {
  const Json* object = optional_object(outer, "moe");
  if (object == nullptr) return Done{};
  JsonReader reader(*object, outer.where(), "/moe");
  moe.experts = small(reader.integer("experts", 1, kMostExperts));
  moe.experts_per_token = small(reader.integer("experts_per_token", 1, kMostExperts));
  moe.expert_ffn_hidden = small(reader.integer("expert_ffn_hidden", 1, kMostFfn));
  moe.shared_ffn_hidden = small(reader.integer_or("shared_ffn_hidden", 0, kMostFfn, 0));
  moe.first_dense_layers = small(reader.integer_or("first_dense_layers", 0, kMostLayers, 0));
  moe.every = small(reader.integer_or("every", 1, kMostLayers, 1));
  moe.expert_bias = reader.boolean_or("expert_bias", false);
  moe.router_bias = reader.boolean_or("router_bias", false);
  moe.shared_expert_gate = reader.boolean_or("shared_expert_gate", false);
  return reader.finish();
}

Status read_latent(JsonReader& outer, LatentAttention& mla) {
  const Json* object = optional_object(outer, "mla");
  if (object == nullptr) return Done{};
  JsonReader reader(*object, outer.where(), "/mla");
  mla.kv_lora_rank = small(reader.integer("kv_lora_rank", 1, kMostHidden));
  mla.q_lora_rank = small(reader.integer_or("q_lora_rank", 0, kMostHidden, 0));
  mla.qk_nope_head_dim = small(reader.integer("qk_nope_head_dim", 1, kMostHeadDim));
  mla.qk_rope_head_dim = small(reader.integer("qk_rope_head_dim", 1, kMostHeadDim));
  mla.v_head_dim = small(reader.integer("v_head_dim", 1, kMostHeadDim));
  return reader.finish();
}

std::vector<std::string> read_aliases(JsonReader& reader) {
  std::vector<std::string> aliases;
  const Json* list = reader.member("aliases");
  if (list == nullptr) return aliases;
  if (!list->is_array()) {
    reader.fail("aliases", "not a list", "a list of names");
    return aliases;
  }
  for (const Json& alias : *list) {
    if (!alias.is_string()) {
      reader.fail("aliases", "an entry that is not a text", "a list of names");
      return aliases;
    }
    aliases.push_back(alias.get<std::string>());
  }
  return aliases;
}

}  // namespace

Result<ModelFile> read_model_file(const Json& document, std::string_view where) {
  JsonReader reader(document, std::string(where));
  ModelFile file;
  reader.integer("schema", kSchema, kSchema);
  file.model.name = reader.string_or("name", "");
  file.model.architecture = reader.string_or("architecture", "");
  file.model.source = reader.string_or("source", "");
  file.aliases = read_aliases(reader);
  file.published_parameters = reader.integer_or("published_parameters", 1, INT64_MAX, 0);
  read_shapes(reader, file.model);
  read_block(reader, file.model);
  const Status mixture = read_mixture(reader, file.model.moe);
  const Status latent = read_latent(reader, file.model.mla);
  for (const Status& read : {reader.finish(), mixture, latent}) {
    if (!read) return read.error();
  }
  const Status sound = check_model(file.model, where);
  if (!sound) return sound.error();
  return file;
}

namespace {

Json mixture_to_json(const MixtureOfExperts& moe) {
  return {{"experts", moe.experts},
          {"experts_per_token", moe.experts_per_token},
          {"expert_ffn_hidden", moe.expert_ffn_hidden},
          {"shared_ffn_hidden", moe.shared_ffn_hidden},
          {"first_dense_layers", moe.first_dense_layers},
          {"every", moe.every},
          {"expert_bias", moe.expert_bias},
          {"router_bias", moe.router_bias},
          {"shared_expert_gate", moe.shared_expert_gate}};
}

Json latent_to_json(const LatentAttention& mla) {
  return {{"kv_lora_rank", mla.kv_lora_rank},
          {"q_lora_rank", mla.q_lora_rank},
          {"qk_nope_head_dim", mla.qk_nope_head_dim},
          {"qk_rope_head_dim", mla.qk_rope_head_dim},
          {"v_head_dim", mla.v_head_dim}};
}

}  // namespace

std::string model_to_json(const ModelSpec& model) {
  Json file;
  file["schema"] = kSchema;
  file["name"] = model.name;
  file["architecture"] = model.architecture;
  file["source"] = model.source;
  file["layers"] = model.layers;
  file["hidden"] = model.hidden;
  file["heads"] = model.heads;
  file["kv_heads"] = model.kv_heads;
  file["head_dim"] = model.head_dim;
  file["ffn_hidden"] = model.ffn_hidden;
  file["vocab"] = model.vocab;
  file["max_positions"] = model.max_positions;
  file["normalization"] = name_in(kNormalizations, model.normalization);
  file["activation"] = name_in(kActivations, model.activation);
  file["position"] = name_in(kPositions, model.position);
  file["gated_mlp"] = model.gated_mlp;
  file["tied_embeddings"] = model.tied_embeddings;
  file["qkv_bias"] = model.qkv_bias;
  file["attention_output_bias"] = model.attention_output_bias;
  file["mlp_bias"] = model.mlp_bias;
  file["head_bias"] = model.head_bias;
  file["qk_norm"] = model.qk_norm;
  file["parallel_block"] = model.parallel_block;
  file["post_norms"] = model.post_norms;
  file["embedding_norm"] = model.embedding_norm;
  file["hidden_dropout"] = model.hidden_dropout;
  file["attention_dropout"] = model.attention_dropout;
  file["sliding_window"] = model.sliding_window;
  file["windowed_layers"] = model.windowed_layers;
  // Absent where they say nothing, so that files of dense models keep their bytes.
  if (model.attention_sinks) file["attention_sinks"] = true;
  if (model.moe != MixtureOfExperts{}) file["moe"] = mixture_to_json(model.moe);
  if (model.mla != LatentAttention{}) file["mla"] = latent_to_json(model.mla);
  constexpr int kIndent = 2;
  return file.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace echelon
