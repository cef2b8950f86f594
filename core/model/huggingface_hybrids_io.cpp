#include "core/model/huggingface_hybrids_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/model/huggingface_dense_io.hpp"
#include "core/model/huggingface_experts_io.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// The first key of the list that the file has; the last of it if it has none. transformers 5
/// writes some keys under a new name.
std::string_view present(const JsonReader& reader, std::initializer_list<std::string_view> keys) {
  const auto* const at =
      std::find_if(keys.begin(), keys.end(), [&](std::string_view key) { return reader.has(key); });
  return at == keys.end() ? *(keys.end() - 1) : *at;
}

/// A choice of Mamba-2's layer that is priced in one way only.
void require_bias(JsonReader& reader, std::string_view key, bool priced) {
  if (!reader.has(key) || reader.boolean(key) == priced) return;
  reader.fail(key, priced ? "false" : "true", priced ? "true" : "false");
}

/// What changes neither shapes nor the work of a step.
void ignore_details(JsonReader& reader) {
  reader.ignore({"mamba_chunk_size",
                 "chunk_size",
                 "mamba_expand",
                 "expand",
                 "mamba_hidden_act",
                 "time_step_limit",
                 "time_step_min",
                 "time_step_max",
                 "time_step_floor",
                 "time_step_rank",
                 "mamba_dt_min",
                 "mamba_dt_max",
                 "mamba_dt_limit",
                 "mamba_dt_init_floor",
                 "mamba_ssm_cache_dtype",
                 "use_mamba_kernels",
                 "num_logits_to_keep",
                 "residual_in_fp32",
                 "rescale_prenorm_residual",
                 "z_loss_coefficient",
                 "moe_shared_expert_overlap",
                 "attn_rotary_emb",
                 "normalization_function"});
}

/// As the two classes check it: mamba_expand times the hidden state is the width of all heads.
/// Source: transformers, models/bamba/configuration_bamba.py, validate_architecture.
void read_mamba_head_width(JsonReader& reader, ModelSpec& model) {
  StateSpace& ssm = model.ssm;
  const std::int64_t expand = reader.integer_or("mamba_expand", 1, 64, 2);
  const Json* width = reader.member("mamba_d_head");
  if (reader.failed()) return;
  const std::int64_t inputs = expand * model.hidden;
  const std::string product =
      fmt::format("mamba_expand {} x hidden_size {} = {}", expand, model.hidden, inputs);
  if (inputs % ssm.heads != 0) {
    reader.fail("mamba_n_heads",
                fmt::format("{} heads, which do not divide {}", ssm.heads, product),
                "a divisor of mamba_expand x hidden_size");
    return;
  }
  const std::int64_t each = inputs / ssm.heads;
  if (width == nullptr || *width == "auto") {
    ssm.head_dim = small(each);
    return;
  }
  if (width->is_string()) {
    reader.fail("mamba_d_head", in_quotes(printable(width->get<std::string>())),
                "a whole number or \"auto\"");
    return;
  }
  ssm.head_dim = small(reader.integer("mamba_d_head", 1, kMaxHeadDim));
  if (reader.failed() || ssm.head_dim == each) return;
  reader.fail("mamba_d_head",
              fmt::format("{} with {} heads and {}", ssm.head_dim, ssm.heads, product),
              fmt::format("{}, or \"auto\"", each));
}

/// Shapes by the keys of Bamba and Granite 4, of so many layers.
void read_mamba(JsonReader& reader, ModelSpec& model, int layers) {
  StateSpace& ssm = model.ssm;
  ssm.layers = layers;
  ssm.heads = small(reader.integer("mamba_n_heads", 1, kMaxHeads));
  ssm.groups = small(reader.integer("mamba_n_groups", 1, kMaxHeads));
  ssm.state_dim = small(reader.integer("mamba_d_state", 1, kMaxHeadDim));
  ssm.conv_kernel = small(reader.integer("mamba_d_conv", 1, kMaxHeadDim));
  read_mamba_head_width(reader, model);
  require_bias(reader, "mamba_conv_bias", true);
  require_bias(reader, "mamba_proj_bias", false);
  ignore_details(reader);
  if (layers == 0) ssm = {};  // attention alone
}

