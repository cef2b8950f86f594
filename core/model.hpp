// ModelSpec: the shapes of a dense transformer, and what follows from shapes alone.
#pragma once

#include <cstdint>
#include <string>

#include "core/units.hpp"

namespace echelon {

enum class Normalization { layer_norm, rms_norm };
enum class Activation { gelu, relu, squared_relu, silu };
enum class PositionEmbedding { learned, rope, alibi, none };

/// A dense decoder-only transformer. Defaults describe a Llama-like block.
/// Counts are exact; every derived number follows from these fields alone.
struct ModelSpec {
  std::string name;          ///< catalog name or file stem
  std::string architecture;  ///< family it was read as: "gpt2", "llama", "qwen3" ...
  std::string source;        ///< where the shapes come from
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;     ///< = heads for multi-head attention
  int head_dim = 0;     ///< hidden / heads unless the model says otherwise
  int ffn_hidden = 0;   ///< width of one MLP projection
  int vocab = 0;        ///< tokens, unpadded
  int max_positions = 0;  ///< context length the model was published with

  Normalization normalization = Normalization::rms_norm;
  Activation activation = Activation::silu;
  PositionEmbedding position = PositionEmbedding::rope;
  bool gated_mlp = true;        ///< SwiGLU/GeGLU: gate and up projections
  bool tied_embeddings = false; ///< output head shares the word embedding
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool head_bias = false;       ///< bias on the output head (Phi-1/2)
  bool qk_norm = false;         ///< norm over head_dim on q and k (Qwen3, Gemma 3)
  bool parallel_block = false;  ///< attention and MLP read one shared norm (Phi-1/2, GPT-J)
  bool post_norms = false;      ///< a second norm after attention and after MLP (Gemma 2, 3)
  bool embedding_norm = false;  ///< norm after the word embedding (BLOOM)
  double hidden_dropout = 0;    ///< probability; > 0 stores one mask byte per element
  double attention_dropout = 0;
  int sliding_window = 0;       ///< tokens a windowed layer attends to; 0 = full attention
  int windowed_layers = 0;      ///< layers that use the window

  bool operator==(const ModelSpec&) const = default;

  [[nodiscard]] std::int64_t query_width() const { return std::int64_t{heads} * head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
  /// Norm layers in one block: 1 (parallel block), 2, or 4 (with post-norms).
  [[nodiscard]] int norms_per_layer() const;

  /// Parameters of one transformer block split by how tensor parallelism treats them.
  struct LayerParameters {
    std::int64_t attention_matrices = 0;  ///< qkv + output projection, split over tp
    std::int64_t mlp_matrices = 0;        ///< up (and gate) + down projection, split over tp
    std::int64_t sharded_vectors = 0;     ///< biases of column-parallel layers, split over tp
    std::int64_t replicated = 0;          ///< norms, biases of row-parallel layers, on every tp rank
    [[nodiscard]] std::int64_t total() const {
      return attention_matrices + mlp_matrices + sharded_vectors + replicated;
    }
  };
  [[nodiscard]] LayerParameters layer_parameters() const;
  [[nodiscard]] std::int64_t embedding_parameters() const;  ///< word (+ learned positions, + its norm)
  [[nodiscard]] std::int64_t head_parameters() const;       ///< final norm + untied head (+ bias)
  [[nodiscard]] std::int64_t parameters() const;            ///< everything, tied weights once

  /// Model FLOPs of one token, forward + backward, the formula behind every MFU we print:
  ///   6·(parameters in matrix products, output head included) + 12·L·(heads·head_dim)·S
  /// (non-causal attention; windowed layers use min(S, window)).
  /// Source: Megatron-LM (arXiv 2104.04473, appendix), PaLM (arXiv 2204.02311, appendix B).
  [[nodiscard]] Flops flops_per_token(int sequence) const;
};

}  // namespace echelon
