// Parameters of a rank: layers, experts, embedding, head.
#include <algorithm>
#include <cmath>

#include "costmodel/operators/operators.hpp"

namespace echelon {

double padded_vocab(const ModelSpec& model, const Framework& framework, int tp) {
  const double unit = static_cast<double>(framework.vocab_padding) * tp;
  return std::ceil(model.vocab / unit) * unit;
}

double layer_parameters_per_rank(const ModelSpec& model, int tp, LayerKind kind, TokenMixer mixer) {
  const ModelSpec::LayerParameters all = model.layer_parameters(kind, mixer);
  const double sharded = static_cast<double>(all.attention_matrices + all.mlp_matrices +
                                             all.shared_expert_matrices + all.sharded_vectors) /
                         tp;
  const auto on_every_rank =
      static_cast<double>(all.replicated + all.latent_matrices + all.indexer_matrices + all.router);
  const bool attends = mixer == TokenMixer::attention || mixer == TokenMixer::side_by_side ||
                       mixer == TokenMixer::global_attention;
  if (!attends) return sharded + on_every_rank;
  const ModelSpec::HeadShapes heads = model.head_shapes(mixer);
  // If there are fewer kv heads than tp, they are copied: every rank has one key and one value
  // head.
  const double surplus = std::max(0.0, 1.0 - static_cast<double>(heads.kv_heads) / tp);
  const double copies = (heads.keys_are_values ? 1 : 2) * surplus * heads.head_dim *
                        (static_cast<double>(model.hidden) + (model.qkv_bias ? 1 : 0));
  return sharded + copies + on_every_rank;
}

double expert_parameters_per_rank(const ModelSpec& model, const LayerSharding& sharding) {
  if (model.moe.experts == 0) return 0;
  const ModelSpec::LayerParameters all =
      model.layer_parameters(LayerKind::moe, model.mixer_before_mlp());
  return static_cast<double>(all.expert_matrices) /
             (static_cast<double>(sharding.ep) * sharding.etp) +
         static_cast<double>(all.expert_vectors) / sharding.ep;
}

double embedding_parameters_per_rank(const ModelSpec& model, const Framework& framework, int tp) {
  const double h = model.hidden;
  const double word = padded_vocab(model, framework, tp) / tp * h;
  const double rest = static_cast<double>(model.embedding_parameters()) - h * model.vocab;
  return word + rest;
}

double head_parameters_per_rank(const ModelSpec& model, const Framework& framework, int tp,
                                bool holds_tied_copy) {
  const double vocab = padded_vocab(model, framework, tp) / tp;
  const double matrix = !model.tied_embeddings || holds_tied_copy ? vocab * model.hidden : 0.0;
  const double bias = model.head_bias ? vocab : 0.0;
  const double norm = model.normalization == Normalization::layer_norm ? 2.0 : 1.0;
  return matrix + bias + norm * model.hidden;
}

}  // namespace echelon
