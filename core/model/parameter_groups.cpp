#include "core/model/parameter_groups.hpp"

#include <array>

namespace echelon {

namespace {

using Layer = ModelSpec::LayerParameters;

struct LayerGroup {
  std::string_view name;
  std::int64_t Layer::*count;
  bool experts = false;  ///< of the routed experts
};
constexpr std::array kLayerGroups = {
    LayerGroup{"attention and other token mixers", &Layer::attention_matrices},
    LayerGroup{"down projections to latents", &Layer::latent_matrices},
    LayerGroup{"indexer", &Layer::indexer_matrices},
    LayerGroup{"MLP", &Layer::mlp_matrices},
    LayerGroup{"shared experts", &Layer::shared_expert_matrices},
    LayerGroup{"routed experts", &Layer::expert_matrices, true},
    LayerGroup{"biases of routed experts", &Layer::expert_vectors, true},
    LayerGroup{"router", &Layer::router},
    LayerGroup{"biases and filters, split over tp", &Layer::sharded_vectors},
    LayerGroup{"norms and biases, on every tp rank", &Layer::replicated}};

void add(Layer& sum, const Layer& layer, int times) {
  for (const LayerGroup& group : kLayerGroups) sum.*group.count += times * (layer.*group.count);
}

}  // namespace

ModelSpec::LayerParameters parameters_of_layers(const ModelSpec& model) {
  Layer sum;
  if (model.mlp_only_layers > 0) {
    const LayerKind only = model.moe.experts > 0 ? LayerKind::moe : LayerKind::dense;
    for (const TokenMixer mixer : kTokenMixers) {
      const int with = model.layers_with(mixer);
      if (with > 0) add(sum, model.layer_parameters(only, mixer), with);
    }
    return sum;
  }
  const int with_experts = model.moe_layers();
  const Layer attended = model.layer_parameters(LayerKind::dense);
  add(sum, attended, model.layers - with_experts);
  if (with_experts > 0) add(sum, model.layer_parameters(LayerKind::moe), with_experts);
  for (const TokenMixer mixer : kTokenMixers) {
    const int with = model.layers_with(mixer);
    if (mixer == TokenMixer::attention || with == 0) continue;
    add(sum, model.layer_parameters(LayerKind::dense, mixer), with);
    add(sum, attended, -with);
  }
  return sum;
}

std::vector<ParameterGroup> parameter_groups(const ModelSpec& model) {
  std::vector<ParameterGroup> out;
  const auto list = [&](std::string_view name, std::int64_t count, std::int64_t active) {
    if (count > 0) out.push_back({name, count, active});
  };
  const std::int64_t embedding = model.embedding_parameters();
  list("embedding", embedding, embedding);
  const Layer layers = parameters_of_layers(model);
  for (const LayerGroup& group : kLayerGroups) {
    const std::int64_t count = layers.*group.count;
    const bool visited = group.experts && count > 0;
    list(group.name, count,
         visited ? count / model.moe.experts * model.moe.experts_per_token : count);
  }
  const std::int64_t head = model.head_parameters();
  list(model.tied_embeddings ? "final norm" : "final norm and output head", head, head);
  return out;
}

}  // namespace echelon
