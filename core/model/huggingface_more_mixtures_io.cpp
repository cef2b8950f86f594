// Source of keys, defaults and shapes: transformers, models/FAMILY/configuration_FAMILY.py and
// modeling_FAMILY.py; of Ling and Ring (bailing_moe) the code in the repositories of their models.
#include "core/model/huggingface_more_mixtures_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/model/huggingface_dense_io.hpp"
#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// A number, or a list with the same number for every layer.
std::int64_t same_in_all_layers(JsonReader& reader, std::string_view key, std::int64_t most) {
  const Json* value = reader.member(key);
  if (value == nullptr || !value->is_array()) return reader.integer(key, 1, most);
  const bool same = !value->empty() && value->front().is_number_integer() &&
                    std::all_of(value->begin(), value->end(),
                                [&](const Json& each) { return each == value->front(); });
  const std::int64_t number = same ? value->front().get<std::int64_t>() : 0;
  if (same && number >= 1 && number <= most) return number;
  reader.fail(key, "a list of different numbers, or of none",
              fmt::format("one whole number between 1 and {} for all layers", most));
  return 1;
}

/// Layers from `first` to `last` (counted from 0) whose number, counted from 1, `interval` divides.
void set_layers_with_experts(JsonReader& reader, std::string_view key, ModelSpec& model,
                             std::int64_t first, std::int64_t last, std::int64_t interval) {
  std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
  for (std::int64_t i = first; i <= std::min<std::int64_t>(last, model.layers - 1); ++i) {
    has_experts[static_cast<std::size_t>(i)] = (i + 1) % interval == 0;
  }
  set_pattern(reader, key, model, has_experts);
}

}  // namespace

/// Ling and Ring, 1 and 2.
void read_bailing_moe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .rope = {.theta = 600'000}});
  model.qkv_bias = reader.boolean_or("use_qkv_bias", false);
  model.attention_output_bias = reader.boolean_or("use_bias", false);
  model.qk_norm = reader.boolean_or("use_qk_norm", false);
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("num_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  const std::int64_t width =
      reader.integer_or("moe_shared_expert_intermediate_size", 1, kMaxFfn, moe.expert_ffn_hidden);
  set_shared_experts(reader, "num_shared_experts", moe,
                     reader.integer_or("num_shared_experts", 0, kMaxExperts, 0), width);
  read_router_groups(reader, moe, {});
  read_router_weights(reader, moe, {});
  if (reader.string_or("score_function", "softmax") == "sigmoid") {
    moe.router_score = RouterScore::sigmoid;
  }
  moe.router_bias = reader.boolean_or("moe_router_enable_expert_bias", false);
  const std::int64_t dense = reader.integer_or("first_k_dense_replace", 0, kMaxLayers, 0);
  set_layers_with_experts(reader, "first_k_dense_replace", model, dense, model.layers, 1);
  // rotary_dim repeats partial_rotary_factor; dropouts of other places are not modelled.
  reader.ignore({"rotary_dim", "embedding_dropout", "output_dropout"});
}

void read_dots1(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  read_attention_bias(reader, model);
  model.qk_norm = true;
  read_deepseek_experts(reader, model, {});
  MixtureOfExperts& moe = model.moe;
  // Files have "noaux_tc" for its scoring_func; the code knows the sigmoid only.
  set_corrected_router(reader, moe, "routed_scaling_factor", 1);
  moe.router_normalized = reader.boolean_or("norm_topk_prob", false);
  reader.ignore({"scoring_func", "use_sliding_window"});
  constexpr int kClassDefault = 4096;
  const std::int64_t full = reader.integer_or("max_window_layers", 0, kMaxLayers, 62);
  read_window(reader, model, kClassDefault, std::max(0, model.layers - small(full)));
}

void read_ernie4_5_moe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.theta = 500'000}});
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", true);
  if (reader.boolean_or("use_bias", false)) {
    reader.fail("use_bias", "biases in experts and shared experts", "false");
    return;
  }
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("moe_num_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("moe_k", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  set_shared_experts(reader, "moe_num_shared_experts", moe,
                     reader.integer("moe_num_shared_experts", 0, kMaxExperts),
                     moe.expert_ffn_hidden);
  const std::int64_t first = reader.integer("moe_layer_start_index", 0, kMaxLayers);
  const std::int64_t last = reader.integer_or("moe_layer_end_index", -1, kMaxLayers, -1);
  set_layers_with_experts(reader, "moe_layer_start_index", model, first,
                          last < 0 ? model.layers : last,
                          reader.integer_or("moe_layer_interval", 1, kMaxLayers, 1));
  moe.router_bias = true;  // e_score_correction_bias
  add_arithmetic(model, "rotary pairs next to each other");
  // Capacities are those of inference; moe_norm_min keeps a sum from zero.
  reader.ignore(
      {"moe_capacity", "moe_gate", "moe_use_aux_free", "moe_norm_min", "moe_aux_loss_coef"});
}

