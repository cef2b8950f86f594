// Keys that several HuggingFace families share. For *_io.cpp only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

/// Readers of constants; `model.constants` must have a value before any call.
inline void add_arithmetic(ModelSpec& model, std::string what) {
  std::vector<std::string>& all = model.constants->other_arithmetic;
  if (std::find(all.begin(), all.end(), what) == all.end()) all.push_back(std::move(what));
}
void read_norm_epsilon(JsonReader& reader, ModelSpec& model, std::string_view key,
                       double otherwise);
/// rope_theta and partial_rotary_factor: from rope_parameters (transformers 5), or next to
/// rope_scaling, else the family's defaults. Call it after the positions and head widths are read.
struct RopeDefaults {
  double theta = 10'000;
  double rotated_part = 1;
};
void read_rope(JsonReader& reader, ModelSpec& model, const RopeDefaults& otherwise = {});

/// How add_arithmetic() calls a kind of scaling that has no field: "'x' scaling of …".
inline constexpr std::string_view kUnknownRopeScaling = " scaling of the rotary embedding";

/// Exact and quick GELU are recorded as deviations, since the runtime executes the tanh form.
[[nodiscard]] Activation read_activation(JsonReader& reader, std::string_view key,
                                         Activation otherwise, ModelSpec& model);

/// Widths under the key names of most families.
void read_widths(JsonReader& reader, ModelSpec& model, bool mlp_width = true);
void read_positions(JsonReader& reader, ModelSpec& model);
/// Layers, widths, heads, each with keys and values of its own, and vocabulary by GPT-2's keys.
void read_gpt_widths(JsonReader& reader, ModelSpec& model);
/// A block with layer norms and an MLP without gate, but for its kv_heads, epsilon and biases.
void read_layer_norm_block(JsonReader& reader, ModelSpec& model);

enum class MissingKvHeads { mean_multi_head, are_an_error };
/// null always means multi-head attention; a missing key means it only if that is the family's
/// default.
void read_kv_heads(JsonReader& reader, ModelSpec& model, MissingKvHeads missing);
/// An explicit head_dim, or hidden / heads.
void read_head_dim(JsonReader& reader, ModelSpec& model);
/// Reports a missing head_dim: the class's default is the shape of one model.
void require_head_dim(JsonReader& reader);
void read_attention_bias(JsonReader& reader, ModelSpec& model);
void read_dropout(JsonReader& reader, ModelSpec& model);
/// The window applies to `otherwise` layers if the file has no list of layers.
void read_window(JsonReader& reader, ModelSpec& model, int window_default, int otherwise);
/// Number of layers that newer files list as `kind` instead of "full_attention" in layer_types.
/// Nothing if there is no list.
[[nodiscard]] std::optional<int> listed_layers(JsonReader& reader, const ModelSpec& model,
                                               std::string_view kind);

/// Defaults of transformers' configuration class of a Llama-like family.
struct LlamaDefaults {
  MissingKvHeads kv_heads = MissingKvHeads::are_an_error;
  double norm_epsilon = 1e-6;
  RopeDefaults rope{};
  bool mlp_width = true;  ///< false: files may lack the width of dense layers (intermediate_size)
};
/// Modules for multi-token prediction. The keys are those of DeepSeek-V3 and GLM-4.5, of
/// transformers 5 for both, of Qwen3.5, and of MiniMax-M2. Megatron Bridge trains as many
/// (num_nextn_predict_layers); transformers ignores them.
void read_prediction_modules(JsonReader& reader, ModelSpec& model);
/// Reads everything a block has in common with Llama's, except biases.
void read_llama_like(JsonReader& reader, ModelSpec& model, const LlamaDefaults& otherwise);
/// Qwen3-Next and Qwen3.5 up to the MLP: gated attention, and gated delta nets in the other layers.
/// Source: transformers, models/qwen3_next/.
void read_gated_qwen(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