/// Layers by what they are, as in transformers 5 and before.
struct Kinds {
  int attention = 0;
  int state_space = 0;
  int mlp = 0;
  int experts = 0;
  std::string letters{};  ///< one for each layer
  [[nodiscard]] int all() const { return attention + state_space + mlp + experts; }
};
bool count(Kinds& kinds, std::string_view name) {
  struct Name {
    std::string_view name;
    char letter;
    int Kinds::*kind;
  };
  constexpr Name kNames[] = {{"attention", '*', &Kinds::attention},
                             {"full_attention", '*', &Kinds::attention},
                             {"mamba", 'M', &Kinds::state_space},
                             {"linear_attention", 'M', &Kinds::state_space},
                             {"mlp", '-', &Kinds::mlp},
                             {"moe", 'E', &Kinds::experts}};
  for (const Name& known : kNames) {
    if (known.name != name && std::string_view(&known.letter, 1) != name) continue;
    ++(kinds.*known.kind);
    kinds.letters += known.letter;
    return true;
  }
  return false;
}

/// Of a list of words, or of a pattern of letters.
Kinds read_kinds(JsonReader& reader, std::string_view key) {
  constexpr const char* kExpected =
      "attention, mamba, mlp or moe for each layer (in a pattern: *, M, - or E)";
  Kinds kinds;
  std::vector<std::string> names;
  const Json* value = reader.member(key);
  if (value != nullptr && value->is_string()) {
    for (const char letter : value->get<std::string>()) names.emplace_back(1, letter);
  } else if (value != nullptr && value->is_array()) {
    for (const Json& each : *value) {
      names.push_back(each.is_string() ? each.get<std::string>() : "");
    }
  }
  if (names.empty() || names.size() > static_cast<std::size_t>(kMaxLayers)) {
    reader.fail(key, value == nullptr ? fmt::format("the key '{}' is missing", key) : "no layers",
                kExpected);
    return kinds;
  }
  for (const std::string& name : names) {
    if (count(kinds, name)) continue;
    reader.fail(key, "an entry " + in_quotes(printable(name)), kExpected);
    return kinds;
  }
  return kinds;
}

/// Layers with a state space of a model whose layers all have an MLP; without a list: all.
int mamba_layers(JsonReader& reader, const ModelSpec& model) {
  const std::string_view key = present(reader, {"layers_block_type", "layer_types"});
  const Json* list = reader.member(key);
  if (list == nullptr || list->is_null()) return model.layers;
  const Kinds kinds = read_kinds(reader, key);
  if (!reader.failed() && (kinds.all() != model.layers || kinds.mlp + kinds.experts > 0)) {
    reader.fail(key, fmt::format("a list of {} entries", kinds.all()),
                fmt::format("a list of {} entries, attention or mamba", model.layers));
  }
  return kinds.state_space;
}

/// A prediction module is priced as a layer with attention and one with what the model's MLPs are.
void check_module_layers(JsonReader& reader, const Kinds& kinds) {
  const bool trained = reader.has("num_nextn_predict_layers") &&
                       reader.integer("num_nextn_predict_layers", 0, kMaxLayers) > 0;
  const std::string_view key =
      present(reader, {"mtp_layers_block_type", "mtp_hybrid_override_pattern"});
  if (!trained || !reader.has(key)) return;
  const Kinds module = read_kinds(reader, key);
  const std::string_view priced = kinds.experts > 0 ? "*E" : "*-";
  if (reader.failed() || module.letters == priced) return;
  reader.fail(key, "prediction modules of the layers " + in_quotes(module.letters),
              fmt::format("{} (attention, then {}); no other has a price", in_quotes(priced),
                          kinds.experts > 0 ? "experts" : "an MLP"));
}

/// A model without attention, or of token mixers alone, has no price.
bool has_priced_parts(JsonReader& reader, std::string_view key, const Kinds& kinds) {
  if (kinds.mlp > 0 && kinds.experts > 0) {
    reader.fail(key, "layers with one MLP and layers with experts", "MLPs of one kind");
  } else if (kinds.mlp + kinds.experts == 0) {
    reader.fail(key, "no layer with an MLP or experts",
                "at least one: layers of token mixers alone have no price");
  } else if (kinds.attention == 0) {
    reader.fail(key, "no layer with attention",
                "at least one: models without attention have no price");
  }
  return !reader.failed();
}

/// Its experts replace the MLP, and are not gated; the router is DeepSeek-V3's.
void read_nemotron_experts(JsonReader& reader, ModelSpec& model) {
  MixtureOfExperts& moe = model.moe;
  moe.experts = small(reader.integer("n_routed_experts", 1, kMaxExperts));
  moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
  moe.expert_ffn_hidden = small(reader.integer("moe_intermediate_size", 1, kMaxFfn));
  moe.shared_ffn_hidden = small(reader.integer("moe_shared_expert_intermediate_size", 0, kMaxFfn));
  read_router_groups(reader, moe, {});
  read_router_weights(reader, moe, {.score = RouterScore::sigmoid});
  moe.router_bias = true;  // e_score_correction_bias
  reader.ignore({"n_shared_experts"});
  const Json* latent = reader.member("moe_latent_size");
  if (latent != nullptr && !latent->is_null()) {
    moe.latent_hidden = small(reader.integer("moe_latent_size", 1, kMaxHidden));
  }
}

}  // namespace