/// GLM-4.7-Flash: DeepSeek-V3's block. Newer files list the kinds of its MLPs.
void read_glm4_moe_lite(JsonReader& reader, ModelSpec& model) {
  read_deepseek(reader, model,
                {.weights = {.score = RouterScore::sigmoid, .scaling = 1.8}, .norm_epsilon = 1e-5});
  model.moe.router_bias = model.moe.experts > 0;
}

void read_granitemoe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  read_attention_bias(reader, model);
  read_granite_factors(reader, model);
  model.moe.experts = small(reader.integer("num_local_experts", 1, kMaxExperts));
  model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  model.moe.expert_ffn_hidden = model.ffn_hidden;
}

/// Hunyuan-A13B: one shared MLP next to the experts.
void read_hunyuan_moe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  read_attention_bias(reader, model);
  model.qk_norm = reader.boolean_or("use_qk_norm", true);
  if (model.qk_norm) add_arithmetic(model, "norms of query and key heads after the rotation");
  if (reader.boolean_or("use_cla", false)) {
    reader.fail("use_cla", "keys and values shared by several layers", "false");
    return;
  }
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(same_in_all_layers(reader, "num_experts", kMaxExperts));
  moe.experts_per_token = small(same_in_all_layers(reader, "moe_topk", kMaxExperts));
  moe.expert_ffn_hidden = reader.has("moe_intermediate_size")
                              ? small(same_in_all_layers(reader, "moe_intermediate_size", kMaxFfn))
                              : model.ffn_hidden;
  const bool counted = reader.has("num_shared_expert");
  const std::int64_t shared =
      counted ? same_in_all_layers(reader, "num_shared_expert", kMaxExperts) : 1;
  const bool mixed = reader.boolean_or("use_mixed_mlp_moe", true);
  if (mixed) set_shared_experts(reader, "num_shared_expert", moe, shared, model.ffn_hidden);
  const std::int64_t dense = reader.integer_or("moe_layer_num_skipped", 0, kMaxLayers, 0);
  set_layers_with_experts(reader, "moe_layer_num_skipped", model, dense, model.layers, 1);
  reader.ignore({"attention_head_dim", "cla_share_factor", "norm_type", "use_rotary_pos_emb"});
}

/// Phi-3.5-MoE.
void read_phimoe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5});
  model.normalization = Normalization::layer_norm;
  read_attention_bias(reader, model);
  model.head_bias = reader.boolean_or("lm_head_bias", false);
  model.moe.experts = small(reader.integer("num_local_experts", 1, kMaxExperts));
  model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  model.moe.expert_ffn_hidden = model.ffn_hidden;
  add_arithmetic(model, "experts chosen one after the other by masked softmax (SparseMixer)");
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  reader.ignore({"input_jitter_noise"});
  read_window(reader, model, 0, model.layers);
}

}  // namespace echelon
