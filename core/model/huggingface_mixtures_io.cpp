#include "core/model/huggingface_mixtures_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"
#include "core/model/router_arithmetic.hpp"

namespace echelon {

namespace {

/// Layer i has experts when step | i + 1 and it is not among mlp_only_layers.
/// Source: transformers, models/qwen2_moe/modeling_qwen2_moe.py.
void read_sparse_steps(JsonReader& reader, ModelSpec& model) {
  const int step = small(reader.integer_or("decoder_sparse_step", 1, kMaxLayers, 1));
  const auto dense = read_layer_list(reader, "mlp_only_layers", model.layers);
  std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
  for (std::size_t i = 0; i < has_experts.size(); ++i) {
    has_experts[i] = (i + 1) % static_cast<std::size_t>(step) == 0;
  }
  for (const int layer : dense.value_or(std::vector<int>{})) {
    has_experts[static_cast<std::size_t>(layer)] = false;
  }
  const bool listed = dense && !dense->empty();
  set_pattern(reader, listed ? "mlp_only_layers" : "decoder_sparse_step", model, has_experts);
}

void read_qwen_experts(JsonReader& reader, ModelSpec& model) {
  const bool renamed = !reader.has("num_experts") && reader.has("num_local_experts");
  model.moe.experts =
      small(reader.integer(renamed ? "num_local_experts" : "num_experts", 1, kMaxExperts));
  model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  model.moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  read_sparse_steps(reader, model);
}

/// What the configuration class of a family with an indexer has; rotary pairs as the file says.
struct IndexerDefaults {
  int heads;
  bool interleaved;
  bool hadamard;
};

/// The kinds of the layers' indexers by the class's rules: a list, else letters or a list under
/// another name, else full ones at an interval. Nothing after a failure.
std::vector<std::string> indexer_kinds(JsonReader& reader, int layers) {
  std::vector<std::string> kinds;
  const auto count = static_cast<std::size_t>(layers);
  for (const std::string_view key : {"indexer_types", "index_topk_pattern"}) {
    const Json* list = reader.member(key);
    if (!kinds.empty() || list == nullptr || list->is_null()) continue;
    if (list->is_string() && key == "index_topk_pattern") {
      for (const char letter : list->get<std::string>()) {
        kinds.emplace_back(letter == 'F' ? "full" : letter == 'S' ? "shared" : "?");
      }
    } else if (list->is_array()) {
      for (const Json& kind : *list)
        kinds.push_back(kind.is_string() ? kind.get<std::string>() : "?");
    }
    const bool known = std::ranges::all_of(
        kinds, [](const std::string& kind) { return kind == "full" || kind == "shared"; });
    if (known && kinds.size() == count) continue;
    reader.fail(key, fmt::format("not the kinds of the indexers of {} layers", layers),
                "an entry for each layer: full or shared");
    return {};
  }
  const std::int64_t interval = reader.integer_or("index_topk_freq", 0, kMaxLayers, 1);
  const std::int64_t offset = reader.integer_or("index_skip_topk_offset", 0, kMaxLayers, 2);
  const std::int64_t every = std::max<std::int64_t>(interval, 1);
  for (std::int64_t i = 0; kinds.size() < count; ++i) {
    const bool full = std::max<std::int64_t>(i - offset + 1, 0) % every == 0;
    kinds.emplace_back(full ? "full" : "shared");
  }
  return kinds;
}

/// An indexer in every layer. A layer that takes another one's keys instead has none (GLM-5's later
/// versions; arXiv 2603.12201). Source: transformers 5.24, models/glm_moe_dsa/
/// configuration_glm_moe_dsa.py and configuration_utils.py (names of kinds of layers); the key
/// indexer_rope_interleave is that of the published files.
void read_indexer(JsonReader& reader, ModelSpec& model, const IndexerDefaults& otherwise) {
  SparseAttention& dsa = model.dsa;
  dsa.topk = small(reader.integer_or("index_topk", 1, kMaxPositions, 2048));
  dsa.index_heads = small(reader.integer_or("index_n_heads", 1, kMaxHeads, otherwise.heads));
  dsa.index_head_dim = small(reader.integer_or("index_head_dim", 1, kMaxHeadDim, 128));
  dsa.rope_interleaved = reader.boolean_or("indexer_rope_interleave", otherwise.interleaved);
  dsa.hadamard = otherwise.hadamard;
  if (model.mla.q_lora_rank == 0) {
    reader.fail("q_lora_rank", "null, with an indexer that reads the queries' latent",
                "the width of the queries' latent");
  }
  const std::vector<std::string> kinds = indexer_kinds(reader, model.layers);
  if (std::ranges::find(kinds, "shared") != kinds.end()) {
    const char* key = reader.has("indexer_types")        ? "indexer_types"
                      : reader.has("index_topk_pattern") ? "index_topk_pattern"
                                                         : "index_topk_freq";
    reader.fail(key, "layers that attend to the keys of another layer's indexer",
                "an indexer in every layer; shared keys have no price");
  }
  const Json* layers = reader.member("layer_types");
  if (layers != nullptr && !layers->is_null()) {
    const bool fits =
        layers->is_array() && layers->size() == static_cast<std::size_t>(model.layers);
    const bool indexed =
        fits && std::ranges::all_of(*layers, [](const Json& kind) {
          return kind == "indexed_attention" || kind == "deepseek_sparse_attention";
        });
    if (!indexed) {
      reader.fail("layer_types", "layers without an indexer, or another number of layers",
                  fmt::format("indexed_attention in each of {} layers", model.layers));
    }
  }
  reader.ignore({"index_share_for_mtp_iteration"});
}

/// Number of layers that attend within chunks: those with rotary positions, three of four by
/// default.
int chunked_layers(JsonReader& reader, const ModelSpec& model) {
  const std::optional<int> listed = listed_layers(reader, model, "chunked_attention");
  const std::int64_t interval = reader.integer_or("no_rope_layer_interval", 1, kMaxLayers, 4);
  const Json* rotary = reader.member("no_rope_layers");  // 1: rotary, despite the name
  if (listed) return *listed;
  const bool by_rule = rotary == nullptr || rotary->is_null() || rotary->empty();
  if (by_rule) return model.layers - model.layers / small(interval);
  if (!rotary->is_array() || rotary->size() < static_cast<std::size_t>(model.layers)) {
    reader.fail("no_rope_layers", "not a list with an entry for each layer",
                fmt::format("a list of {} entries, each 0 or 1", model.layers));
    return 0;
  }
  return small(std::count(rotary->begin(), rotary->begin() + model.layers, Json(1)));
}

void read_llama4_experts(JsonReader& reader, ModelSpec& model) {
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("num_local_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  // Routed and shared experts are intermediate_size wide, dense layers intermediate_size_mlp.
  moe.expert_ffn_hidden = moe.shared_ffn_hidden = model.ffn_hidden;
  model.ffn_hidden = small(reader.integer("intermediate_size_mlp", 1, kMaxFfn));
  const auto step =
      static_cast<std::size_t>(reader.integer_or("interleave_moe_layer_step", 1, kMaxLayers, 1));
  const auto listed = read_layer_list(reader, "moe_layers", model.layers);
  std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
  for (std::size_t i = step - 1; !listed && i < has_experts.size(); i += step) {
    has_experts[i] = true;
  }
  for (const int layer : listed.value_or(std::vector<int>{})) {
    has_experts[static_cast<std::size_t>(layer)] = true;
  }
  set_pattern(reader, listed ? "moe_layers" : "interleave_moe_layer_step", model, has_experts);
}

}  // namespace

void read_mixtral(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.theta = 1e6}});
  read_window(reader, model, 0, model.layers);
  model.moe.experts = small(reader.integer("num_local_experts", 1, kMaxExperts));
  model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  model.moe.expert_ffn_hidden = model.ffn_hidden;
}

