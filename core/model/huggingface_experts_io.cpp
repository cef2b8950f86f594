#include "core/model/huggingface_experts_io.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

constexpr double kMostScaling = 1000;

/// A number that may be null or missing.
int number_or(JsonReader& reader, std::string_view key, int otherwise) {
  const Json* value = reader.member(key);
  if (value == nullptr || value->is_null()) return otherwise;
  return small(reader.integer(key, 1, kMaxExperts));
}

}  // namespace

void read_latent_attention(JsonReader& reader, ModelSpec& model, std::int64_t value_head) {
  LatentAttention& mla = model.mla;
  mla.kv_lora_rank = small(reader.integer("kv_lora_rank", 1, kMaxHidden));
  const Json* queries = reader.member("q_lora_rank");  // null: projected directly
  if (queries == nullptr || !queries->is_null()) {
    mla.q_lora_rank = small(reader.integer("q_lora_rank", 1, kMaxHidden));
  }
  mla.qk_nope_head_dim = small(reader.integer("qk_nope_head_dim", 1, kMaxHeadDim));
  mla.qk_rope_head_dim = small(reader.integer("qk_rope_head_dim", 1, kMaxHeadDim));
  mla.v_head_dim =
      small(value_head > 0 ? reader.integer_or("v_head_dim", 1, kMaxHeadDim, value_head)
                           : reader.integer("v_head_dim", 1, kMaxHeadDim));
  model.kv_heads = model.heads;
  constexpr const char* kPairs = "num_key_value_heads";
  if (reader.has(kPairs)) {
    const std::int64_t pairs = reader.integer(kPairs, 1, kMaxHeads);
    if (!reader.failed() && pairs != model.heads) {
      reader.fail(kPairs, fmt::format("{} key-value heads of {} heads", pairs, model.heads),
                  "num_attention_heads: latent attention makes keys and values of every head");
    }
  }
  // In the files head_dim is the rotary part, or absent.
  model.head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
}

bool read_mlp_kinds(JsonReader& reader, ModelSpec& model) {
  constexpr const char* kKey = "mlp_layer_types";
  const Json* kinds = reader.member(kKey);
  if (kinds == nullptr || kinds->is_null()) return false;
  if (!kinds->is_array() || kinds->size() != static_cast<std::size_t>(model.layers)) {
    reader.fail(kKey, "not a list with an entry for each layer",
                fmt::format("a list of {} entries, each dense or sparse", model.layers));
    return true;
  }
  std::vector<bool> has_experts;
  for (const Json& kind : *kinds) has_experts.push_back(kind == Json("sparse"));
  reader.ignore({"first_k_dense_replace", "moe_layer_freq"});
  set_pattern(reader, kKey, model, has_experts);
  return true;
}

std::optional<std::vector<int>> read_layer_list(JsonReader& reader, std::string_view key,
                                                int layers) {
  const Json* list = reader.member(key);
  if (list == nullptr || list->is_null()) return std::nullopt;
  const auto refuse = [&](std::string_view found) {
    reader.fail(key, std::string(found),
                fmt::format("a list of layers, each between 0 and {}", layers - 1));
    return std::nullopt;
  };
  if (!list->is_array()) return refuse("not a list");
  std::vector<int> numbers;
  for (const Json& entry : *list) {
    if (!entry.is_number_integer()) return refuse("an entry that is not a whole number");
    const auto layer = entry.get<std::int64_t>();
    if (layer < 0 || layer >= layers) return refuse(fmt::format("layer {}", layer));
    numbers.push_back(small(layer));
  }
  return numbers;
}

void set_pattern(JsonReader& reader, std::string_view key, ModelSpec& model,
                 const std::vector<bool>& has_experts) {
  const auto begin = has_experts.begin();
  const auto first = std::find(begin, has_experts.end(), true);
  if (first == has_experts.end()) {
    reader.fail(key, "no layer with experts", "at least one");
    return;
  }
  const auto second = std::find(first + 1, has_experts.end(), true);
  model.moe.first_dense_layers = small(first - begin);
  // With a single expert layer there is no second one.
  model.moe.every = second == has_experts.end() ? model.layers : small(second - first);
  for (int layer = 0; layer < model.layers; ++layer) {
    const bool expected = model.layer_kind(layer) == LayerKind::moe;
    if (has_experts[static_cast<std::size_t>(layer)] == expected) continue;
    reader.fail(key, fmt::format("irregular placement of layers with experts (layer {})", layer),
                "layers with experts at a constant interval up to the last layer");
    return;
  }
}

void read_router_weights(JsonReader& reader, MixtureOfExperts& moe, RouterWeights usual) {
  const char* usual_name = usual.score == RouterScore::sigmoid ? "sigmoid" : "softmax";
  const std::string score = reader.string_or("scoring_func", usual_name);
  if (score != "softmax" && score != "sigmoid") {
    reader.fail("scoring_func", "'" + score + "'", "softmax or sigmoid");
    return;
  }
  moe.router_score = score == "sigmoid" ? RouterScore::sigmoid : RouterScore::softmax;
  moe.router_normalized = reader.boolean_or("norm_topk_prob", usual.normalized);
  moe.router_scaling = reader.number_or("routed_scaling_factor", 0, kMostScaling, usual.scaling);
}

