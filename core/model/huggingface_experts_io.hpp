// Pieces of families with experts: which layers have them, the router, DeepSeek's block. For
// *_io.cpp only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

/// A list of layer indices, such as mlp_only_layers. Nothing if the key is missing or null.
[[nodiscard]] std::optional<std::vector<int>> read_layer_list(JsonReader& reader,
                                                              std::string_view key, int layers);
/// Sets first_dense_layers and every from the layers that have experts, or reports that no such
/// pair describes them. `key` is the source of the list in the file.
void set_pattern(JsonReader& reader, std::string_view key, ModelSpec& model,
                 const std::vector<bool>& has_experts);

/// What a family does with its router's logits where the file does not say.
struct RouterWeights {
  RouterScore score = RouterScore::softmax;
  bool normalized = true;
  double scaling = 1;
};
void read_router_weights(JsonReader& reader, MixtureOfExperts& moe, RouterWeights usual);

/// DeepSeek-V3's router: sigmoid scores, corrected by e_score_correction_bias; `scaling` names the
/// factor of the weights.
void set_corrected_router(JsonReader& reader, MixtureOfExperts& moe, std::string_view scaling,
                          double usual);

/// Groups of experts that limit a token's choice; `otherwise`: those of the configuration class.
struct RouterGroups {
  int groups = 1;
  int topk = 1;
};
void read_router_groups(JsonReader& reader, MixtureOfExperts& moe, RouterGroups otherwise);

/// Sets the width of `count` shared experts; `key` counts them in the file.
void set_shared_experts(JsonReader& reader, std::string_view key, MixtureOfExperts& moe,
                        std::int64_t count, std::int64_t width);
/// All layers have experts but the first ones, which `key` counts.
void set_dense_layers(JsonReader& reader, ModelSpec& model, std::string_view key,
                      std::int64_t usual);
/// Layer i has experts when i ≥ first_k_dense_replace and moe_layer_freq | i.
/// Source: modeling_deepseek.py in the repository of deepseek-ai/DeepSeek-V3.
void read_deepseek_experts(JsonReader& reader, ModelSpec& model, RouterGroups otherwise);
/// Defaults of the configuration class of a family with latent attention.
struct LatentDefaults {
  bool tied_embeddings = false;
  double norm_epsilon = 1e-6;
  bool hidden_value_heads = false;  ///< without v_head_dim values share the hidden width evenly
};
/// Widths of latent attention, by the keys of DeepSeek's files. `value_head`: the width of a
/// value's head where the file does not say; 0: it must.
void read_latent_attention(JsonReader& reader, ModelSpec& model, std::int64_t value_head = 0);
/// A model with latent attention and dense layers.
void read_latent_block(JsonReader& reader, ModelSpec& model, const LatentDefaults& otherwise);
/// The list of MLPs in files that transformers 5 wrote. False if there is none.
bool read_mlp_kinds(JsonReader& reader, ModelSpec& model);
/// Defaults of the configuration class of a family with DeepSeek's block.
struct DeepseekDefaults {
  RouterGroups groups{};
  RouterWeights weights{};
  double norm_epsilon = 1e-6;
};
/// A whole model with latent attention; without experts if n_routed_experts is null.
void read_deepseek(JsonReader& reader, ModelSpec& model, const DeepseekDefaults& otherwise);

}  // namespace echelon