void read_qwen2_moe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  model.qkv_bias = reader.boolean_or("qkv_bias", true);
  read_qwen_experts(reader, model);
  read_router_weights(reader, model.moe, {.normalized = false});
  model.moe.shared_ffn_hidden =
      small(reader.integer("shared_expert_intermediate_size", 1, kMaxFfn));
  model.moe.shared_expert_gate = true;
  const bool windowed = reader.boolean_or("use_sliding_window", false);
  const std::int64_t below = reader.integer_or("max_window_layers", 0, kMaxLayers, 28);
  constexpr int kClassDefault = 4096;
  // Every second layer, from the first, below max_window_layers.
  const int window_end = std::min(small(below), model.layers);
  reader.ignore({"sliding_window", "layer_types"});  // unused without use_sliding_window
  if (windowed) read_window(reader, model, kClassDefault, (window_end + 1) / 2);
}

void read_qwen3_moe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  model.qk_norm = true;
  read_attention_bias(reader, model);
  read_qwen_experts(reader, model);
  read_router_weights(reader, model.moe, {.normalized = false});
  constexpr int kClassDefault = 4096;
  const bool windowed = reader.boolean_or("use_sliding_window", false);
  if (windowed) read_window(reader, model, kClassDefault, model.layers);
  // Unused without a window; every model has norms of queries and keys.
  reader.ignore({"max_window_layers", "sliding_window", "use_qk_norm"});
  if (reader.integer_or("shared_expert_intermediate_size", 0, kMaxFfn, 0) > 0) {
    reader.fail("shared_expert_intermediate_size", "shared experts", "0: Qwen3 has none");
  }
}