/// Source: transformers, models/bamba/modeling_bamba.py.
void read_bamba(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.norm_epsilon = 1e-5, .rope = {.rotated_part = 0.5}});
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  const auto attended = read_layer_list(reader, "attn_layer_indices", model.layers);
  const int layers =
      attended ? model.layers - small(static_cast<std::int64_t>(attended->size())) : model.layers;
  read_mamba(reader, model, layers);
}

/// Its state space may be narrower or wider than mamba_expand says, and has a norm only where
/// mamba_rms_norm says so. Source: transformers, models/falcon_h1/configuration_falcon_h1.py and
/// modeling_falcon_h1.py.
void read_falcon_h1(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model,
                  {.kv_heads = MissingKvHeads::mean_multi_head, .norm_epsilon = 1e-5});
  read_attention_bias(reader, model);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  StateSpace& ssm = model.ssm;
  ssm.layers = model.layers;
  ssm.beside_attention = true;
  ssm.heads = small(reader.integer_or("mamba_n_heads", 1, kMaxHeads, 128));
  ssm.groups = small(reader.integer_or("mamba_n_groups", 1, kMaxHeads, 1));
  ssm.state_dim = small(reader.integer_or("mamba_d_state", 1, kMaxHeadDim, 256));
  ssm.conv_kernel = small(reader.integer_or("mamba_d_conv", 1, kMaxHeadDim, 4));
  ssm.gated_norm = reader.boolean_or("mamba_rms_norm", false);
  const Json* width = reader.member("mamba_d_ssm");
  if (width != nullptr && width->is_null()) {
    read_mamba_head_width(reader, model);
  } else {
    const std::int64_t all = reader.integer_or("mamba_d_ssm", 1, kMaxFfn, 1024);
    const Json* each = reader.member("mamba_d_head");
    const bool found = each != nullptr && each->is_number_integer();
    ssm.head_dim = small(found ? reader.integer("mamba_d_head", 1, kMaxHeadDim)
                               : std::max<std::int64_t>(1, all / ssm.heads));
    if (!reader.failed() && ssm.width() != all) {
      reader.fail("mamba_d_ssm",
                  fmt::format("{} with {} heads of {}", all, ssm.heads, ssm.head_dim),
                  "the width of all heads together");
    }
  }
  require_bias(reader, "mamba_conv_bias", true);
  require_bias(reader, "mamba_proj_bias", false);
  require_bias(reader, "projectors_bias", false);
  ignore_details(reader);
  bool scaled = false;
  for (const char* key :
       {"embedding_multiplier", "lm_head_multiplier", "key_multiplier", "attention_in_multiplier",
        "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "mlp_multipliers",
        "ssm_multipliers"}) {
    const Json* factor = reader.member(key);
    if (factor == nullptr || factor->is_null()) continue;
    const Json factors = factor->is_array() ? *factor : Json::array({*factor});
    scaled = scaled || std::any_of(factors.begin(), factors.end(),
                                   [](const Json& each) { return each != Json(1.0); });
  }
  if (scaled) add_arithmetic(model, "factors on embeddings, keys, projections and logits");
  reader.ignore({"mamba_norm_before_gate", "mamba_use_mlp", "attn_layer_indices", "layer_types"});
}

/// Granite 4: the width of the MLP next to the experts, or without experts of the only one, is
/// shared_intermediate_size. Source: transformers, models/granitemoehybrid/
/// modeling_granitemoehybrid.py.
void read_granitemoehybrid(JsonReader& reader, ModelSpec& model) {
  read_llama_like(reader, model, {.kv_heads = MissingKvHeads::mean_multi_head, .mlp_width = false});
  read_attention_bias(reader, model);
  read_granite_factors(reader, model);
  if (reader.string_or("position_embedding_type", "nope") != "rope") {
    model.position = PositionEmbedding::none;
  }
  const int shared = small(reader.integer("shared_intermediate_size", 1, kMaxFfn));
  const int experts = small(reader.integer_or("num_local_experts", 0, kMaxExperts, 0));
  if (experts > 0) {
    model.moe.experts = experts;
    model.moe.experts_per_token = small(reader.integer("num_experts_per_tok", 1, kMaxExperts));
    model.moe.expert_ffn_hidden = small(reader.integer("intermediate_size", 1, kMaxFfn));
    model.moe.shared_ffn_hidden = shared;
    model.ffn_hidden = shared;
  } else {
    model.ffn_hidden = shared;
    reader.ignore({"num_experts_per_tok", "intermediate_size"});
  }
  const int layers = mamba_layers(reader, model);
  read_mamba(reader, model, layers);
}