void set_corrected_router(JsonReader& reader, MixtureOfExperts& moe, std::string_view scaling,
                          double usual) {
  moe.router_score = RouterScore::sigmoid;
  moe.router_bias = true;
  moe.router_scaling = reader.number_or(scaling, 0, kMostScaling, usual);
}

void read_router_groups(JsonReader& reader, MixtureOfExperts& moe, RouterGroups otherwise) {
  moe.router_groups = number_or(reader, "n_group", otherwise.groups);
  const int topk = number_or(reader, "topk_group", otherwise.topk);
  moe.router_group_topk = moe.router_groups > 1 ? topk : 1;
}

void set_shared_experts(JsonReader& reader, std::string_view key, MixtureOfExperts& moe,
                        std::int64_t count, std::int64_t width) {
  if (count * width > kMaxFfn) {
    reader.fail(key,
                fmt::format("{} shared experts with a total width of {}", count, count * width),
                fmt::format("a total width of at most {}", kMaxFfn));
    return;
  }
  moe.shared_ffn_hidden = small(count * width);
}

void set_dense_layers(JsonReader& reader, ModelSpec& model, std::string_view key,
                      std::int64_t usual) {
  const std::int64_t dense = reader.integer_or(key, 0, kMaxLayers, usual);
  std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
  for (std::int64_t i = dense; i < model.layers; ++i) {
    has_experts[static_cast<std::size_t>(i)] = true;
  }
  set_pattern(reader, key, model, has_experts);
}

void read_deepseek_experts(JsonReader& reader, ModelSpec& model, RouterGroups otherwise) {
  MixtureOfExperts& moe = model.moe;
  const bool renamed = !reader.has("n_routed_experts") && reader.has("num_experts");  // Sarvam
  moe.experts = small(reader.integer(renamed ? "num_experts" : "n_routed_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  const char* key =
      renamed && reader.has("num_shared_experts") ? "num_shared_experts" : "n_shared_experts";
  const Json* shared = reader.member(key);  // null: none
  const bool none = shared != nullptr && shared->is_null();
  const std::int64_t count = none ? 0 : reader.integer(key, 0, kMaxExperts);
  set_shared_experts(reader, key, moe, count, moe.expert_ffn_hidden);
  read_router_groups(reader, moe, otherwise);
  if (read_mlp_kinds(reader, model)) return;
  const std::int64_t dense = reader.integer("first_k_dense_replace", 0, kMaxLayers);
  const std::int64_t step = reader.integer_or("moe_layer_freq", 1, kMaxLayers, 1);
  std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
  for (std::int64_t i = dense; i < model.layers; ++i) {
    has_experts[static_cast<std::size_t>(i)] = i % step == 0;
  }
  const bool no_layer = std::ranges::count(has_experts, true) == 0;
  set_pattern(reader, no_layer ? "moe_layer_freq" : "first_k_dense_replace", model, has_experts);
}

void read_latent_block(JsonReader& reader, ModelSpec& model, const LatentDefaults& otherwise) {
  read_widths(reader, model);
  read_positions(reader, model);
  read_latent_attention(reader, model,
                        otherwise.hidden_value_heads ? std::max(1, model.hidden / model.heads) : 0);
  model.activation = read_activation(reader, "hidden_act", Activation::silu, model);
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", otherwise.tied_embeddings);
  read_norm_epsilon(reader, model, "rms_norm_eps", otherwise.norm_epsilon);
  read_rope(reader, model);
  read_attention_bias(reader, model);
  read_dropout(reader, model);
  if (!reader.boolean_or("rope_interleave", true)) {
    add_arithmetic(model, "rotated pairs that are half a head apart in latent attention");
  }
  // Written by transformers 5; they follow from the rest.
  reader.ignore({"head_dim", "qk_head_dim"});
}

void read_deepseek(JsonReader& reader, ModelSpec& model, const DeepseekDefaults& otherwise) {
  read_latent_block(reader, model, {.norm_epsilon = otherwise.norm_epsilon});
  reader.ignore({"topk_method"});  // the groups say which experts a token reaches
  const Json* experts = reader.member("n_routed_experts");
  const bool none = experts != nullptr && experts->is_null();
  const bool all_dense = !reader.has("mlp_layer_types") && reader.has("first_k_dense_replace") &&
                         reader.integer("first_k_dense_replace", 0, kMaxLayers) >= model.layers;
  if (all_dense) {  // as transformers builds it, whatever the experts would be
    reader.ignore({"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
                   "n_shared_experts", "n_group", "topk_group", "moe_layer_freq", "scoring_func",
                   "norm_topk_prob", "routed_scaling_factor"});
  } else if (!none) {
    read_deepseek_experts(reader, model, otherwise.groups);
    read_router_weights(reader, model.moe, otherwise.weights);
  }
}

}  // namespace echelon
