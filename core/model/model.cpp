#include "core/model/model.hpp"

#include <algorithm>

#include "core/base/expects.hpp"

namespace echelon {

namespace {

/// Parameters of one norm over `width` values: a gain, and for LayerNorm also a bias.
std::int64_t norm_parameters(const ModelSpec& model, std::int64_t width) {
  return model.normalization == Normalization::layer_norm ? 2 * width : width;
}

void count_attention(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const std::int64_t h = model.hidden;
  const std::int64_t qkv = model.query_width() + 2 * model.kv_width();
  const std::int64_t gate = model.attention_output_gate ? model.query_width() : 0;
  count.attention_matrices = h * (qkv + gate) + model.query_width() * h;
  if (model.qkv_bias) count.sharded_vectors += qkv + gate;
}

void count_attention_vectors(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  if (model.attention_sinks) count.sharded_vectors += model.heads;
  if (model.qk_norm) count.replicated += 2 * norm_parameters(model, model.head_dim);
  if (model.qk_norm_all_heads) {
    count.sharded_vectors += norm_parameters(model, model.query_width() + model.kv_width());
  }
  if (model.attention_output_bias) count.replicated += model.hidden;
}

/// One projection in and one out; the convolution without bias, decay and its bias per head; a
/// gated norm whose gain all heads share.
void count_delta_net(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const GatedDeltaNet& delta = model.delta;
  count.attention_matrices = model.hidden * (delta.input_width() + delta.value_width());
  count.sharded_vectors += delta.conv_kernel * delta.conv_width() + 2 * delta.value_heads;
  count.replicated += delta.value_head_dim;
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
  return std::int64_t{model.gated_mlp ? 3 : 2} * model.hidden * model.moe.expert_ffn_hidden;
}

std::int64_t expert_bias_parameters(const ModelSpec& model) {
  if (!model.moe.expert_bias) return 0;
  return std::int64_t{model.gated_mlp ? 2 : 1} * model.moe.expert_ffn_hidden + model.hidden;
}

void count_experts(const ModelSpec& model, ModelSpec::LayerParameters& count) {
  const MixtureOfExperts& moe = model.moe;
  const std::int64_t h = model.hidden;
  count.expert_matrices = moe.experts * expert_matrix_parameters(model);
  count.expert_vectors = moe.experts * expert_bias_parameters(model);
  count.shared_expert_matrices = std::int64_t{model.gated_mlp ? 3 : 2} * h * moe.shared_ffn_hidden;
  count.router = h * moe.experts;
  if (moe.router_bias) count.router += moe.experts;
  if (moe.shared_expert_gate) count.router += h;
}

/// Multiplications per token in all layers with a delta net: projections, convolution, recurrence.
double delta_multiplications(const ModelSpec& model) {
  const GatedDeltaNet& delta = model.delta;
  const double recurrence =
      4.0 * static_cast<double>(delta.key_head_dim) * static_cast<double>(delta.value_width());
  return delta.layers *
         (static_cast<double>(model.hidden * (delta.input_width() + delta.value_width()) +
                              delta.conv_kernel * delta.conv_width()) +
          recurrence);
}

}  // namespace

int ModelSpec::norms_per_layer() const {
  if (parallel_block) return 1;
  return post_norms ? 4 : 2;
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

ModelSpec::LayerParameters ModelSpec::layer_parameters(LayerKind kind, TokenMixer mixer) const {
  EXPECTS(kind == LayerKind::dense || moe.experts > 0, "a dense model has no experts");
  EXPECTS(mixer == TokenMixer::attention || delta.layers > 0, "a model without delta nets");
  LayerParameters count;
  if (mixer == TokenMixer::delta_net) {
    count_delta_net(*this, count);
  } else {
    if (latent()) {
      count_latent_attention(*this, count);
    } else {
      count_attention(*this, count);
    }
    count_attention_vectors(*this, count);
  }
  if (kind == LayerKind::moe) {
    count_experts(*this, count);
  } else {
    count_dense_mlp(*this, count);
  }
  count.replicated += norms_per_layer() * norm_parameters(*this, hidden);
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
  const int with_experts = moe_layers();
  std::int64_t count = embedding_parameters() + head_parameters();
  count += (layers - with_experts) * layer_parameters(LayerKind::dense).total();
  if (with_experts > 0) count += with_experts * layer_parameters(LayerKind::moe).total();
  if (delta.layers > 0) {  // whatever follows them in the layer
    count += delta.layers * (layer_parameters(LayerKind::dense, TokenMixer::delta_net).total() -
                             layer_parameters(LayerKind::dense).total());
  }
  return count;
}

std::int64_t ModelSpec::active_parameters() const {
  const std::int64_t idle = moe.experts - moe.experts_per_token;
  const std::int64_t expert = expert_matrix_parameters(*this) + expert_bias_parameters(*this);
  return parameters() - moe_layers() * idle * expert;
}

Flops ModelSpec::flops_per_token(double span) const {
  const LayerParameters layer = layer_parameters(LayerKind::dense);
  const int with_experts = moe_layers();
  const auto attended = static_cast<double>(layer.attention_matrices + layer.latent_matrices);
  double matrices = (layers - delta.layers) * attended +
                    (layers - with_experts) * static_cast<double>(layer.mlp_matrices) +
                    static_cast<double>(vocab) * hidden;
  if (with_experts > 0) {
    const LayerParameters mixture = layer_parameters(LayerKind::moe);
    const std::int64_t visited = moe.experts_per_token * expert_matrix_parameters(*this);
    const std::int64_t routing = std::int64_t{moe.experts} * hidden;
    matrices +=
        with_experts * static_cast<double>(visited + mixture.shared_expert_matrices + routing);
  }

  const double seen = sliding_window > 0 ? std::min<double>(sliding_window, span) : span;
  const double positions = static_cast<double>(layers - delta.layers - windowed_layers) * span +
                           static_cast<double>(windowed_layers) * seen;
  const double attention =
      6 * static_cast<double>(query_width() + attention_output_width()) * positions;
  return Flops{6 * (matrices + delta_multiplications(*this)) + attention};
}

}  // namespace echelon
