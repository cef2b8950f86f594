// Whether the shapes of a model make sense together.
#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/model/model_formats_io.hpp"
#include "core/model/model_io.hpp"

namespace echelon {

namespace {

/// A complaint without the file: which field, what it is, what it should be.
struct Complaint {
  std::string_view field;
  std::string found;
  std::string expected;
};
using Found = std::optional<Complaint>;

struct Bound {
  std::string_view field;
  std::int64_t value;
  std::int64_t least;
  std::int64_t most;
};

Found check_bounds(std::span<const Bound> bounds) {
  for (const Bound& bound : bounds) {
    if (bound.value >= bound.least && bound.value <= bound.most) continue;
    return Complaint{bound.field, fmt::format("{}", bound.value),
                     fmt::format("a whole number between {} and {}", bound.least, bound.most)};
  }
  return {};
}

Found check_shapes(const ModelSpec& model) {
  const Bound bounds[] = {
      {"layers", model.layers, 1, kMostLayers},
      {"hidden", model.hidden, 1, kMostHidden},
      {"heads", model.heads, 1, kMostHeads},
      {"kv_heads", model.kv_heads, 1, kMostHeads},
      {"head_dim", model.head_dim, 1, kMostHeadDim},
      {"ffn_hidden", model.ffn_hidden, 1, kMostFfn},
      {"vocab", model.vocab, 1, kMostVocab},
      {"max_positions", model.max_positions, 1, kMostPositions},
      {"sliding_window", model.sliding_window, 0, kMostPositions},
      {"windowed_layers", model.windowed_layers, 0, model.layers},
  };
  if (Found found = check_bounds(bounds)) return found;
  if (model.heads % model.kv_heads != 0) {
    return Complaint{
        "kv_heads",
        fmt::format("{} key-value heads do not divide {} heads", model.kv_heads, model.heads),
        "a divisor of the number of heads"};
  }
  if ((model.sliding_window > 0) != (model.windowed_layers > 0)) {
    return Complaint{"windowed_layers",
                     fmt::format("{} windowed layers with a window of {} tokens",
                                 model.windowed_layers, model.sliding_window),
                     "both zero, or both above zero"};
  }
  const std::pair<std::string_view, double> dropouts[] = {
      {"hidden_dropout", model.hidden_dropout}, {"attention_dropout", model.attention_dropout}};
  for (const auto& [field, dropout] : dropouts) {
    if (dropout >= 0 && dropout <= 1) continue;  // false for not-a-number too
    return Complaint{field, fmt::format("{}", dropout), "a probability between 0 and 1"};
  }
  return {};
}

Found check_mixture(const ModelSpec& model) {
  const MixtureOfExperts& moe = model.moe;
  if (moe.experts == 0) {
    if (moe == MixtureOfExperts{}) return {};
    return Complaint{"moe/experts", "0 experts, yet other fields of a mixture are set",
                     "the number of routed experts, or no field of a mixture"};
  }
  const Bound bounds[] = {
      {"moe/experts", moe.experts, 1, kMostExperts},
      {"moe/experts_per_token", moe.experts_per_token, 1, moe.experts},
      {"moe/expert_ffn_hidden", moe.expert_ffn_hidden, 1, kMostFfn},
      {"moe/shared_ffn_hidden", moe.shared_ffn_hidden, 0, kMostFfn},
      {"moe/first_dense_layers", moe.first_dense_layers, 0, model.layers - 1},
      {"moe/every", moe.every, 1, model.layers},
  };
  if (Found found = check_bounds(bounds)) return found;
  if (moe.shared_expert_gate && moe.shared_ffn_hidden == 0) {
    return Complaint{"moe/shared_expert_gate", "a gate of shared experts without shared experts",
                     "false, or shared_ffn_hidden above zero"};
  }
  return {};
}

Found check_latent(const ModelSpec& model) {
  const LatentAttention& mla = model.mla;
  if (mla.kv_lora_rank == 0) {
    if (mla == LatentAttention{}) return {};
    return Complaint{"mla/kv_lora_rank", "0, yet other fields of latent attention are set",
                     "the width of the latent, or no field of latent attention"};
  }
  const Bound bounds[] = {
      {"mla/kv_lora_rank", mla.kv_lora_rank, 1, kMostHidden},
      {"mla/q_lora_rank", mla.q_lora_rank, 0, kMostHidden},
      {"mla/qk_nope_head_dim", mla.qk_nope_head_dim, 1, kMostHeadDim},
      {"mla/qk_rope_head_dim", mla.qk_rope_head_dim, 1, kMostHeadDim},
      {"mla/v_head_dim", mla.v_head_dim, 1, kMostHeadDim},
  };
  if (Found found = check_bounds(bounds)) return found;
  if (model.head_dim != mla.qk_nope_head_dim + mla.qk_rope_head_dim) {
    return Complaint{"head_dim",
                     fmt::format("{} with {} dimensions without and {} with rotary position",
                                 model.head_dim, mla.qk_nope_head_dim, mla.qk_rope_head_dim),
                     "qk_nope_head_dim + qk_rope_head_dim"};
  }
  if (model.kv_heads != model.heads) {
    return Complaint{"kv_heads",
                     fmt::format("{} key-value heads and {} heads", model.kv_heads, model.heads),
                     "as many as heads: latent attention rebuilds keys and values of every head"};
  }
  return {};
}

Found check_rope(const RotaryEmbedding& rope) {
  struct Real {
    std::string_view field;
    double value;
    double least;
    double most;
  };
  const Real reals[] = {
      {"rope/theta", rope.theta, kLeastTheta, kMostTheta},
      {"rope/rotated_part", rope.rotated_part, 0, 1},
      {"rope/factor", rope.factor, 1, kMostRope},
      {"rope/low_frequency_factor", rope.low_frequency_factor, kLeastRope, kMostRope},
      {"rope/high_frequency_factor", rope.high_frequency_factor, rope.low_frequency_factor,
       kMostRope},
      {"rope/beta_slow", rope.beta_slow, kLeastRope, kMostRope},
      {"rope/beta_fast", rope.beta_fast, rope.beta_slow, kMostRope},
      {"rope/attention_factor", rope.attention_factor, kLeastRope, kMostRope},
  };
  for (const Real& real : reals) {
    if (real.value >= real.least && real.value <= real.most) continue;  // false for not-a-number
    return Complaint{real.field, fmt::format("{:g}", real.value),
                     fmt::format("a number between {:g} and {:g}", real.least, real.most)};
  }
  const bool extended = rope.scaling == RopeScaling::llama3 || rope.scaling == RopeScaling::yarn;
  if (extended && rope.original_positions < 1) {
    return Complaint{"rope/original_positions", fmt::format("{}", rope.original_positions),
                     "the context length before it was extended"};
  }
  return {};
}

Found check_constants(const ModelSpec& model) {
  if (!model.constants) return {};
  const double epsilon = model.constants->norm_epsilon;
  if (!(epsilon >= 0 && epsilon <= 1)) {
    return Complaint{"norm_epsilon", fmt::format("{:g}", epsilon), "a number between 0 and 1"};
  }
  return check_rope(model.constants->rope);
}

/// The bounds keep a dense layer below 2^63; its experts, or all layers together, may still pass
/// it.
Found check_size(const ModelSpec& model) {
  constexpr double kMostParameters = 1e18;
  const auto complain = [](std::string_view field, double count) {
    return Complaint{field, fmt::format("shapes that make {:.3g} parameters", count),
                     "a model of at most 10^18 parameters"};
  };
  const double experts = 3.0 * model.hidden * model.moe.expert_ffn_hidden * model.moe.experts;
  if (experts > kMostParameters) return complain("moe/experts", experts);
  const auto of_layer = [&](LayerKind kind) {
    return static_cast<double>(model.layer_parameters(kind).total());
  };
  const int mixtures = model.moe_layers();
  const double count = (model.layers - mixtures) * of_layer(LayerKind::dense) +
                       (mixtures > 0 ? mixtures * of_layer(LayerKind::moe) : 0) +
                       static_cast<double>(model.embedding_parameters()) +
                       static_cast<double>(model.head_parameters());
  if (count > kMostParameters) return complain("layers", count);
  return {};
}

}  // namespace

Status check_model(const ModelSpec& model, std::string_view where) {
  // In this order: each relies on the ones before it.
  for (const auto check :
       {check_shapes, check_mixture, check_latent, check_constants, check_size}) {
    if (Found found = check(model)) {
      return input_error(fmt::format("{} at /{}", where, found->field), std::move(found->found),
                         std::move(found->expected));
    }
  }
  return Done{};
}

}  // namespace echelon