/// Nemotron-H and Nemotron 3: each layer is attention, a state space, an MLP or experts alone.
/// Source: transformers, models/nemotron_h/modeling_nemotron_h.py.
void read_nemotron_h(JsonReader& reader, ModelSpec& model) {
  const std::string_view key =
      present(reader, {"layers_block_type", "layer_types", "hybrid_override_pattern"});
  const Kinds kinds = read_kinds(reader, key);
  if (reader.failed() || !has_priced_parts(reader, key, kinds)) return;
  check_module_layers(reader, kinds);
  model.layers = kinds.all();
  model.layer_pattern = kinds.letters;
  reader.ignore({"num_hidden_layers", "mtp_layers_block_type", "mtp_hybrid_override_pattern",
                 "layers_block_type", "layer_types", "hybrid_override_pattern"});
  model.hidden = small(reader.integer("hidden_size", 1, kMaxHidden));
  model.heads = small(reader.integer("num_attention_heads", 1, kMaxHeads));
  model.vocab = small(reader.integer("vocab_size", 1, kMaxVocab));
  read_positions(reader, model);
  read_kv_heads(reader, model, MissingKvHeads::are_an_error);
  constexpr int kHeadDim = 128;
  model.head_dim = small(reader.integer_or(present(reader, {"head_dim", "attention_head_dim"}), 1,
                                           kMaxHeadDim, kHeadDim));
  model.activation = read_activation(reader, "mlp_hidden_act", Activation::squared_relu, model);
  model.gated_mlp = false;
  model.position = PositionEmbedding::none;
  model.tied_embeddings = reader.boolean_or("tie_word_embeddings", false);
  read_norm_epsilon(reader, model,
                    present(reader, {"layer_norm_epsilon", "norm_eps", "rms_norm_eps"}), 1e-5);
  read_attention_bias(reader, model);
  read_dropout(reader, model);
  model.hidden_dropout = reader.number_or("hidden_dropout", 0, 1, 0);
  model.mlp_bias = reader.boolean_or("mlp_bias", false);
  require_bias(reader, "use_bias", false);
  require_bias(reader, "use_conv_bias", true);
  require_bias(reader, "mamba_proj_bias", false);
  reader.ignore({"rope_theta", "partial_rotary_factor", "sliding_window", "norm_eps",
                 "rms_norm_eps", "mamba_n_groups", "mamba_d_conv"});
  StateSpace& ssm = model.ssm;
  ssm.layers = kinds.state_space;
  ssm.heads = small(reader.integer("mamba_num_heads", 1, kMaxHeads));
  ssm.head_dim = small(reader.integer("mamba_head_dim", 1, kMaxHeadDim));
  ssm.groups = small(reader.integer("n_groups", 1, kMaxHeads));
  ssm.state_dim = small(reader.integer("ssm_state_size", 1, kMaxHeadDim));
  ssm.conv_kernel = small(reader.integer("conv_kernel", 1, kMaxHeadDim));
  ignore_details(reader);
  model.mlp_only_layers = kinds.mlp + kinds.experts;
  if (kinds.experts > 0) {
    read_nemotron_experts(reader, model);
    model.ffn_hidden =
        small(reader.integer_or("intermediate_size", 1, kMaxFfn, model.moe.expert_ffn_hidden));
  } else {
    model.ffn_hidden = small(reader.integer("intermediate_size", 1, kMaxFfn));
    // The class's experts, which no layer has.
    reader.ignore({"n_routed_experts", "n_shared_experts", "num_experts_per_tok",
                   "moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_group",
                   "topk_group", "norm_topk_prob", "routed_scaling_factor", "moe_latent_size"});
  }
}

/// Source: transformers 5.24, models/nemotron_h/: configuration_nemotron_h.py takes the number of
/// layers from their list, and no line of modeling_nemotron_h.py reads sliding_window.
void note_nemotron_h(JsonReader& reader, const ModelSpec& model,
                     std::vector<std::string>& remarks) {
  if (reader.has("sliding_window")) {
    remarks.emplace_back(
        "not priced: sliding_window of the model's file, which transformers' nemotron_h does not "
        "apply; attention is priced over all keys");
  }
  if (!reader.has("num_hidden_layers")) return;
  const std::int64_t stated = reader.integer("num_hidden_layers", 0, kMaxLayers);
  if (reader.failed() || stated == model.layers) return;
  remarks.push_back(
      fmt::format("planned with the {} layers that the model's file lists, as transformers does, "
                  "not with its num_hidden_layers {}",
                  model.layers, stated));
}

}  // namespace echelon
