// Keys that several HuggingFace families share. For *_io.cpp only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

inline int small(std::int64_t value) { return static_cast<int>(value); }  // bounded by the reader

/// Readers of constants: `model.constants` is there before any of them is called.
inline void add_arithmetic(ModelSpec& model, std::string what) {
  model.constants->other_arithmetic.push_back(std::move(what));
}
void read_norm_epsilon(JsonReader& reader, ModelSpec& model, std::string_view key,
                       double otherwise);
/// rope_theta and partial_rotary_factor, in rope_parameters (transformers 5), beside rope_scaling,
/// or neither: then the family's defaults. After the positions and the widths of heads.
struct RopeDefaults {
  double theta = 10'000;
  double rotated_part = 1;
};
void read_rope(JsonReader& reader, ModelSpec& model, const RopeDefaults& otherwise = {});

/// Exact and quick GELU are noted: what is executed is the tanh form.
[[nodiscard]] Activation read_activation(JsonReader& reader, std::string_view key,
                                         Activation otherwise, ModelSpec& model);

/// Widths under the names most families use.
void read_widths(JsonReader& reader, ModelSpec& model);
void read_positions(JsonReader& reader, ModelSpec& model);

enum class MissingKvHeads { mean_multi_head, are_an_error };
/// null always means multi-head attention; a missing key only where the family's default says so.
void read_kv_heads(JsonReader& reader, ModelSpec& model, MissingKvHeads missing);
/// An explicit head_dim, or hidden / heads.
void read_head_dim(JsonReader& reader, ModelSpec& model);
void read_attention_bias(JsonReader& reader, ModelSpec& model);
void read_dropout(JsonReader& reader, ModelSpec& model);
/// The window is on `otherwise` layers unless the file lists them.
void read_window(JsonReader& reader, ModelSpec& model, int window_default, int otherwise);
/// Newer files list every layer: "full_attention" or `windowed`. Nothing when there is no list.
[[nodiscard]] std::optional<int> listed_windowed_layers(JsonReader& reader, const ModelSpec& model,
                                                        std::string_view windowed);

/// What transformers' class of a Llama-like family takes for a key that is missing.
struct LlamaDefaults {
  MissingKvHeads kv_heads = MissingKvHeads::are_an_error;
  double norm_epsilon = 1e-6;
  RopeDefaults rope{};
};
/// Everything a block shares with Llama's, biases aside.
void read_llama_like(JsonReader& reader, ModelSpec& model, const LlamaDefaults& otherwise);

}  // namespace echelon
