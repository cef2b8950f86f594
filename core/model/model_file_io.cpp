// Our own model file: the fields of ModelSpec under their own names.
// Over 400 lines because reader and writer of one format stand side by side.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/model/model_formats_io.hpp"
#include "core/model/model_io.hpp"

namespace echelon {

namespace {

constexpr int kSchema = 2;
constexpr int kSchemaOfShapes = 1;  // files without constants
constexpr double kMaxRouterScaling = 1000;

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
constexpr Names<RopeScaling, 6> kScalings = {{{RopeScaling::none, "none"},
                                              {RopeScaling::linear, "linear"},
                                              {RopeScaling::llama3, "llama3"},
                                              {RopeScaling::yarn, "yarn"},
                                              {RopeScaling::dynamic, "dynamic"},
                                              {RopeScaling::longrope, "longrope"}}};

constexpr Names<RouterScore, 2> kRouterScores = {
    {{RouterScore::softmax, "softmax"}, {RouterScore::sigmoid, "sigmoid"}}};

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
  if (!reader.has(key)) {
    reader.ignore({key});
    return names[0].first;
  }
  const std::string word = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return reader.choice(key, {names[i].second...});
  }
  (std::make_index_sequence<N>());
  for (const auto& [value, name] : names) {
    if (name == word) return value;
  }
  return names[0].first;
}

void read_shapes(JsonReader& reader, ModelSpec& model) {
  model.layers = small(reader.integer("layers", 1, kMaxLayers));
  model.hidden = small(reader.integer("hidden", 1, kMaxHidden));
  model.heads = small(reader.integer("heads", 1, kMaxHeads));
  model.kv_heads = small(reader.integer_or("kv_heads", 1, kMaxHeads, model.heads));
  if (!reader.has("head_dim") && model.hidden % model.heads != 0) {
    reader.fail("heads", fmt::format("{} heads do not divide hidden {}", model.heads, model.hidden),
                "a divisor of hidden, or an explicit head_dim");
  }
  model.head_dim =
      small(reader.integer_or("head_dim", 1, kMaxHeadDim, std::max(1, model.hidden / model.heads)));
  model.ffn_hidden = small(reader.integer("ffn_hidden", 1, kMaxFfn));
  model.vocab = small(reader.integer("vocab", 1, kMaxVocab));
  model.max_positions = small(reader.integer("max_positions", 1, kMaxPositions));
  model.prediction_modules = small(reader.integer_or("prediction_modules", 0, kMaxLayers, 0));
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
  model.qk_norm_all_heads = reader.boolean_or("qk_norm_all_heads", model.qk_norm_all_heads);
  model.value_norm = reader.boolean_or("value_norm", model.value_norm);
  model.attention_output_gate =
      reader.boolean_or("attention_output_gate", model.attention_output_gate);
  model.parallel_block = reader.boolean_or("parallel_block", model.parallel_block);
  model.post_norms = reader.boolean_or("post_norms", model.post_norms);
  model.embedding_norm = reader.boolean_or("embedding_norm", model.embedding_norm);
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, model.hidden_dropout);
  model.attention_dropout = reader.number_or("attention_dropout", 0, 1, model.attention_dropout);
  model.sliding_window = small(reader.integer_or("sliding_window", 0, kMaxPositions, 0));
  model.windowed_layers = small(reader.integer_or("windowed_layers", 0, kMaxLayers,
                                                  model.sliding_window > 0 ? model.layers : 0));
  model.attention_sinks = reader.boolean_or("attention_sinks", model.attention_sinks);
}

/// Reads the object `key` of a file into `part`, which stays as it is if the file has none.
template <class Part>
Status read_part(JsonReader& outer, const std::string& key, Part& part,
                 void (*read)(JsonReader&, Part&)) {
  const Json* object = outer.member(key);
  if (object == nullptr || object->is_null()) return Done{};
  JsonReader reader(*object, outer.where(), "/" + key);
  read(reader, part);
  return reader.finish();
}