/// Qwen3-Next and Qwen3.5 with experts: in layers of layer_types "linear_attention", else in all
/// but every full_attention_interval-th, gated delta nets. Source: transformers,
/// models/qwen3_next/configuration_qwen3_next.py and models/qwen3_5_moe/.
void read_qwen3_next(JsonReader& reader, ModelSpec& model) {
  read_gated_qwen(reader, model);
  read_qwen_experts(reader, model);
  read_router_weights(reader, model.moe, {});
  model.moe.shared_ffn_hidden =
      small(reader.integer("shared_expert_intermediate_size", 1, kMaxFfn));
  model.moe.shared_expert_gate = true;
  if (!reader.has("intermediate_size")) model.ffn_hidden = model.moe.expert_ffn_hidden;  // unused
}

/// GLM-4.5 to 4.7, whose output projection has no bias. Source: transformers,
/// models/glm4_moe/modular_glm4_moe.py.
void read_glm4_moe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.rotated_part = 0.5}});
  model.qkv_bias = reader.boolean_or("attention_bias", false);
  model.qk_norm = reader.boolean_or("use_qk_norm", false);
  read_deepseek_experts(reader, model, {});
  read_router_weights(reader, model.moe, {.score = RouterScore::sigmoid});
  model.moe.router_bias = true;  // e_score_correction_bias, as in DeepSeek-V3
}

/// GLM-4.5V. Source: transformers, models/glm4v_moe/configuration_glm4v_moe.py.
void read_glm4v_moe(JsonReader& reader, ModelSpec& model) {
  read_glm4_moe(reader, model);
  if (reader.lacks("attention_bias")) model.qkv_bias = true;
}

/// MiniMax-M2, whose norms of queries and keys span all heads. Source: transformers,
/// models/minimax_m2/modular_minimax_m2.py, and the keys of the published files.
void read_minimax_m2(JsonReader& reader, ModelSpec& model) {
  constexpr double kTheta = 5e6;
  read_llama_like(reader, model, {.rope = {.theta = kTheta}});
  require_head_dim(reader);
  const Json* kinds = reader.member("attn_type_list");
  if (kinds != nullptr && !kinds->is_null() &&
      !(kinds->is_array() && std::all_of(kinds->begin(), kinds->end(),
                                         [](const Json& kind) { return kind == Json(1); }))) {
    reader.fail("attn_type_list", "layers with lightning attention (an entry other than 1)",
                "1 in every layer: full attention");
    return;
  }
  if (reader.integer_or("shared_intermediate_size", 0, kMaxFfn, 0) > 0) {
    reader.fail("shared_intermediate_size", "shared experts", "0: MiniMax-M2 has none");
    return;
  }
  if (reader.has("rotary_dim")) {
    const std::int64_t rotated = reader.integer("rotary_dim", 1, model.head_dim);
    model.constants->rope.rotated_part =
        static_cast<double>(rotated) / static_cast<double>(model.head_dim);
  }
  if (const std::string kind = reader.string_or("qk_norm_type", "per_layer"); kind != "per_layer") {
    reader.fail("qk_norm_type", "'" + kind + "'", "per_layer: norms over all heads");
    return;
  }
  model.qk_norm_all_heads = reader.boolean_or("use_qk_norm", true);
  model.moe.experts = small(reader.integer("num_local_experts", 1, kMaxExperts));
  model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  model.moe.expert_ffn_hidden = model.ffn_hidden;
  model.moe.router_bias = reader.boolean_or("use_routing_bias", true);
  read_router_weights(reader, model.moe, {.score = RouterScore::sigmoid});
}

