#include "core/model.hpp"

#include <algorithm>

namespace echelon {

namespace {

/// Learned numbers of one norm over `width` values: a gain, and for LayerNorm also a bias.
std::int64_t norm_parameters(const ModelSpec& model, std::int64_t width) {
  return model.normalization == Normalization::layer_norm ? 2 * width : width;
}

}  // namespace

int ModelSpec::norms_per_layer() const {
  if (parallel_block) return 1;
  return post_norms ? 4 : 2;
}

ModelSpec::LayerParameters ModelSpec::layer_parameters() const {
  const std::int64_t h = hidden;
  const std::int64_t f = ffn_hidden;
  const std::int64_t qkv = query_width() + 2 * kv_width();
  const std::int64_t up = gated_mlp ? 2 * f : f;

  LayerParameters count;
  count.attention_matrices = h * qkv + query_width() * h;
  count.mlp_matrices = h * up + f * h;
  if (qkv_bias) count.sharded_vectors += qkv;
  if (mlp_bias) count.sharded_vectors += up;
  count.replicated = norms_per_layer() * norm_parameters(*this, h);
  if (qk_norm) count.replicated += 2 * norm_parameters(*this, head_dim);
  if (attention_output_bias) count.replicated += h;
  if (mlp_bias) count.replicated += h;
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
  return embedding_parameters() + layers * layer_parameters().total() + head_parameters();
}

Flops ModelSpec::flops_per_token(int sequence) const {
  const LayerParameters layer = layer_parameters();
  const double per_layer = static_cast<double>(layer.attention_matrices + layer.mlp_matrices);
  const double head = static_cast<double>(vocab) * hidden;
  const double matrices = layers * per_layer + head;

  const int seen = sliding_window > 0 ? std::min(sliding_window, sequence) : sequence;
  const double positions = static_cast<double>(layers - windowed_layers) * sequence +
                           static_cast<double>(windowed_layers) * seen;
  const double attention = 12 * static_cast<double>(query_width()) * positions;
  return Flops{6 * matrices + attention};
}

}  // namespace echelon
