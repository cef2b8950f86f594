// Source of keys, defaults and shapes: transformers 5.24, models/FAMILY/configuration_FAMILY.py and
// modeling_FAMILY.py.
#include "core/model/huggingface_recent_mixtures_io.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

void read_expert_shapes(JsonReader& reader, MixtureOfExperts& moe) {
  moe.experts = small(reader.integer("num_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  set_shared_experts(reader, "num_shared_experts", moe,
                     reader.integer("num_shared_experts", 0, kMaxExperts), moe.expert_ffn_hidden);
}

}  // namespace

/// Solar Open: experts in every layer.
void read_solar_open(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.norm_epsilon = 1e-5, .rope = {.theta = 1e6}, .mlp_width = false});
  require_head_dim(reader);
  read_attention_bias(reader, model);
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("n_routed_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  set_shared_experts(reader, "n_shared_experts", moe,
                     reader.integer_or("n_shared_experts", 0, kMaxExperts, 1),
                     moe.expert_ffn_hidden);
  read_router_groups(reader, moe, {});
  set_corrected_router(reader, moe, "routed_scaling_factor", 1);
  moe.router_normalized = reader.boolean_or("norm_topk_prob", true);
  set_dense_layers(reader, model, "first_k_dense_replace", 0);
  model.ffn_hidden =
      small(reader.integer_or("intermediate_size", 1, kMaxFfn, moe.expert_ffn_hidden));
}

/// Hunyuan 3: a dense first layer.
void read_hy_v3(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.theta = 11'158'840}});
  require_head_dim(reader);
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  model.qk_norm = true;
  read_expert_shapes(reader, model.moe);
  set_corrected_router(reader, model.moe, "router_scaling_factor", 2.826);
  if (!read_mlp_kinds(reader, model)) set_dense_layers(reader, model, "first_k_dense_replace", 1);
  reader.ignore({"enable_moe_fp32_combine"});
}

/// K-EXAONE: three of four layers have a window, and they alone rotary positions.
void read_exaone_moe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5});
  model.qk_norm = true;
  MixtureOfExperts& moe = model.moe;
  read_expert_shapes(reader, moe);
  read_router_groups(reader, moe, {});
  set_corrected_router(reader, moe, "routed_scaling_factor", 2.5);
  moe.router_normalized = reader.boolean_or("norm_topk_prob", true);
  if (!read_mlp_kinds(reader, model)) set_dense_layers(reader, model, "first_k_dense_replace", 1);
  constexpr int kClassDefault = 4096;
  const Json* pattern = reader.member("sliding_window_pattern");  // a number, or letters
  const bool every = pattern == nullptr || pattern->is_number_integer();
  const std::int64_t interval =
      every ? reader.integer_or("sliding_window_pattern", 1, kMaxLayers, 4) : 1;
  read_window(reader, model, kClassDefault, model.layers - model.layers / small(interval));
  if (!every && !reader.has("layer_types")) {
    reader.fail("sliding_window_pattern", "letters, without layer_types",
                "a whole number, or a list of the layers' kinds in layer_types");
  }
  if (model.windowed_layers > 0) {
    add_arithmetic(model, "layers with full attention without rotary positions");
  }
  reader.ignore({"first_k_dense_replace", "scoring_func", "topk_method"});
}

/// Arcee's Trinity: gated attention and norms before and behind both parts; the layers without a
/// window have no positions.
void read_afmoe(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  require_head_dim(reader);
  if (reader.boolean_or("attention_bias", false)) {
    reader.fail("attention_bias", "true: biases of all projections but the gate's", "false");
    return;
  }
  model.qk_norm = model.attention_output_gate = model.post_norms = true;
  read_expert_shapes(reader, model.moe);
  set_corrected_router(reader, model.moe, "route_scale", 1);
  model.moe.router_normalized = reader.boolean_or("route_norm", true);
  if (reader.string_or("score_func", "sigmoid") != "sigmoid") {
    reader.fail("score_func", "scores that transformers' afmoe does not have", "sigmoid");
  }
  set_dense_layers(reader, model, "num_dense_layers", 1);
  constexpr int kClassDefault = 1024;
  const std::int64_t interval = reader.integer_or("global_attn_every_n_layers", 1, kMaxLayers, 4);
  read_window(reader, model, kClassDefault, model.layers - model.layers / small(interval));
  if (model.windowed_layers > 0) {
    add_arithmetic(model, "layers with full attention without rotary positions");
  }
  if (reader.boolean_or("mup_enabled", false)) {
    add_arithmetic(model, "word embeddings multiplied by the root of the hidden width");
  }
  // Groups of experts, which the class has not; what balances them.
  reader.ignore({"n_group", "topk_group", "num_expert_groups", "num_limited_groups",
                 "load_balance_coeff", "use_grouped_mm"});
}

/// Its layers with attention have norms behind both parts, the others before them; without
/// rope_parameters no layer has positions.
void read_olmo_hybrid(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head});
  read_attention_bias(reader, model);
  model.qk_norm_all_heads = true;
  const Json* rope = reader.member("rope_parameters");
  if (rope != nullptr && rope->is_null()) model.position = PositionEmbedding::none;
  GatedDeltaNet& delta = model.delta;
  delta.layers =
      listed_layers(reader, model, "linear_attention").value_or(model.layers - model.layers / 4);
  delta.key_heads = small(reader.integer_or("linear_num_key_heads", 1, kMaxHeads, model.heads));
  delta.value_heads = small(reader.integer_or("linear_num_value_heads", 1, kMaxHeads, model.heads));
  const std::int64_t key = 3 * std::int64_t{model.hidden} / (4 * std::int64_t{delta.key_heads});
  delta.key_head_dim = small(
      reader.integer_or("linear_key_head_dim", 1, kMaxHeadDim, std::max<std::int64_t>(1, key)));
  delta.value_head_dim = small(reader.integer_or("linear_value_head_dim", 1, kMaxHeadDim,
                                                 2 * std::int64_t{delta.key_head_dim}));
  delta.conv_kernel = small(reader.integer_or("linear_conv_kernel_dim", 1, kMaxHeadDim, 4));
  add_arithmetic(model, "norms after attention and MLP instead of before");
  if (reader.boolean_or("linear_allow_neg_eigval", true)) {
    add_arithmetic(model, "write strengths of delta nets up to two");
  }
  reader.ignore({"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
                 "linear_dt_init_floor"});
}

/// Mistral Small 4: DeepSeek-V3's block with a router of softmax scores; partial_rotary_factor is
/// the share of a head that qk_rope_head_dim is.
void read_mistral4(JsonReader& reader, ModelSpec& model) {
  read_deepseek(reader, model, {.weights = {.score = RouterScore::softmax}});
  RotaryEmbedding& rope = model.constants->rope;
  const bool same =
      rope.rotated_part == 1 || rope.rotated_width(model.head_dim) == model.mla.qk_rope_head_dim;
  if (!same && !reader.failed()) {
    reader.fail("rope_parameters",
                fmt::format("partial_rotary_factor {:g} with heads of {} and qk_rope_head_dim {}",
                            rope.rotated_part, model.head_dim, model.mla.qk_rope_head_dim),
                "the share of a head that qk_rope_head_dim is");
  }
  rope.rotated_part = 1;
}

void read_youtu(JsonReader& reader, ModelSpec& model) {
  read_latent_block(reader, model, {.tied_embeddings = true});
  reader.ignore({"embedding_initializer_range", "mlp_bias"});
}

}  // namespace echelon