/// Where the file does not say: a bias that corrects scores comes with sigmoid.
RouterScore usual_score(const MixtureOfExperts& moe) {
  return moe.router_bias && !moe.expert_bias ? RouterScore::sigmoid : RouterScore::softmax;
}

void read_mixture(JsonReader& reader, MixtureOfExperts& moe) {
  moe.experts = small(reader.integer("experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("experts_per_token", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("expert_ffn_hidden", 1, kMaxFfn));
  moe.shared_ffn_hidden = small(reader.integer_or("shared_ffn_hidden", 0, kMaxFfn, 0));
  moe.latent_hidden = small(reader.integer_or("latent_hidden", 0, kMaxHidden, 0));
  moe.first_dense_layers = small(reader.integer_or("first_dense_layers", 0, kMaxLayers, 0));
  moe.every = small(reader.integer_or("every", 1, kMaxLayers, 1));
  moe.expert_bias = reader.boolean_or("expert_bias", false);
  moe.router_bias = reader.boolean_or("router_bias", false);
  moe.shared_expert_gate = reader.boolean_or("shared_expert_gate", false);
  moe.branch_norms = reader.boolean_or("branch_norms", false);
  moe.router_groups = small(reader.integer_or("router_groups", 1, kMaxExperts, 1));
  moe.router_group_topk = small(reader.integer_or("router_group_topk", 1, kMaxExperts, 1));
  moe.router_score = usual_score(moe);
  if (reader.has("router_score")) {
    moe.router_score = choice_or_first(reader, "router_score", kRouterScores);
  }
  moe.router_normalized = reader.boolean_or("router_normalized", true);
  moe.router_scaling = reader.number_or("router_scaling", 0, kMaxRouterScaling, 1);
}

void read_latent(JsonReader& reader, LatentAttention& mla) {
  mla.kv_lora_rank = small(reader.integer("kv_lora_rank", 1, kMaxHidden));
  mla.q_lora_rank = small(reader.integer_or("q_lora_rank", 0, kMaxHidden, 0));
  mla.qk_nope_head_dim = small(reader.integer("qk_nope_head_dim", 1, kMaxHeadDim));
  mla.qk_rope_head_dim = small(reader.integer("qk_rope_head_dim", 1, kMaxHeadDim));
  mla.v_head_dim = small(reader.integer("v_head_dim", 1, kMaxHeadDim));
}

void read_sparse(JsonReader& reader, SparseAttention& dsa) {
  dsa.topk = small(reader.integer("topk", 1, kMaxPositions));
  dsa.index_heads = small(reader.integer("index_heads", 1, kMaxHeads));
  dsa.index_head_dim = small(reader.integer("index_head_dim", 1, kMaxHeadDim));
  dsa.rope_interleaved = reader.boolean_or("rope_interleaved", false);
  dsa.hadamard = reader.boolean_or("hadamard", true);
}

void read_global(JsonReader& reader, GlobalAttention& global) {
  global.layers = small(reader.integer("layers", 1, kMaxLayers));
  global.kv_heads = small(reader.integer("kv_heads", 1, kMaxHeads));
  global.head_dim = small(reader.integer("head_dim", 1, kMaxHeadDim));
  global.keys_are_values = reader.boolean_or("keys_are_values", false);
}

void read_convolution(JsonReader& reader, ShortConvolution& conv) {
  conv.layers = small(reader.integer("layers", 1, kMaxLayers));
  conv.kernel = small(reader.integer("kernel", 1, kMaxHeadDim));
  conv.bias = reader.boolean_or("bias", false);
}

void read_delta(JsonReader& reader, GatedDeltaNet& delta) {
  delta.layers = small(reader.integer("layers", 1, kMaxLayers));
  delta.key_heads = small(reader.integer("key_heads", 1, kMaxHeads));
  delta.value_heads = small(reader.integer("value_heads", 1, kMaxHeads));
  delta.key_head_dim = small(reader.integer("key_head_dim", 1, kMaxHeadDim));
  delta.value_head_dim = small(reader.integer("value_head_dim", 1, kMaxHeadDim));
  delta.conv_kernel = small(reader.integer("conv_kernel", 1, kMaxHeadDim));
  delta.gate_rank = small(reader.integer_or("gate_rank", 0, kMaxHidden, 0));
}

void read_state_space(JsonReader& reader, StateSpace& ssm) {
  ssm.layers = small(reader.integer("layers", 1, kMaxLayers));
  ssm.heads = small(reader.integer("heads", 1, kMaxHeads));
  ssm.head_dim = small(reader.integer("head_dim", 1, kMaxHeadDim));
  ssm.groups = small(reader.integer("groups", 1, kMaxHeads));
  ssm.state_dim = small(reader.integer("state_dim", 1, kMaxHeadDim));
  ssm.conv_kernel = small(reader.integer("conv_kernel", 1, kMaxHeadDim));
  ssm.gated_norm = reader.boolean_or("gated_norm", true);
  ssm.beside_attention = reader.boolean_or("beside_attention", false);
}

/// Empty if the file has no list of that name.
std::vector<std::string> read_texts(JsonReader& reader, std::string_view key,
                                    std::string_view expected) {
  std::vector<std::string> texts;
  const Json* list = reader.member(key);
  if (list == nullptr) return texts;
  if (!list->is_array()) {
    reader.fail(key, "not a list", std::string(expected));
    return texts;
  }
  for (const Json& text : *list) {
    if (!text.is_string()) {
      reader.fail(key, "an entry that is not a string", std::string(expected));
      return texts;
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

/// Reads only the keys that the scaling needs.
Status read_rope(const Json& object, const std::string& where, RotaryEmbedding& rope) {
  JsonReader reader(object, where, "/rope");
  rope.theta = reader.number("theta", kMinTheta, kMaxTheta);
  rope.rotated_part = reader.number_or("rotated_part", 0, 1, 1);
  rope.scaling = choice_or_first(reader, "scaling", kScalings);
  const bool llama3 = rope.scaling == RopeScaling::llama3;
  const bool yarn = rope.scaling == RopeScaling::yarn;
  const bool scaled = rope.scaling != RopeScaling::none && rope.scaling != RopeScaling::longrope;
  if (scaled) rope.factor = reader.number("factor", 1, kMaxRope);
  if (llama3 || yarn) {
    rope.original_positions = small(reader.integer("original_positions", 1, kMaxPositions));
  }
  if (llama3) {
    rope.low_frequency_factor = reader.number("low_frequency_factor", kMinRope, kMaxRope);
    rope.high_frequency_factor = reader.number("high_frequency_factor", kMinRope, kMaxRope);
  }
  if (yarn) {
    rope.beta_fast = reader.number("beta_fast", kMinRope, kMaxRope);
    rope.beta_slow = reader.number("beta_slow", kMinRope, kMaxRope);
    rope.whole_pairs = reader.boolean("whole_pairs");
    rope.attention_factor = reader.number("attention_factor", kMinRope, kMaxRope);
    rope.score_mscale = reader.number_or("score_mscale", 0, kMaxRope, 0);
  }
  return reader.finish();
}

/// Schema 1 has only shapes; schema 2 requires the constants.
Status read_constants(JsonReader& reader, std::int64_t schema, ModelSpec& model) {
  if (schema == kSchemaOfShapes) return Done{};
  ModelConstants& constants = model.constants.emplace();
  constants.norm_epsilon = reader.number("norm_epsilon", 0, 1);
  constants.other_arithmetic =
      read_texts(reader, "other_arithmetic", "a list of operations that no other key describes");
  if (model.position != PositionEmbedding::rope) return Done{};
  const Json* rope = reader.member("rope");
  if (rope != nullptr) return read_rope(*rope, reader.where(), constants.rope);
  reader.fail("rope", "the key 'rope' is missing", "an object with the base: {\"theta\": 10000}");
  return Done{};
}

}  // namespace

Result<ModelFile> read_model_file(const Json& document, std::string_view where) {
  JsonReader reader(document, std::string(where));
  ModelFile file;
  const std::int64_t schema = reader.integer("schema", kSchemaOfShapes, kSchema);
  file.model.name = reader.string_or("name", "");
  file.model.architecture = reader.string_or("architecture", "");
  file.model.source = reader.string_or("source", "");
  file.aliases = read_texts(reader, "aliases", "a list of names");
  file.published_parameters = reader.integer_or("published_parameters", 1, INT64_MAX, 0);
  read_shapes(reader, file.model);
  read_block(reader, file.model);
  const Status mixture = read_part(reader, "moe", file.model.moe, read_mixture);
  const Status latent = read_part(reader, "mla", file.model.mla, read_latent);
  const Status sparse = read_part(reader, "dsa", file.model.dsa, read_sparse);
  const Status global = read_part(reader, "global", file.model.global, read_global);
  const Status delta = read_part(reader, "delta", file.model.delta, read_delta);
  const Status ssm = read_part(reader, "ssm", file.model.ssm, read_state_space);
  const Status conv = read_part(reader, "conv", file.model.conv, read_convolution);
  file.model.mlp_only_layers = small(reader.integer_or("mlp_only_layers", 0, kMaxLayers, 0));
  file.model.layer_pattern = reader.string_or("layer_pattern", "");
  const Status constants = read_constants(reader, schema, file.model);
  for (const Status& read :
       {reader.finish(), mixture, latent, sparse, global, delta, ssm, conv, constants}) {
    if (!read) return read.error();
  }
  const Status sound = check_model(file.model, where);
  if (!sound) return sound.error();
  return file;
}

namespace {

Json mixture_to_json(const MixtureOfExperts& moe) {
  Json json{{"experts", moe.experts},
            {"experts_per_token", moe.experts_per_token},
            {"expert_ffn_hidden", moe.expert_ffn_hidden},
            {"shared_ffn_hidden", moe.shared_ffn_hidden},
            {"first_dense_layers", moe.first_dense_layers},
            {"every", moe.every},
            {"expert_bias", moe.expert_bias},
            {"router_bias", moe.router_bias},
            {"shared_expert_gate", moe.shared_expert_gate}};
  // Omitted where unset, so that files of other mixtures keep their bytes.
  if (moe.latent_hidden > 0) json["latent_hidden"] = moe.latent_hidden;
  if (moe.branch_norms) json["branch_norms"] = true;
  if (moe.router_groups > 1) {
    json["router_groups"] = moe.router_groups;
    json["router_group_topk"] = moe.router_group_topk;
  }
  if (moe.router_score != usual_score(moe)) {
    json["router_score"] = name_in(kRouterScores, moe.router_score);
  }
  if (!moe.router_normalized) json["router_normalized"] = false;
  if (moe.router_scaling != 1) json["router_scaling"] = moe.router_scaling;
  return json;
}

Json latent_to_json(const LatentAttention& mla) {
  return {{"kv_lora_rank", mla.kv_lora_rank},
          {"q_lora_rank", mla.q_lora_rank},
          {"qk_nope_head_dim", mla.qk_nope_head_dim},
          {"qk_rope_head_dim", mla.qk_rope_head_dim},
          {"v_head_dim", mla.v_head_dim}};
}

Json sparse_to_json(const SparseAttention& dsa) {
  Json json{
      {"topk", dsa.topk}, {"index_heads", dsa.index_heads}, {"index_head_dim", dsa.index_head_dim}};
  if (dsa.rope_interleaved) json["rope_interleaved"] = true;
  if (!dsa.hadamard) json["hadamard"] = false;
  return json;
}

Json global_to_json(const GlobalAttention& global) {
  return {{"layers", global.layers},
          {"kv_heads", global.kv_heads},
          {"head_dim", global.head_dim},
          {"keys_are_values", global.keys_are_values}};
}

Json convolution_to_json(const ShortConvolution& conv) {
  return {{"layers", conv.layers}, {"kernel", conv.kernel}, {"bias", conv.bias}};
}

Json delta_to_json(const GatedDeltaNet& delta) {
  Json json{{"layers", delta.layers},
            {"key_heads", delta.key_heads},
            {"value_heads", delta.value_heads},
            {"key_head_dim", delta.key_head_dim},
            {"value_head_dim", delta.value_head_dim},
            {"conv_kernel", delta.conv_kernel}};
  if (delta.gate_rank > 0) json["gate_rank"] = delta.gate_rank;  // other files keep their bytes
  return json;
}

Json state_space_to_json(const StateSpace& ssm) {
  Json json{{"layers", ssm.layers}, {"heads", ssm.heads},         {"head_dim", ssm.head_dim},
            {"groups", ssm.groups}, {"state_dim", ssm.state_dim}, {"conv_kernel", ssm.conv_kernel}};
  if (!ssm.gated_norm) json["gated_norm"] = false;  // other files keep their bytes
  if (ssm.beside_attention) json["beside_attention"] = true;
  return json;
}

Json rope_to_json(const RotaryEmbedding& rope) {
  Json json{{"theta", rope.theta}};
  if (rope.rotated_part != 1) json["rotated_part"] = rope.rotated_part;
  if (rope.scaling == RopeScaling::none) return json;
  json["scaling"] = name_in(kScalings, rope.scaling);
  if (rope.scaling == RopeScaling::longrope) return json;
  json["factor"] = rope.factor;
  if (rope.scaling == RopeScaling::llama3 || rope.scaling == RopeScaling::yarn) {
    json["original_positions"] = rope.original_positions;
  }
  if (rope.scaling == RopeScaling::llama3) {
    json["low_frequency_factor"] = rope.low_frequency_factor;
    json["high_frequency_factor"] = rope.high_frequency_factor;
  }
  if (rope.scaling == RopeScaling::yarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    json["whole_pairs"] = rope.whole_pairs;
    json["attention_factor"] = rope.attention_factor;
    if (rope.score_mscale != 0) json["score_mscale"] = rope.score_mscale;
  }
  return json;
}

}  // namespace

std::string model_to_json(const ModelSpec& model) {
  Json file;
  // A model without constants keeps its bytes, and thus its hash, of older versions.
  file["schema"] = model.constants ? kSchema : kSchemaOfShapes;
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
  if (model.prediction_modules > 0) file["prediction_modules"] = model.prediction_modules;
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
  // Omitted if unset, so that files of dense models keep their bytes.
  if (model.attention_sinks) file["attention_sinks"] = true;
  if (model.qk_norm_all_heads) file["qk_norm_all_heads"] = true;
  if (model.attention_output_gate) file["attention_output_gate"] = true;
  if (model.moe != MixtureOfExperts{}) file["moe"] = mixture_to_json(model.moe);
  if (model.mla != LatentAttention{}) file["mla"] = latent_to_json(model.mla);
  if (model.dsa != SparseAttention{}) file["dsa"] = sparse_to_json(model.dsa);
  if (model.value_norm) file["value_norm"] = true;
  if (model.global != GlobalAttention{}) file["global"] = global_to_json(model.global);
  if (model.delta != GatedDeltaNet{}) file["delta"] = delta_to_json(model.delta);
  if (model.ssm != StateSpace{}) file["ssm"] = state_space_to_json(model.ssm);
  if (model.conv != ShortConvolution{}) file["conv"] = convolution_to_json(model.conv);
  if (model.mlp_only_layers > 0) file["mlp_only_layers"] = model.mlp_only_layers;
  if (!model.layer_pattern.empty()) file["layer_pattern"] = model.layer_pattern;
  if (model.constants) {
    file["norm_epsilon"] = model.constants->norm_epsilon;
    if (model.position == PositionEmbedding::rope) {
      file["rope"] = rope_to_json(model.constants->rope);
    }
    if (!model.constants->other_arithmetic.empty()) {
      file["other_arithmetic"] = model.constants->other_arithmetic;
    }
  }
  constexpr int kIndent = 2;
  return file.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace echelon
