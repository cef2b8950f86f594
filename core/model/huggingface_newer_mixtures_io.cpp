// Source of keys, defaults and shapes: transformers 5.24, models/FAMILY/configuration_FAMILY.py and
// modeling_FAMILY.py, which also name the keys of the published files of Sarvam.
#include "core/model/huggingface_newer_mixtures_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/huggingface_dense_io.hpp"
#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_mixtures_io.hpp"
#include "core/model/huggingface_more_mixtures_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/huggingface_recent_dense_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

constexpr const char* kNoPositions = "layers with full attention without rotary positions";

/// The number of routed experts under one of two names, their top-k and width.
void read_routed(JsonReader& reader, MixtureOfExperts& moe, const char* usual, const char* other) {
  const bool renamed = !reader.has(usual) && reader.has(other);
  moe.experts = small(reader.integer(renamed ? other : usual, 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
}

/// All layers have experts but those that mlp_layer_types lists as dense, else the first `dense`.
void read_dense_layers(JsonReader& reader, ModelSpec& model, std::int64_t dense) {
  if (!read_mlp_kinds(reader, model)) {
    set_dense_layers(reader, model, "first_k_dense_replace", dense);
  }
  reader.ignore({"first_k_dense_replace"});
}

/// A window in some layers, which alone have rotary positions.
void read_rotary_windows(JsonReader& reader, ModelSpec& model, int window, int layers) {
  read_window(reader, model, window, layers);
  if (model.windowed_layers < model.layers) add_arithmetic(model, kNoPositions);
}

/// Groups of sigmoid scores, corrected, as in DeepSeek-V3.
void read_corrected_groups(JsonReader& reader, MixtureOfExperts& moe, RouterGroups groups,
                           double scaling) {
  read_router_groups(reader, moe, groups);
  set_corrected_router(reader, moe, "routed_scaling_factor", scaling);
  moe.router_normalized = reader.boolean_or("norm_topk_prob", true);
}

}  // namespace

/// Aria's language model: every expert is intermediate_size wide.
void read_aria(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  read_attention_bias(reader, model);
  if (reader.boolean_or("mlp_bias", false)) {
    reader.fail("mlp_bias", "true: biases of the shared experts alone", "false");
    return;
  }
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("moe_num_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("moe_topk", 1, kMaxExperts));
  moe.expert_ffn_hidden = model.ffn_hidden;
  set_shared_experts(reader, "moe_num_shared_experts", moe,
                     reader.integer("moe_num_shared_experts", 0, kMaxExperts), model.ffn_hidden);
}

/// A.X K1: DeepSeek-V3's block with one more norm.
void read_axk1(JsonReader& reader, ModelSpec& model) {
  read_deepseek_v3(reader, model);
  if (model.moe.experts > 0) {
    add_arithmetic(model, "a norm behind the experts of a layer, whose gain is not counted");
  }
}

/// Reflection's Beam: the layers without a window have no positions, and queries scaled by them.
void read_beam(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  require_head_dim(reader);
  if (reader.boolean_or("attention_bias", false)) {
    reader.fail("attention_bias", "true: biases of all projections but the gate's", "false");
    return;
  }
  model.qk_norm = model.attention_output_gate = model.post_norms = true;
  read_routed(reader, model.moe, "num_experts", "num_local_experts");
  read_corrected_groups(reader, model.moe, {.groups = 8, .topk = 4}, 2.5);
  read_dense_layers(reader, model, 3);
  constexpr int kClassDefault = 512;
  const bool last = model.layers % 6 != 0;  // the last layer has full attention, too
  read_rotary_windows(reader, model, kClassDefault,
                      std::max(0, model.layers - model.layers / 6 - (last ? 1 : 0)));
  add_arithmetic(model, "queries that grow with the logarithm of their positions");
  add_arithmetic(model, "a bias per head of attention's gate, which is not counted");
  add_arithmetic(model, "residuals weighted by depth");
  const Json* cap = reader.member("final_logit_softcapping");
  if (cap == nullptr || !cap->is_null()) {
    add_arithmetic(model, fmt::format("logits capped at {:g}",
                                      reader.number_or("final_logit_softcapping", 0, 1e9, 30)));
  }
}

/// Command A+: Command A's block; experts are intermediate_size wide, dense layers may be wider.
void read_cohere2_moe(JsonReader& reader, ModelSpec& model) {
  read_cohere_block(reader, model);
  const Json* epsilon = reader.member("rms_norm_eps");
  if (epsilon != nullptr && !epsilon->is_null()) {
    read_norm_epsilon(reader, model, "rms_norm_eps", 1e-5);
    std::erase(model.constants->other_arithmetic, "norms that subtract the mean");
  }
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("num_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  moe.expert_ffn_hidden = model.ffn_hidden;
  set_shared_experts(reader, "num_shared_experts", moe,
                     reader.integer_or("num_shared_experts", 0, kMaxExperts, 0), model.ffn_hidden);
  const std::string mean = reader.string_or("shared_expert_combination_strategy", "average");
  if (moe.shared_ffn_hidden > 0 && mean == "average") {
    add_arithmetic(model, "the mean of routed and shared experts");
  }
  const std::string score = reader.string_or("expert_selection_fn", "softmax");
  if (score != "softmax" && score != "sigmoid") {
    reader.fail("expert_selection_fn", "'" + score + "'", "softmax or sigmoid");
    return;
  }
  moe.router_score = score == "sigmoid" ? RouterScore::sigmoid : RouterScore::softmax;
  moe.router_normalized =
      reader.boolean_or("norm_topk_prob", true) || moe.router_score == RouterScore::softmax;
  const std::int64_t dense = reader.integer_or("first_k_dense_replace", 0, kMaxLayers, 0);
  read_dense_layers(reader, model, 0);
  model.ffn_hidden =
      small(reader.integer_or("prefix_dense_intermediate_size", 1, kMaxFfn, moe.expert_ffn_hidden));
  const std::int64_t prefix =
      reader.integer_or("prefix_dense_sliding_window_pattern", 1, kMaxLayers, 1);
  const std::int64_t pattern = reader.integer_or("sliding_window_pattern", 1, kMaxLayers, 4);
  const std::int64_t rest = std::max<std::int64_t>(0, model.layers - dense);
  constexpr int kClassDefault = 4096;
  read_rotary_windows(reader, model, kClassDefault,
                      small(dense - dense / prefix + rest - rest / pattern));
}

/// FlexOlmo: OLMo 2's block with experts.
void read_flex_olmo(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .rope = {.theta = 500'000}});
  read_attention_bias(reader, model);
  model.qk_norm_all_heads = true;
  add_arithmetic(model, "norms after attention and MLP instead of before");
  const bool renamed = !reader.has("num_experts") && reader.has("num_local_experts");
  model.moe.experts =
      small(reader.integer(renamed ? "num_local_experts" : "num_experts", 1, kMaxExperts));
  model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  model.moe.expert_ffn_hidden = model.ffn_hidden;
  read_router_weights(reader, model.moe, {.normalized = false});
}

/// Flint: the first two layers are dense; they, every fourth and the last have full attention.
void read_flint(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {});
  require_head_dim(reader);
  read_attention_bias(reader, model);
  model.qk_norm = model.attention_sinks = true;
  MixtureOfExperts& moe = model.moe;
  read_routed(reader, moe, "num_experts", "num_local_experts");
  moe.shared_ffn_hidden = small(reader.integer("shared_expert_intermediate_size", 1, kMaxFfn));
  moe.router_score = RouterScore::sigmoid;
  moe.router_normalized = reader.boolean_or("norm_topk_prob", true);
  const std::int64_t step = reader.integer_or("decoder_sparse_step", 1, kMaxLayers, 1);
  const auto listed = read_layer_list(reader, "mlp_only_layers", model.layers);
  std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
  for (std::size_t i = 0; i < has_experts.size(); ++i) {
    has_experts[i] =
        (i + 1) % static_cast<std::size_t>(step) == 0 && (listed.has_value() || i >= 2);
  }
  for (const int layer : listed.value_or(std::vector<int>{})) {
    has_experts[static_cast<std::size_t>(layer)] = false;
  }
  set_pattern(reader, "mlp_only_layers", model, has_experts);
  int windows = 0;
  for (int i = 2; i < model.layers - 1; ++i) windows += i % 4 != 1 ? 1 : 0;
  constexpr int kClassDefault = 513;
  read_rotary_windows(reader, model, kClassDefault, windows);
}

/// Granite with a shared MLP next to the experts, if it has a width.
void read_granitemoeshared(JsonReader& reader, ModelSpec& model) {
  read_granitemoe(reader, model);
  model.moe.shared_ffn_hidden = small(reader.integer_or("shared_intermediate_size", 0, kMaxFfn, 0));
}

void read_granitemoe_swa(JsonReader& reader, ModelSpec& model) {
  read_granitemoeshared(reader, model);
  read_granite_windows(reader, model);
}

/// Aleph Alpha's Kolibri: four of five layers have a window.
void read_kolibri1(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.mlp_width = false});
  require_head_dim(reader);
  model.qk_norm = model.post_norms = true;
  MixtureOfExperts& moe = model.moe;
  read_routed(reader, moe, "num_experts", "num_local_experts");
  moe.shared_ffn_hidden = small(reader.integer("shared_expert_intermediate_size", 1, kMaxFfn));
  moe.router_score = RouterScore::sigmoid;
  moe.router_bias = true;
  moe.router_normalized = reader.boolean_or("norm_topk_prob", false);
  add_arithmetic(model, "the router's correction added to logits instead of scores");
  model.ffn_hidden = moe.expert_ffn_hidden;  // no layer is dense
  constexpr int kClassDefault = 513;
  read_rotary_windows(reader, model, kClassDefault, model.layers - model.layers / 5);
}

/// JetBrains' Mellum 2: Qwen3's block, with windows in the layers that the file lists.
void read_mellum(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.rope = {.theta = 500'000}});
  require_head_dim(reader);
  read_attention_bias(reader, model);
  model.qk_norm = true;
  read_routed(reader, model.moe, "num_local_experts", "num_experts");
  model.moe.router_normalized = reader.boolean_or("norm_topk_prob", true);
  read_dense_layers(reader, model, 0);
  constexpr int kClassDefault = 1024;
  read_window(reader, model, kClassDefault, 0);
  reader.ignore({"mtp_layer_types", "mtp_mlp_layer_types"});
}

/// Sarvam 105B: DeepSeek-V3's block. head_dim is the width that serves its cache.
void read_sarvam_mla(JsonReader& reader, ModelSpec& model) {
  read_deepseek(reader, model, {.weights = {.score = RouterScore::sigmoid, .scaling = 2.5}});
  model.moe.router_bias = model.moe.experts > 0;
  reader.ignore({"q_head_dim", "score_function", "moe_router_enable_expert_bias"});
}

/// Sarvam 30B: GLM-4.5's block.
void read_sarvam_moe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.rope = {.theta = 8e6}});
  model.qkv_bias =
      reader.boolean_or(reader.has("use_qkv_bias") ? "use_qkv_bias" : "attention_bias", false);
  model.qk_norm = reader.boolean_or("use_qk_norm", true);
  MixtureOfExperts& moe = model.moe;
  read_routed(reader, moe, "n_routed_experts", "num_experts");
  const char* shared = reader.has("num_shared_experts") ? "num_shared_experts" : "n_shared_experts";
  set_shared_experts(reader, shared, moe, reader.integer_or(shared, 0, kMaxExperts, 1),
                     moe.expert_ffn_hidden);
  read_corrected_groups(reader, moe, {}, 2.5);
  read_dense_layers(reader, model, 1);
  // Of its own code: what transformers' class has in every file; dropouts of other places.
  reader.ignore({"score_function", "moe_router_enable_expert_bias", "topk_method",
                 "moe_shared_expert_intermediate_size", "embedding_dropout", "output_dropout",
                 "attention_bias", "num_experts", "num_shared_experts", "n_shared_experts"});
}

}  // namespace echelon
