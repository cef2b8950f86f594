// Checks that the shapes of a model are consistent.
// Over 400 lines because every part of a model has bounds of its own.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/model/model_formats_io.hpp"
#include "core/model/model_io.hpp"

namespace echelon {

namespace {

/// An error without its file: the field, its value, the valid values.
struct FieldError {
  std::string_view field;
  std::string found;
  std::string expected;
};
using MaybeError = std::optional<FieldError>;

struct Bound {
  std::string_view field;
  std::int64_t value;
  std::int64_t min;
  std::int64_t max;
  std::string_view of = "";  ///< what the largest value is: "the experts"
};

MaybeError check_bounds(std::span<const Bound> bounds) {
  for (const Bound& bound : bounds) {
    if (bound.value >= bound.min && bound.value <= bound.max) continue;
    return FieldError{bound.field, fmt::format("{}", bound.value),
                      fmt::format("a whole number between {} and {}{}{}", bound.min, bound.max,
                                  bound.of.empty() ? "" : ", ", bound.of)};
  }
  return {};
}

MaybeError check_shapes(const ModelSpec& model) {
  const Bound bounds[] = {
      {"layers", model.layers, 1, kMaxLayers},
      {"hidden", model.hidden, 1, kMaxHidden},
      {"heads", model.heads, 1, kMaxHeads},
      {"kv_heads", model.kv_heads, 1, kMaxHeads},
      {"head_dim", model.head_dim, 1, kMaxHeadDim},
      {"ffn_hidden", model.ffn_hidden, 1, kMaxFfn},
      {"vocab", model.vocab, 1, kMaxVocab},
      {"max_positions", model.max_positions, 1, kMaxPositions},
      {"prediction_modules", model.prediction_modules, 0, kMaxLayers},
      {"sliding_window", model.sliding_window, 0, kMaxPositions},
      {"windowed_layers", model.windowed_layers, 0, model.layers, "the layers"},
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  if (model.heads % model.kv_heads != 0) {
    return FieldError{
        "kv_heads",
        fmt::format("{} key-value heads do not divide {} heads", model.kv_heads, model.heads),
        "a divisor of the number of heads"};
  }
  if ((model.sliding_window > 0) != (model.windowed_layers > 0)) {
    return FieldError{"windowed_layers",
                      fmt::format("{} windowed layers with a window of {} tokens",
                                  model.windowed_layers, model.sliding_window),
                      "both zero, or both above zero"};
  }
  const std::pair<std::string_view, double> dropouts[] = {
      {"hidden_dropout", model.hidden_dropout}, {"attention_dropout", model.attention_dropout}};
  for (const auto& [field, dropout] : dropouts) {
    if (dropout >= 0 && dropout <= 1) continue;  // also false for NaN
    return FieldError{field, fmt::format("{}", dropout), "a probability between 0 and 1"};
  }
  return {};
}

/// A token's experts must find room in the groups that it may visit.
MaybeError check_router_groups(const MixtureOfExperts& moe) {
  const Bound bounds[] = {
      {"moe/router_groups", moe.router_groups, 1, moe.experts, "the experts"},
      {"moe/router_group_topk", moe.router_group_topk, 1, moe.router_groups, "the groups"},
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  if (moe.experts % moe.router_groups != 0) {
    return FieldError{"moe/router_groups",
                      fmt::format("{} groups of {} experts", moe.router_groups, moe.experts),
                      "a divisor of the experts"};
  }
  const int reached = moe.experts / moe.router_groups * moe.router_group_topk;
  if (moe.experts_per_token <= reached) return {};
  return FieldError{"moe/router_group_topk",
                    fmt::format("{} groups with {} experts for {} experts per token",
                                moe.router_group_topk, reached, moe.experts_per_token),
                    "groups that hold at least as many experts as a token visits"};
}

MaybeError check_mixture(const ModelSpec& model) {
  const MixtureOfExperts& moe = model.moe;
  if (moe.experts == 0) {
    if (moe == MixtureOfExperts{}) return {};
    return FieldError{"moe/experts", "0 experts, but other mixture-of-experts fields are set",
                      "the number of routed experts, or no mixture-of-experts field"};
  }
  const Bound bounds[] = {
      {"moe/experts", moe.experts, 1, kMaxExperts},
      {"moe/experts_per_token", moe.experts_per_token, 1, moe.experts, "the experts"},
      {"moe/expert_ffn_hidden", moe.expert_ffn_hidden, 1, kMaxFfn},
      {"moe/shared_ffn_hidden", moe.shared_ffn_hidden, 0, kMaxFfn},
      {"moe/first_dense_layers", moe.first_dense_layers, 0, model.layers - 1,
       "which leaves one layer with experts"},
      {"moe/every", moe.every, 1, model.layers, "the layers"},
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  if (MaybeError found = check_router_groups(moe)) return found;
  if (moe.branch_norms && moe.shared_ffn_hidden == 0) {
    return FieldError{"moe/branch_norms", "norms of routed and shared experts without the latter",
                      "false, or shared_ffn_hidden above zero"};
  }
  if (moe.shared_expert_gate && moe.shared_ffn_hidden == 0) {
    return FieldError{"moe/shared_expert_gate", "a shared-expert gate without shared experts",
                      "false, or shared_ffn_hidden above zero"};
  }
  return {};
}

/// Variants of attention that exclude each other.
MaybeError check_norms(const ModelSpec& model) {
  if (model.qk_norm && model.qk_norm_all_heads) {
    return FieldError{"qk_norm_all_heads", "norms of each head and of all heads together",
                      "one of qk_norm and qk_norm_all_heads"};
  }
  if (model.latent() &&
      (model.attention_output_gate || model.qk_norm_all_heads || model.value_norm)) {
    return FieldError{"mla/kv_lora_rank",
                      "latent attention with an output gate or a norm of values or over all heads",
                      "latent attention without these"};
  }
  return {};
}

MaybeError check_latent(const ModelSpec& model) {
  const LatentAttention& mla = model.mla;
  if (mla.kv_lora_rank == 0) {
    if (mla == LatentAttention{}) return {};
    return FieldError{"mla/kv_lora_rank", "0, but other latent-attention fields are set",
                      "the width of the latent, or no latent-attention field"};
  }
  const Bound bounds[] = {
      {"mla/kv_lora_rank", mla.kv_lora_rank, 1, kMaxHidden},
      {"mla/q_lora_rank", mla.q_lora_rank, 0, kMaxHidden},
      {"mla/qk_nope_head_dim", mla.qk_nope_head_dim, 1, kMaxHeadDim},
      {"mla/qk_rope_head_dim", mla.qk_rope_head_dim, 1, kMaxHeadDim},
      {"mla/v_head_dim", mla.v_head_dim, 1, kMaxHeadDim},
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  if (model.head_dim != mla.qk_nope_head_dim + mla.qk_rope_head_dim) {
    return FieldError{"head_dim",
                      fmt::format("{} with qk_nope_head_dim {} and qk_rope_head_dim {}",
                                  model.head_dim, mla.qk_nope_head_dim, mla.qk_rope_head_dim),
                      "qk_nope_head_dim + qk_rope_head_dim"};
  }
  if (model.kv_heads != model.heads) {
    return FieldError{
        "kv_heads", fmt::format("{} key-value heads and {} heads", model.kv_heads, model.heads),
        "as many as heads: latent attention reconstructs keys and values of every head"};
  }
  return {};
}

MaybeError check_sparse(const ModelSpec& model) {
  const SparseAttention& dsa = model.dsa;
  if (dsa.topk == 0) {
    if (dsa == SparseAttention{}) return {};
    return FieldError{"dsa/topk", "0, but other fields of sparse attention are set",
                      "the number of keys that a query attends to, or no such field"};
  }
  if (!model.latent()) {
    return FieldError{"dsa/topk", "sparse attention without latent attention",
                      "latent attention (mla), whose latents the indexer and the kernels read"};
  }
  const Bound bounds[] = {
      {"dsa/topk", dsa.topk, 1, kMaxPositions},
      {"dsa/index_heads", dsa.index_heads, 1, kMaxHeads},
      {"dsa/index_head_dim", dsa.index_head_dim, 1, kMaxHeadDim},
      {"mla/q_lora_rank", model.mla.q_lora_rank, 1, kMaxHidden},  // the indexer reads it
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  if (dsa.index_head_dim < model.mla.qk_rope_head_dim) {
    return FieldError{
        "dsa/index_head_dim",
        fmt::format("{} with a rotary part of {}", dsa.index_head_dim, model.mla.qk_rope_head_dim),
        "at least qk_rope_head_dim, which is part of it"};
  }
  if (model.windowed_layers > 0 || model.attention_sinks) {
    return FieldError{"dsa/topk", "sparse attention with windows or attention sinks",
                      "sparse attention in every layer, without both"};
  }
  return {};
}

/// Of a part of layers that no layer has: none of its fields is set.
template <class Part>
MaybeError check_absent(const Part& part, std::string_view layers, std::string_view fields,
                        std::string_view with) {
  if (part == Part{}) return {};
  return FieldError{std::string(layers), fmt::format("0, but other fields of {} are set", fields),
                    fmt::format("the number of layers {}, or no such field", with)};
}

/// Layers with full attention of another shape than that of the windowed ones.
MaybeError check_global(const ModelSpec& model) {
  const GlobalAttention& global = model.global;
  if (global.layers == 0)
    return check_absent(global, "global/layers", "global attention", "with global attention");
  const Bound bounds[] = {
      {"global/layers", global.layers, 1, model.layers - 1, "which leaves one windowed layer"},
      {"global/kv_heads", global.kv_heads, 1, kMaxHeads},
      {"global/head_dim", global.head_dim, 1, kMaxHeadDim},
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  if (model.heads % global.kv_heads != 0) {
    return FieldError{
        "global/kv_heads",
        fmt::format("{} key-value heads do not divide {} heads", global.kv_heads, model.heads),
        "a divisor of the number of heads"};
  }
  if (global.layers + model.windowed_layers != model.layers) {
    return FieldError{"global/layers",
                      fmt::format("{} layers with global attention and {} with a window of {}",
                                  global.layers, model.windowed_layers, model.layers),
                      "one of both in every layer"};
  }
  if (model.latent()) {
    return FieldError{"global/layers", "global attention next to latent attention",
                      "ordinary attention"};
  }
  return {};
}

/// Layers with a short convolution.
MaybeError check_convolution(const ModelSpec& model) {
  const ShortConvolution& conv = model.conv;
  if (conv.layers == 0)
    return check_absent(conv, "conv/layers", "short convolutions", "with a short convolution");
  constexpr std::int64_t kMaxKernel = 1024;
  const Bound bounds[] = {
      {"conv/layers", conv.layers, 1, model.layers - 1, "which leaves one layer with attention"},
      {"conv/kernel", conv.kernel, 1, kMaxKernel},
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  if (model.delta.layers > 0 || model.ssm.layers > 0 || model.mlp_only_layers > 0 ||
      model.latent() || model.windowed_layers > 0 || model.attention_sinks) {
    return FieldError{"conv/layers",
                      "short convolutions next to gated delta nets, state spaces, latent or "
                      "windowed attention or attention sinks",
                      "short convolutions next to full attention"};
  }
  return {};
}

MaybeError check_delta(const ModelSpec& model) {
  const GatedDeltaNet& delta = model.delta;
  if (delta.layers == 0)
    return check_absent(delta, "delta/layers", "gated delta nets", "with a gated delta net");
  constexpr std::int64_t kMaxKernel = 1024;
  const Bound bounds[] = {
      {"delta/layers", delta.layers, 1, kMaxLayers},
      {"delta/key_heads", delta.key_heads, 1, kMaxHeads},
      {"delta/value_heads", delta.value_heads, 1, kMaxHeads},
      {"delta/key_head_dim", delta.key_head_dim, 1, kMaxHeadDim},
      {"delta/value_head_dim", delta.value_head_dim, 1, kMaxHeadDim},
      {"delta/conv_kernel", delta.conv_kernel, 1, kMaxKernel},
      {"delta/gate_rank", delta.gate_rank, 0, kMaxHidden},
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  if (delta.layers >= model.layers) {
    return FieldError{
        "delta/layers",
        fmt::format("{} of {} layers with a gated delta net", delta.layers, model.layers),
        "at least one layer with attention"};
  }
  if (delta.value_heads % delta.key_heads != 0) {
    return FieldError{"delta/key_heads",
                      fmt::format("{} key heads do not divide {} value heads", delta.key_heads,
                                  delta.value_heads),
                      "a divisor of the number of value heads"};
  }
  const bool latent = model.latent() && !delta.channel_decay();  // Kimi Linear has both
  if (latent || model.sparse() || model.windowed_layers > 0 || model.attention_sinks) {
    return FieldError{"delta/layers",
                      "gated delta nets next to latent, sparse or windowed attention or attention "
                      "sinks",
                      "delta nets next to full attention (Kimi delta attention: also latent)"};
  }
  return {};
}

MaybeError check_state_space(const ModelSpec& model) {
  const StateSpace& ssm = model.ssm;
  if (ssm.layers == 0) return check_absent(ssm, "ssm/layers", "state spaces", "with a state space");
  constexpr std::int64_t kMaxKernel = 1024;
  if (ssm.beside_attention && (ssm.layers != model.layers || model.mlp_only_layers > 0)) {
    return FieldError{"ssm/layers",
                      fmt::format("{} of {} layers with a state space beside attention", ssm.layers,
                                  model.layers),
                      "all layers, each with an MLP"};
  }
  const Bound bounds[] = {
      {"ssm/layers", ssm.layers, 1, kMaxLayers},
      {"ssm/heads", ssm.heads, 1, kMaxHeads},
      {"ssm/head_dim", ssm.head_dim, 1, kMaxHeadDim},
      {"ssm/groups", ssm.groups, 1, kMaxHeads},
      {"ssm/state_dim", ssm.state_dim, 1, kMaxHeadDim},
      {"ssm/conv_kernel", ssm.conv_kernel, 1, kMaxKernel},
  };
  if (MaybeError found = check_bounds(bounds)) return found;
  const std::int64_t without = std::int64_t{ssm.layers} + model.mlp_only_layers;
  if (!ssm.beside_attention && without >= model.layers) {
    return FieldError{"ssm/layers",
                      fmt::format("{} layers with a state space and {} with an MLP alone of {}",
                                  ssm.layers, model.mlp_only_layers, model.layers),
                      "at least one layer with attention"};
  }
  if (ssm.heads % ssm.groups != 0) {
    return FieldError{"ssm/groups",
                      fmt::format("{} groups do not divide {} heads", ssm.groups, ssm.heads),
                      "a divisor of the number of heads"};
  }
  if (model.delta.layers > 0 || model.latent() || model.windowed_layers > 0 ||
      model.attention_sinks) {
    return FieldError{"ssm/layers",
                      "state spaces next to gated delta nets, latent or windowed attention or "
                      "attention sinks",
                      "state spaces next to full attention"};
  }
  return {};
}

/// Layers of one part each.
MaybeError check_mlp_only(const ModelSpec& model) {
  if (model.mlp_only_layers == 0) return {};
  const Bound bounds[] = {{"mlp_only_layers", model.mlp_only_layers, 1,
                           model.layers - model.delta.layers - model.ssm.layers - 1,
                           "which leaves one layer with attention"}};
  if (MaybeError found = check_bounds(bounds)) return found;
  if (model.parallel_block || model.post_norms) {
    return FieldError{"mlp_only_layers",
                      "layers of one part, and blocks of two with one norm or "
                      "with post-norms",
                      "no parallel_block and no post_norms"};
  }
  if (model.moe.experts > 0 && (model.moe.first_dense_layers > 0 || model.moe.every > 1)) {
    return FieldError{"mlp_only_layers", "some of them with experts",
                      "experts in all of them: first_dense_layers 0 and every 1"};
  }
  return {};
}

/// The letters say what the numbers of layers say.
MaybeError check_layer_pattern(const ModelSpec& model) {
  const std::string& pattern = model.layer_pattern;
  if (pattern.empty()) return {};
  if (model.mlp_only_layers == 0) {
    return FieldError{"layer_pattern",
                      "a letter for each layer of a model whose layers have two parts",
                      "no pattern, or mlp_only_layers above zero"};
  }
  const char mlp = model.moe.experts > 0 ? 'E' : '-';
  const auto counted = [&](char letter) { return std::ranges::count(pattern, letter); };
  const bool same = pattern.size() == static_cast<std::size_t>(model.layers) &&
                    counted('M') == model.ssm.layers && counted(mlp) == model.mlp_only_layers &&
                    counted('*') == model.layers_with(TokenMixer::attention);
  if (same) return {};
  return FieldError{
      "layer_pattern",
      fmt::format("{} letters: {} M, {} *, {} {}", pattern.size(), counted('M'), counted('*'),
                  counted(mlp), mlp),
      fmt::format("{} letters: {} M (state space), {} * (attention), {} {} ({})", model.layers,
                  model.ssm.layers, model.layers_with(TokenMixer::attention), model.mlp_only_layers,
                  mlp, mlp == 'E' ? "experts" : "MLP")};
}

MaybeError check_rope(const RotaryEmbedding& rope) {
  struct Real {
    std::string_view field;
    double value;
    double min;
    double max;
  };
  const Real reals[] = {
      {"rope/theta", rope.theta, kMinTheta, kMaxTheta},
      {"rope/rotated_part", rope.rotated_part, 0, 1},
      {"rope/factor", rope.factor, 1, kMaxRope},
      {"rope/low_frequency_factor", rope.low_frequency_factor, kMinRope, kMaxRope},
      {"rope/high_frequency_factor", rope.high_frequency_factor, rope.low_frequency_factor,
       kMaxRope},
      {"rope/beta_slow", rope.beta_slow, kMinRope, kMaxRope},
      {"rope/beta_fast", rope.beta_fast, rope.beta_slow, kMaxRope},
      {"rope/attention_factor", rope.attention_factor, kMinRope, kMaxRope},
  };
  for (const Real& real : reals) {
    if (real.value >= real.min && real.value <= real.max) continue;  // also false for NaN
    return FieldError{real.field, fmt::format("{:g}", real.value),
                      fmt::format("a number between {:g} and {:g}", real.min, real.max)};
  }
  const bool extended = rope.scaling == RopeScaling::llama3 || rope.scaling == RopeScaling::yarn;
  if (extended && rope.original_positions < 1) {
    return FieldError{"rope/original_positions", fmt::format("{}", rope.original_positions),
                      "the context length before the extension"};
  }
  return {};
}

MaybeError check_constants(const ModelSpec& model) {
  if (!model.constants) return {};
  const double epsilon = model.constants->norm_epsilon;
  if (!(epsilon >= 0 && epsilon <= 1)) {
    return FieldError{"norm_epsilon", fmt::format("{:g}", epsilon), "a number between 0 and 1"};
  }
  return check_rope(model.constants->rope);
}

/// The bounds keep a dense layer below 2^63; its experts, or all layers together, may still exceed
/// it.
MaybeError check_size(const ModelSpec& model) {
  constexpr double kMaxParameters = 1e18;
  const auto too_large = [](std::string_view field, double count) {
    return FieldError{field, fmt::format("shapes with {:.3g} parameters", count),
                      "a model of at most 10^18 parameters"};
  };
  const double experts =
      3.0 * model.expert_hidden() * model.moe.expert_ffn_hidden * model.moe.experts;
  if (experts > kMaxParameters) return too_large("moe/experts", experts);
  const auto of_layer = [&](LayerKind kind) {
    return static_cast<double>(model.layer_parameters(kind).total());
  };
  const LayerKind only = model.moe.experts > 0 ? LayerKind::moe : LayerKind::dense;
  const auto of_mixer = [&](TokenMixer mixer, LayerKind kind) {
    const int with = model.layers_with(mixer);
    return with > 0 ? with * static_cast<double>(model.layer_parameters(kind, mixer).total()) : 0;
  };
  const int mixtures = model.moe_layers();
  const double count = (model.layers - mixtures) * of_layer(LayerKind::dense) +
                       (mixtures > 0 ? mixtures * of_layer(LayerKind::moe) : 0) +
                       of_mixer(TokenMixer::global_attention, LayerKind::dense) +
                       of_mixer(TokenMixer::delta_net, LayerKind::dense) +
                       of_mixer(TokenMixer::short_convolution, LayerKind::dense) +
                       of_mixer(TokenMixer::state_space, LayerKind::dense) +
                       of_mixer(TokenMixer::side_by_side, LayerKind::dense) +
                       of_mixer(TokenMixer::none, only) +
                       static_cast<double>(model.embedding_parameters()) +
                       static_cast<double>(model.head_parameters());
  if (count > kMaxParameters) return too_large("layers", count);
  return {};
}

}  // namespace

Status check_model(const ModelSpec& model, std::string_view where) {
  // The order matters: each check relies on the previous ones.
  for (const auto check : {check_shapes, check_norms, check_mixture, check_latent, check_sparse,
                           check_global, check_delta, check_state_space, check_convolution,
                           check_mlp_only, check_layer_pattern, check_constants, check_size}) {
    if (MaybeError found = check(model)) {
      return input_error(fmt::format("{} at /{}", where, found->field), std::move(found->found),
                         std::move(found->expected));
    }
  }
  return Done{};
}

}  // namespace echelon