/// Norms of queries and keys span all heads.
/// Source: transformers, models/olmoe/modeling_olmoe.py.
void read_olmoe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  read_attention_bias(reader, model);
  const Json* clip = reader.member("clip_qkv");
  if (clip != nullptr && !clip->is_null()) add_arithmetic(model, "clipped queries, keys, values");
  model.qk_norm_all_heads = true;
  model.moe.experts = small(reader.integer("num_experts", 1, kMaxExperts));
  model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  model.moe.expert_ffn_hidden = model.ffn_hidden;
  read_router_weights(reader, model.moe, {.normalized = false});
}

// Source of the default groups and weights: transformers,
// models/deepseek_v2/configuration_deepseek_v2.py and
// models/deepseek_v3/configuration_deepseek_v3.py.
void read_deepseek_v2(JsonReader& reader, ModelSpec& model) {
  read_deepseek(reader, model, {.weights = {.normalized = false}});
  if (reader.string_or("topk_method", "greedy") == "greedy") {  // from all groups
    model.moe.router_groups = model.moe.router_group_topk = 1;
  }
  // DeepSeek-V3 adds the two best of a group instead.
  if (model.moe.router_groups > 1) {
    add_arithmetic(model, kGroupsByBestExpert);
  }
}

void read_deepseek_v3(JsonReader& reader, ModelSpec& model) {
  read_deepseek(reader, model,
                {.groups = {.groups = 8, .topk = 4},
                 .weights = {.score = RouterScore::sigmoid, .scaling = 2.5}});
  // e_score_correction_bias: stored with the weights, updated by a rule instead of gradients.
  model.moe.router_bias = model.moe.experts > 0;
}

/// DeepSeek-V3.2: DeepSeek-V3's block whose attention reads the keys that an indexer chooses.
/// Source: transformers, models/deepseek_v32/configuration_deepseek_v32.py.
void read_deepseek_v32(JsonReader& reader, ModelSpec& model) {
  read_deepseek_v3(reader, model);
  read_indexer(reader, model, {.heads = 64, .interleaved = false, .hadamard = true});
}

/// GLM-5. Source: transformers, models/glm_moe_dsa/configuration_glm_moe_dsa.py.
void read_glm_moe_dsa(JsonReader& reader, ModelSpec& model) {
  read_deepseek(reader, model,
                {.weights = {.score = RouterScore::sigmoid, .scaling = 2.5}, .norm_epsilon = 1e-5});
  model.moe.router_bias = model.moe.experts > 0;
  read_indexer(reader, model, {.heads = 32, .interleaved = true, .hadamard = false});
}

void read_llama4(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.theta = 500'000}});
  read_attention_bias(reader, model);
  read_llama4_experts(reader, model);
  // Source: transformers, models/llama4/modeling_llama4.py: Llama4Router, Llama4TextMoe.
  model.moe.router_score = RouterScore::sigmoid;
  model.moe.router_normalized = false;
  add_arithmetic(model, "weights of experts multiply their inputs");
  add_arithmetic(model, "layers without rotary positions, of scaled queries");
  reader.ignore({"attn_temperature_tuning", "floor_scale", "attn_scale"});
  if (reader.boolean_or("use_qk_norm", true)) {
    add_arithmetic(model, "queries and keys divided by their norm in layers with rotary positions");
  }
  const Json* size = reader.member("attention_chunk_size");  // null: no chunks
  constexpr int kClassDefault = 8192;
  const std::int64_t chunk =
      size != nullptr && size->is_null()
          ? 0
          : reader.integer_or("attention_chunk_size", 1, kMaxPositions, kClassDefault);
  const int chunked = chunked_layers(reader, model);
  if (chunk == 0 || chunked == 0) return;
  model.sliding_window = small(chunk);
  model.windowed_layers = chunked;
  add_arithmetic(model, "attention within chunks instead of a window");
}

void read_gpt_oss(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.theta = 150'000}});
  require_head_dim(reader);
  model.qkv_bias = model.attention_output_bias = reader.boolean_or("attention_bias", true);
  model.attention_sinks = true;
  constexpr int kClassDefault = 128;
  // Every second layer, from the first.
  read_window(reader, model, kClassDefault, (model.layers + 1) / 2);
  model.moe.experts = small(reader.integer("num_local_experts", 1, kMaxExperts));
  model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  model.moe.expert_ffn_hidden = model.ffn_hidden;
  model.moe.expert_bias = model.moe.router_bias = true;
  // A second name, the context before the extension, and the bound of expert_bias.
  reader.ignore({"experts_per_token", "initial_context_length", "swiglu_alpha", "swiglu_limit"});
}

}  // namespace echelon
