#include "core/model/model.hpp"

#include <algorithm>

#include "core/base/expects.hpp"
#include "core/model/parameter_groups.hpp"

namespace echelon {

namespace {

/// Parameters of one norm over `width` values: a gain, and for LayerNorm also a bias.
std::int64_t norm_parameters(const ModelSpec& model, std::int64_t width) {
  return model.normalization == Normalization::layer_norm ? 2 * width : width;
}

void count_attention(const ModelSpec& model, const ModelSpec::HeadShapes& shapes,
                     ModelSpec::LayerParameters& count) {
  const std::int64_t h = model.hidden;
  const std::int64_t q = std::int64_t{model.heads} * shapes.head_dim;
  const std::int64_t qkv =
      q + std::int64_t{shapes.keys_are_values ? 1 : 2} * shapes.kv_heads * shapes.head_dim;
  const std::int64_t gate = model.attention_output_gate ? q : 0;
  count.attention_matrices += h * (qkv + gate) + q * h;
  if (model.qkv_bias) count.sharded_vectors += qkv + gate;
}

void count_attention_vectors(const ModelSpec& model, const ModelSpec::HeadShapes& shapes,
                             ModelSpec::LayerParameters& count) {
  if (model.attention_sinks) count.sharded_vectors += model.heads;
  if (model.qk_norm) count.replicated += 2 * norm_parameters(model, shapes.head_dim);
  if (model.qk_norm_all_heads) {
    count.sharded_vectors +=
        norm_parameters(model, (std::int64_t{model.heads} + shapes.kv_heads) * shapes.head_dim);
  }
  if (model.attention_output_bias) count.replicated += model.hidden;
}

/// Projections in and out, and of gates; the convolution without bias; the scale of the decays per
/// head and a bias for each; a gated norm whose gain all heads share.
void count_delta_net(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const GatedDeltaNet& delta = model.delta;
  count.attention_matrices = delta.matrices(model.hidden);
  count.sharded_vectors +=
      delta.conv_kernel * delta.conv_width() + delta.value_heads + delta.decays();
  count.replicated += delta.value_head_dim;
}

/// One projection in and one out; the convolution with its bias, decay, bias of the step and weight
/// of the input per head; the gain of a gated norm per channel.
void count_state_space(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const StateSpace& ssm = model.ssm;
  count.attention_matrices += model.hidden * (ssm.input_width() + ssm.width());
  count.sharded_vectors += (ssm.conv_kernel + 1) * ssm.conv_width() + 3 * std::int64_t{ssm.heads} +
                           (ssm.gated_norm ? ssm.width() : 0);
}

/// One projection in, to both gates and the input, and one out; a filter per channel.
void count_short_convolution(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const std::int64_t h = model.hidden;
  count.attention_matrices = 4 * h * h;
  count.sharded_vectors += model.conv.kernel * h;
  if (!model.conv.bias) return;
  count.sharded_vectors += 4 * h;
  count.replicated += h;
}

/// The down projections to the latents are on every rank, the up projections are split by heads;
/// the key's rotary part is projected directly from the hidden state. Biases and norms apply to the
/// latents.
void count_latent_attention(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const LatentAttention& mla = model.mla;
  const std::int64_t h = model.hidden;
  const std::int64_t down = mla.kv_lora_rank + mla.qk_rope_head_dim + mla.q_lora_rank;
  const std::int64_t query_source = mla.q_lora_rank > 0 ? mla.q_lora_rank : h;
  const std::int64_t key_value =
      std::int64_t{model.heads} * (mla.qk_nope_head_dim + mla.v_head_dim);
  count.latent_matrices = h * down;
  count.attention_matrices = query_source * model.query_width() + mla.kv_lora_rank * key_value +
                             model.attention_output_width() * h;
  if (model.qkv_bias) count.replicated += down;
  count.replicated += norm_parameters(model, mla.kv_lora_rank);
  if (mla.q_lora_rank > 0) count.replicated += norm_parameters(model, mla.q_lora_rank);
}

/// Queries from the queries' latent, one key and a weight per head from the hidden state; the key's
/// norm has a bias in every model.
void count_indexer(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const SparseAttention& dsa = model.dsa;
  count.indexer_matrices =
      std::int64_t{model.mla.q_lora_rank} * dsa.index_heads * dsa.index_head_dim +
      std::int64_t{model.hidden} * (dsa.index_head_dim + dsa.index_heads);
  count.replicated += 2 * std::int64_t{dsa.index_head_dim};
}

void count_dense_mlp(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const std::int64_t h = model.hidden;
  const std::int64_t f = model.ffn_hidden;
  const std::int64_t up = model.gated_mlp ? 2 * f : f;
  count.mlp_matrices = h * up + f * h;
  if (!model.mlp_bias) return;
  count.sharded_vectors += up;
  count.replicated += h;
}

/// Matrices of one routed expert.
std::int64_t expert_matrix_parameters(const ModelSpec& model) {
  return std::int64_t{model.gated_mlp ? 3 : 2} * model.expert_hidden() *
         model.moe.expert_ffn_hidden;
}

/// The projections to and from the experts' latent.
std::int64_t latent_expert_parameters(const ModelSpec& model) {
  return 2 * std::int64_t{model.hidden} * model.moe.latent_hidden;
}

std::int64_t expert_bias_parameters(const ModelSpec& model) {
  if (!model.moe.expert_bias) return 0;
  return std::int64_t{model.gated_mlp ? 2 : 1} * model.moe.expert_ffn_hidden +
         model.expert_hidden();
}

void count_experts(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const MixtureOfExperts& moe = model.moe;
  const std::int64_t h = model.hidden;
  count.expert_matrices = moe.experts * expert_matrix_parameters(model);
  count.expert_vectors = moe.experts * expert_bias_parameters(model);
  count.shared_expert_matrices = std::int64_t{model.gated_mlp ? 3 : 2} * h * moe.shared_ffn_hidden;
  count.router = h * moe.experts + latent_expert_parameters(model);
  if (moe.router_bias) count.router += moe.experts;
  if (moe.shared_expert_gate) count.router += h;
  if (moe.branch_norms) count.router += h + moe.experts;
}

/// Multiplications per token in all layers with a delta net: projections, convolution, recurrence.
double delta_multiplications(const ModelSpec& model) {
  const GatedDeltaNet& delta = model.delta;
  const double recurrence =
      4.0 * static_cast<double>(delta.key_head_dim) * static_cast<double>(delta.value_width());
  return delta.layers * (static_cast<double>(delta.matrices(model.hidden) +
                                             delta.conv_kernel * delta.conv_width()) +
                         recurrence);
}

/// The same in all layers with a state space: projections, and 3.5 for each number of the state.
double state_space_multiplications(const ModelSpec& model) {
  const StateSpace& ssm = model.ssm;
  return ssm.layers * (static_cast<double>(model.hidden * (ssm.input_width() + ssm.width())) +
                       3.5 * static_cast<double>(ssm.width()) * ssm.state_dim);
}

/// The same in all layers with a short convolution: projections and filter.
double short_convolution_multiplications(const ModelSpec& model) {
  const auto h = static_cast<double>(model.hidden);
  return model.conv.layers * h * (4 * h + model.conv.kernel);
}

}  // namespace

int ModelSpec::norms_per_layer(LayerKind kind) const {
  if (parallel_block || mlp_only_layers > 0) return 1;
  const int branches = kind == LayerKind::moe && moe.branch_norms ? 3 : 0;
  return (post_norms ? 4 : 2) + branches;
}

LayerKind ModelSpec::layer_kind(int layer) const {
  const int after = layer - moe.first_dense_layers;
  const bool experts = moe.experts > 0 && after >= 0 && after % moe.every == 0;
  return experts ? LayerKind::moe : LayerKind::dense;
}

int ModelSpec::moe_layers() const {
  const int after = layers - moe.first_dense_layers;
  return moe.experts > 0 && after > 0 ? 1 + (after - 1) / moe.every : 0;
}

int ModelSpec::expert_layers() const {
  return moe.experts > 0 && mlp_only_layers > 0 ? mlp_only_layers : moe_layers();
}

int ModelSpec::layers_with(TokenMixer mixer) const {
  switch (mixer) {
    case TokenMixer::attention:
      return layers - global.layers - delta.layers - ssm.layers - conv.layers - mlp_only_layers;
    case TokenMixer::global_attention: return global.layers;
    case TokenMixer::short_convolution: return conv.layers;
    case TokenMixer::delta_net: return delta.layers;
    case TokenMixer::state_space: return ssm.beside_attention ? 0 : ssm.layers;
    case TokenMixer::side_by_side: return ssm.beside_attention ? ssm.layers : 0;
    case TokenMixer::none: return mlp_only_layers;
  }
  return 0;
}

ModelSpec::LayerParameters ModelSpec::layer_parameters(LayerKind kind, TokenMixer mixer) const {
  EXPECTS(kind == LayerKind::dense || moe.experts > 0, "a dense model has no experts");
  EXPECTS(mixer == TokenMixer::attention || layers_with(mixer) > 0,
          "a model without layers of this mixer");
  LayerParameters count;
  const HeadShapes shapes = head_shapes(mixer);
  switch (mixer) {
    case TokenMixer::delta_net: count_delta_net(*this, count); break;
    case TokenMixer::state_space: count_state_space(*this, count); break;
    case TokenMixer::short_convolution: count_short_convolution(*this, count); break;
    case TokenMixer::none: break;
    case TokenMixer::side_by_side: count_state_space(*this, count); [[fallthrough]];
    case TokenMixer::attention:
    case TokenMixer::global_attention:
      if (latent()) {
        count_latent_attention(*this, count);
        if (sparse()) count_indexer(*this, count);
      } else {
        count_attention(*this, shapes, count);
      }
      count_attention_vectors(*this, shapes, count);
      break;
  }
  if (has_mlp(mixer) && kind == LayerKind::moe) {
    count_experts(*this, count);
  } else if (has_mlp(mixer)) {
    count_dense_mlp(*this, count);
  }
  count.replicated += norms_per_layer(kind) * norm_parameters(*this, hidden);
  return count;
}

std::int64_t ModelSpec::embedding_parameters() const {
  std::int64_t count = std::int64_t{vocab} * hidden;
  if (position == PositionEmbedding::learned) count += std::int64_t{max_positions} * hidden;
  if (embedding_norm) count += norm_parameters(*this, hidden);
  return count;
}

std::int64_t ModelSpec::head_parameters() const {
  std::int64_t count = norm_parameters(*this, hidden);
  if (!tied_embeddings) count += std::int64_t{vocab} * hidden;
  if (head_bias) count += vocab;
  return count;
}

std::int64_t ModelSpec::parameters() const {
  return embedding_parameters() + head_parameters() + parameters_of_layers(*this).total();
}

std::int64_t ModelSpec::active_parameters() const {
  const std::int64_t idle = moe.experts - moe.experts_per_token;
  const std::int64_t expert = expert_matrix_parameters(*this) + expert_bias_parameters(*this);
  return parameters() - expert_layers() * idle * expert;
}

Flops ModelSpec::flops_per_token(double span, bool frozen, bool causal) const {
  const TokenMixer before_mlp = mixer_before_mlp();
  const LayerParameters layer = layer_parameters(LayerKind::dense);
  const int with_experts = expert_layers();
  const int with_mlp = mlp_only_layers > 0 ? mlp_only_layers : layers;
  const int with_attention =
      layers_with(TokenMixer::attention) + layers_with(TokenMixer::side_by_side);
  const auto attended = static_cast<double>(layer.attention_matrices + layer.latent_matrices);
  const auto dense =
      static_cast<double>(layer_parameters(LayerKind::dense, before_mlp).mlp_matrices);
  const auto global_matrices =
      global.layers == 0
          ? 0.0
          : static_cast<double>(layer_parameters(LayerKind::dense, TokenMixer::global_attention)
                                    .attention_matrices);
  double matrices = with_attention * attended + global.layers * global_matrices +
                    (with_mlp - with_experts) * dense + static_cast<double>(vocab) * hidden;
  if (with_experts > 0) {
    const LayerParameters mixture = layer_parameters(LayerKind::moe, before_mlp);
    const std::int64_t visited = moe.experts_per_token * expert_matrix_parameters(*this);
    const std::int64_t routing =
        std::int64_t{moe.experts} * hidden + latent_expert_parameters(*this);
    matrices +=
        with_experts * static_cast<double>(visited + mixture.shared_expert_matrices + routing);
  }

  const auto scored = [&](double keys) { return causal ? keys * (1 - keys / (2 * span)) : keys; };
  const auto at_most = [&](int keys) {
    return scored(keys > 0 ? std::min<double>(keys, span) : span);
  };
  const double positions =
      static_cast<double>(with_attention - windowed_layers) * at_most(dsa.topk) +
      static_cast<double>(windowed_layers) * at_most(sliding_window);
  const double of_global = 2.0 * heads * global.head_dim * global.layers * scored(span);
  const double attention =
      6 * (static_cast<double>(query_width() + attention_output_width()) * positions + of_global);
  const double indexer = 4 * static_cast<double>(layer.indexer_matrices) +
                         static_cast<double>(dsa.index_heads) * dsa.index_head_dim *
                             (2 * scored(span) + 4 * at_most(dsa.topk));
  const double of_matrix = frozen ? 4 : 6;
  return Flops{of_matrix *
                   (matrices + delta_multiplications(*this) + state_space_multiplications(*this) +
                    short_convolution_multiplications(*this)) +
               attention + with_attention * indexer};
}

}  // namespace echelon
