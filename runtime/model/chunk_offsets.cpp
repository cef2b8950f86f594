// Where a chunk's parameters lie in its flat parameters.
#include <optional>
#include <string>

#include "core/base/expects.hpp"
#include "runtime/model/chunk_layout.hpp"

namespace echelon {

namespace {

std::int64_t offset_of(const FlatParameters& flat, const std::string& name) {
  for (const Parameter& p : flat.parameters) {
    if (p.name == name) return p.offset;
  }
  EXPECTS(false, "no parameter " + name);
  return 0;
}

/// `of_experts`: the flat parameters that hold the rank's experts, of which `first` is the first.
LayerOffsets offsets_of_layer(const ModelSpec& model, const FlatParameters& flat,
                              const FlatParameters& of_experts, int first, int layer) {
  const std::string at = "layers." + std::to_string(layer) + ".";
  const bool experts = model.layer_kind(layer) == LayerKind::moe;
  const std::string mlp = experts ? "moe.experts." + std::to_string(first) + "." : "mlp.";
  const std::string first_up = mlp + (model.gated_mlp ? "gate" : "up");
  const auto find = [&](const std::string& name) { return offset_of(flat, at + name); };
  LayerOffsets o;
  o.attention_norm = find("attention.norm.weight");
  o.mlp_norm = find("mlp.norm.weight");
  if (model.normalization == Normalization::layer_norm) {
    o.attention_norm_bias = find("attention.norm.bias");
    o.mlp_norm_bias = find("mlp.norm.bias");
  }
  if (model.latent()) {
    const bool direct = model.mla.q_lora_rank == 0;
    o.latent_down = find(direct ? "attention.kv_down.weight" : "attention.q_down.weight");
    if (!direct) o.q_latent_norm = find("attention.q_latent_norm.weight");
    o.kv_latent_norm = find("attention.kv_latent_norm.weight");
    o.q_up = find(direct ? "attention.q.weight" : "attention.q_up.weight");
    o.kv_up = find("attention.kv_up.weight");
  } else {
    o.qkv = find("attention.q.weight");
  }
  if (model.qkv_bias) o.qkv_bias = find("attention.q.bias");
  if (model.qk_norm) {
    o.q_norm = find("attention.q_norm.weight");
    o.k_norm = find("attention.k_norm.weight");
  }
  o.output = find("attention.output.weight");
  if (model.attention_output_bias) o.output_bias = find("attention.output.bias");
  if (experts) o.router = find("moe.router.weight");
  if (experts && model.moe.router_bias) o.router_bias = find("moe.router.bias");
  if (experts && model.moe.shared_ffn_hidden > 0) {
    o.shared_up = find(model.gated_mlp ? "moe.shared.gate.weight" : "moe.shared.up.weight");
    o.shared_down = find("moe.shared.down.weight");
    if (model.moe.shared_expert_gate) o.shared_gate = find("moe.shared_gate.weight");
  }
  const FlatParameters& of_mlp = experts ? of_experts : flat;
  o.up = offset_of(of_mlp, at + first_up + ".weight");
  o.down = offset_of(of_mlp, at + mlp + "down.weight");
  if (model.mlp_bias && !experts) {
    o.up_bias = find(first_up + ".bias");
    o.down_bias = find("mlp.down.bias");
  }
  return o;
}

/// Of the adapters of a layer, in `flat`.
void place_adapters(const ChunkSpec& spec, const FlatParameters& flat, int layer,
                    LayerOffsets& offsets) {
  using enum AdapterTarget;
  const ChunkShape s = shape_of(spec);
  const std::string at = "layers." + std::to_string(layer) + ".";
  const auto place = [&](AdapterTarget target, const char* a, const char* b) {
    if (!spec.adapters->targets.contains(target)) return;
    offsets.adapters[static_cast<std::size_t>(target)] = {
        offset_of(flat, at + a + ".lora_A.weight"), offset_of(flat, at + b + ".lora_B.weight"),
        widths_of(s, target)};
  };
  place(linear_qkv, "attention.qkv", "attention.q");
  place(linear_proj, "attention.output", "attention.output");
  place(linear_fc1, "mlp.fc1", spec.model.gated_mlp ? "mlp.gate" : "mlp.up");
  place(linear_fc2, "mlp.down", "mlp.down");
}

/// Of a unit, the set that holds the model's own matrices.
const FlatParameters& own_flat(const ChunkParameters& parameters, int unit) {
  return parameters
      .flat_params[parameters.frozen_of(unit).value_or(static_cast<std::size_t>(unit))];
}

}  // namespace

std::vector<LayerOffsets> layer_offsets(const ChunkSpec& spec, const ChunkParameters& parameters) {
  std::vector<LayerOffsets> layers;
  for (int unit = 0; unit < spec.units; ++unit) {
    const FlatParameters& flat = own_flat(parameters, unit);
    for (int l = spec.first_layer_of(unit); l < spec.first_layer_of(unit + 1); ++l) {
      const std::optional<std::size_t> own = parameters.experts_of(unit);
      layers.push_back(offsets_of_layer(spec.model, flat, own ? parameters.flat_params[*own] : flat,
                                        spec.ep_rank * (spec.model.moe.experts / spec.ep),
                                        spec.first_layer + l));
      if (!spec.adapters) continue;
      place_adapters(spec, parameters.flat_params[static_cast<std::size_t>(unit)],
                     spec.first_layer + l, layers.back());
    }
  }
  return layers;
}

EndOffsets end_offsets(const ChunkSpec& spec, const ChunkParameters& parameters) {
  const ModelSpec& model = spec.model;
  const FlatParameters& first = own_flat(parameters, 0);
  const FlatParameters& last = own_flat(parameters, spec.units - 1);
  EndOffsets o;
  if (spec.embedding) {
    if (!model.tied_embeddings) o.word_embedding = offset_of(first, "embedding.word.weight");
    if (model.position == PositionEmbedding::learned) {
      o.position = offset_of(first, "embedding.position.weight");
    }
  }
  if (spec.loss) {
    o.final_norm = offset_of(last, "final_norm.weight");
    if (model.normalization == Normalization::layer_norm) {
      o.final_norm_bias = offset_of(last, "final_norm.bias");
    }
    if (!model.tied_embeddings) o.head = offset_of(last, "head.weight");
    if (model.head_bias) o.head_bias = offset_of(last, "head.bias");
  }
  return o;
}

}  // namespace echelon
