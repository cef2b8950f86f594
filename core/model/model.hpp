// ModelSpec: the shapes and constants of a transformer, and the numbers that follow from them.
// Over 400 lines because the shapes of every operator stand beside the model that has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.hpp"

namespace echelon {

enum class Normalization { layer_norm, rms_norm };
enum class Activation { gelu, relu, squared_relu, silu };
enum class PositionEmbedding { learned, rope, alibi, none };

/// How the router makes weights of its logits: softmax over the experts, or sigmoid of each.
enum class RouterScore { softmax, sigmoid };

/// Layers whose MLP consists of many experts, of which each token visits a few. Default: no such
/// layer. Layer i has experts when i ≥ first_dense_layers and every | i − first_dense_layers.
struct MixtureOfExperts {
  int experts = 0;            ///< routed experts of one layer; 0 = a dense model
  int experts_per_token = 0;  ///< top-k
  int expert_ffn_hidden = 0;  ///< width of one projection of one routed expert
  int shared_ffn_hidden = 0;  ///< width of all shared experts, which every token visits; 0 = none
  /// Width of the routed experts' input and output, to and from which two projections of every
  /// token lead (Nemotron 3 Super: moe_latent_size); 0 = the hidden state itself.
  int latent_hidden = 0;
  int first_dense_layers = 0;  ///< layers before the first one with experts
  int every = 1;               ///< 2: every second layer from there on (Llama 4 Maverick)
  bool expert_bias = false;    ///< biases inside the routed experts, whose gate and up projection
                               ///< are bounded (GPT-OSS: swiglu_limit)
  bool router_bias = false;    ///< a value per expert (GPT-OSS's bias; DeepSeek-V3's
                               ///< correction, updated by a rule instead of a gradient: with
                               ///< sigmoid scores)
  bool shared_expert_gate = false;  ///< a learned weight for the shared experts (Qwen2-MoE)
  /// Norms before the routed experts and behind them and behind the shared ones, in addition to the
  /// layer's; the router reads the hidden state through a norm and a scale of its own, and each
  /// expert has a learned factor (Gemma 4). Source: transformers, Gemma4TextDecoderLayer and
  /// Gemma4TextRouter (models/gemma4/modeling_gemma4.py).
  bool branch_norms = false;
  /// Group-limited routing: the experts form `router_groups` groups of equal size, and a token's
  /// experts lie in `router_group_topk` of them, those with the largest sums of their two best
  /// scores (but see router_arithmetic.hpp); 1 and 1: anywhere. Source: DeepSeek-V2 (arXiv
  /// 2405.04434, section 2.2.2, device-limited routing); transformers, DeepseekV3TopkRouter;
  /// Megatron-LM --moe-router-num-groups and --moe-router-group-topk.
  int router_groups = 1;
  int router_group_topk = 1;
  // Names in HuggingFace configurations: scoring_func, norm_topk_prob, routed_scaling_factor.
  RouterScore router_score = RouterScore::softmax;
  bool router_normalized = true;  ///< the weights of a token's experts are divided by their sum
  double router_scaling = 1;      ///< multiplies them
  bool operator==(const MixtureOfExperts&) const = default;
};

/// Multi-head latent attention: queries, keys and values pass through narrow latent vectors.
/// Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1. Names as in transformers'
/// DeepseekV3Config.
struct LatentAttention {
  int kv_lora_rank = 0;      ///< width of the keys' and values' latent; 0 = ordinary attention
  int q_lora_rank = 0;       ///< width of the queries' latent; 0 = queries are projected directly
  int qk_nope_head_dim = 0;  ///< part of a query's or key's head without position
  int qk_rope_head_dim = 0;  ///< part with rotary position; its key is shared by all heads
  int v_head_dim = 0;        ///< width of a value's head
  bool operator==(const LatentAttention&) const = default;
};

/// DeepSeek sparse attention (DSA): in every layer an indexer scores all keys before a query, and
/// latent attention reads the best of them alone. The indexer's queries, of several heads, come
/// from the queries' latent, its one key and the heads' weights from the hidden state; it learns
/// from a loss of its own, and nothing flows back from it into the rest. Source:
/// DeepSeek-V3.2-Exp's report (DeepSeek_V3_2.pdf in its repository), section 1; shapes as in
/// transformers' DeepseekV32Indexer (models/deepseek_v32/modeling_deepseek_v32.py), whose keys
/// begin with index_.
struct SparseAttention {
  int topk = 0;            ///< keys that a query attends to at most; 0 = all, without an indexer
  int index_heads = 0;     ///< of the indexer's queries
  int index_head_dim = 0;  ///< of its queries and its key, the rotary part of latent attention
                           ///< included
  bool rope_interleaved = false;  ///< its rotary pairs lie next to each other (GLM-5)
  bool hadamard = true;  ///< a Hadamard transform of queries and key follows (DeepSeek-V3.2)
  bool operator==(const SparseAttention&) const = default;
};

/// Gated delta nets: layers that replace attention by a recurrence over a state of
/// key_head_dim × value_head_dim per value head, after a short causal convolution.
/// Source: arXiv 2412.06464; names and shapes as in transformers' Qwen3NextGatedDeltaNet
/// (models/qwen3_next/modeling_qwen3_next.py), whose keys begin with linear_.
struct GatedDeltaNet {
  int layers = 0;       ///< layers with it instead of attention; 0 = none
  int key_heads = 0;    ///< of queries and keys; divides value_heads
  int value_heads = 0;  ///< each has a state, a decay and a write strength
  int key_head_dim = 0;
  int value_head_dim = 0;
  int conv_kernel = 0;  ///< tokens that the convolution of queries, keys and values spans
  /// Kimi delta attention: each channel of a value head's keys has a decay of its own, and the
  /// decays and the output gate are projected through a vector so wide; 0: a decay per value head,
  /// and a gate of one projection. Source: arXiv 2510.26692, section 3; shapes as in transformers'
  /// KimiLinearDeltaAttention (models/kimi_linear/modeling_kimi_linear.py).
  int gate_rank = 0;
  bool operator==(const GatedDeltaNet&) const = default;

  [[nodiscard]] bool channel_decay() const { return gate_rank > 0; }
  [[nodiscard]] std::int64_t key_width() const { return std::int64_t{key_heads} * key_head_dim; }
  [[nodiscard]] std::int64_t value_width() const {
    return std::int64_t{value_heads} * value_head_dim;
  }
  /// Channels of the convolution: queries, keys and values.
  [[nodiscard]] std::int64_t conv_width() const { return 2 * key_width() + value_width(); }
  /// Outputs of the input projection: those, the output gate, decay and write strength per head;
  /// of Kimi delta attention write strength per head and the vectors of both gates.
  [[nodiscard]] std::int64_t input_width() const {
    if (channel_decay()) return conv_width() + value_heads + 2 * std::int64_t{gate_rank};
    return conv_width() + value_width() + 2 * std::int64_t{value_heads};
  }
  /// Decays of a token, and the numbers that they are made of besides: a bias for each.
  [[nodiscard]] std::int64_t decays() const {
    return channel_decay() ? std::int64_t{value_heads} * key_head_dim : value_heads;
  }
  /// Outputs of the second projections of both gates.
  [[nodiscard]] std::int64_t gate_width() const {
    return channel_decay() ? decays() + value_width() : 0;
  }
  /// Parameters of all projections from and to a hidden state `hidden` wide.
  [[nodiscard]] std::int64_t matrices(std::int64_t hidden) const {
    return hidden * (input_width() + value_width()) + gate_rank * gate_width();
  }
};

/// State-space layers (Mamba-2): layers that replace attention by a recurrence over a state of
/// head_dim × state_dim per head, whose input and output weights (B and C) the heads of a group
/// share, after a short causal convolution with a bias. Source: arXiv 2405.21060; names and shapes
/// as in transformers' NemotronHConfig and Megatron-LM's options that begin with --mamba-.
struct StateSpace {
  int layers = 0;  ///< layers with it instead of attention; 0 = none
  int heads = 0;   ///< each has a decay, a step and a weight of its input
  int head_dim = 0;
  int groups = 0;  ///< of heads that share B and C; divides heads
  int state_dim = 0;
  int conv_kernel = 0;     ///< tokens that the convolution of inputs, B and C spans
  bool gated_norm = true;  ///< a norm of the gated outputs, before the projection out
  /// In every layer attention reads the same input, and the outputs of both are added (Falcon-H1).
  bool beside_attention = false;
  bool operator==(const StateSpace&) const = default;

  [[nodiscard]] std::int64_t width() const { return std::int64_t{heads} * head_dim; }
  /// Channels of the convolution: inputs, B and C.
  [[nodiscard]] std::int64_t conv_width() const {
    return width() + 2 * std::int64_t{groups} * state_dim;
  }
  /// Outputs of the input projection: those, the output gate, a step per head.
  [[nodiscard]] std::int64_t input_width() const { return conv_width() + width() + heads; }
};

/// Layers with full attention whose heads have other shapes than those of the windowed layers.
/// Source: transformers, Gemma4TextAttention (models/gemma4/modeling_gemma4.py); its configuration
/// calls them global_head_dim, num_global_key_value_heads and attention_k_eq_v.
struct GlobalAttention {
  int layers = 0;  ///< 0: full attention has the shapes of windowed attention
  int kv_heads = 0;
  int head_dim = 0;
  bool keys_are_values = false;  ///< one projection makes both; their norms differ
  bool operator==(const GlobalAttention&) const = default;
};

/// Gated short convolutions: layers that replace attention by a causal convolution of each channel
/// over `kernel` tokens, whose input and output are multiplied by gates; one projection makes both
/// gates and the input. Source: transformers, Lfm2ShortConv (models/lfm2/modeling_lfm2.py).
struct ShortConvolution {
  int layers = 0;     ///< layers with it instead of attention; 0 = none
  int kernel = 0;     ///< tokens that it spans
  bool bias = false;  ///< of both projections and of the convolution
  bool operator==(const ShortConvolution&) const = default;
};

/// How the rotary angles were changed to extend the context.
enum class RopeScaling { none, linear, llama3, yarn, dynamic, longrope };

/// Rotary position embedding (arXiv 2104.09864, section 3.2.2): from one position to the next, pair
/// i of the d rotated numbers of a head is rotated by θ^(−2i/d), or by that angle modified by
/// `scaling`. Fields that a scaling does not use keep their defaults. Names and rules as in
/// transformers' modeling_rope_utils.py. Checked by: tests/runtime/model/rotary_test.cpp.
struct RotaryEmbedding {
  double theta = 10'000;    ///< the base θ
  double rotated_part = 1;  ///< fraction of a head that is rotated (partial_rotary_factor)
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;           ///< linear, llama3, yarn, dynamic: extension of the context
  int original_positions = 0;  ///< llama3, yarn: context length before the extension
  double low_frequency_factor =
      1;  ///< llama3: up to this number of turns in that context angles are divided
  double high_frequency_factor = 4;  ///< llama3: from this number on they are unchanged
  double beta_fast = 32;             ///< yarn: from this number of turns on angles are unchanged
  double beta_slow = 1;              ///< yarn: up to this number they are divided
  bool whole_pairs = true;           ///< yarn: both bounds are rounded to whole pairs ("truncate")
  double attention_factor = 1;       ///< yarn: multiplies cosines and sines
  /// yarn in latent attention: scores are multiplied by (0.1·m·ln factor + 1)²; 0: not. Source:
  /// DeepSeek-V3's modeling_deepseek.py and Megatron-LM --mscale-all-dim.
  double score_mscale = 0;
  bool operator==(const RotaryEmbedding&) const = default;
  /// Numbers at the start of a head that are rotated, in pairs of its first and its second half, as
  /// transformers rounds them; a part that is a quotient of whole numbers gives the first of them.
  [[nodiscard]] int rotated_width(int head_dim) const {
    constexpr double kRounding = 1e-9;
    return static_cast<int>(rotated_part * head_dim + kRounding);
  }
};

/// Constants of a model's computation in addition to shapes and weights.
struct ModelConstants {
  double norm_epsilon =
      1e-5;              ///< added to the variance in LayerNorm, to the mean square in RMSNorm
  RotaryEmbedding rope;  ///< used only with rotary positions
  /// Operations that no field describes, as text: "scores capped at 50". Such models are planned
  /// but not executed.
  std::vector<std::string> other_arithmetic;
  bool operator==(const ModelConstants&) const = default;
};

enum class LayerKind { dense, moe };
/// What mixes the tokens of a layer; global_attention: full attention with heads of its own shape;
/// side_by_side: attention and a state space on the same input; none: the layer is an MLP alone. A
/// model with several kinds is priced as if every layer were their weighted mean, as windowed and
/// full attention are.
enum class TokenMixer {
  attention,
  global_attention,
  delta_net,
  state_space,
  side_by_side,
  short_convolution,
  none
};
inline constexpr std::array kTokenMixers = {TokenMixer::attention,    TokenMixer::global_attention,
                                            TokenMixer::delta_net,    TokenMixer::state_space,
                                            TokenMixer::side_by_side, TokenMixer::short_convolution,
                                            TokenMixer::none};

/// A decoder-only transformer. Defaults describe a dense Llama-like block.
/// Counts are exact; every derived number depends only on the shapes.
struct ModelSpec {
  std::string name;          ///< catalog name or file stem
  std::string architecture;  ///< family: "gpt2", "llama", "qwen3" ...
  std::string source;        ///< source of the shapes
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;       ///< = heads for multi-head and latent attention
  int head_dim = 0;       ///< of queries and keys; default: hidden / heads
  int ffn_hidden = 0;     ///< width of one MLP projection of a dense layer
  int vocab = 0;          ///< tokens, unpadded
  int max_positions = 0;  ///< context length of the published model
  /// Modules behind the last layer that predict one token further each while training: a layer of
  /// the last one's kind on two vectors projected to one, and the shared head again. Not counted in
  /// parameters() and flops_per_token(), as in published numbers. Source: DeepSeek-V3 (arXiv
  /// 2412.19437), section 2.2; Megatron-LM --mtp-num-layers.
  int prediction_modules = 0;

  Normalization normalization = Normalization::rms_norm;
  Activation activation = Activation::silu;
  PositionEmbedding position = PositionEmbedding::rope;
  bool gated_mlp = true;         ///< SwiGLU/GeGLU: gate and up projections
  bool tied_embeddings = false;  ///< output head shares the word embedding
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool head_bias = false;              ///< bias on the output head (Phi-1/2)
  bool qk_norm = false;                ///< norm over head_dim on q and k (Qwen3, Gemma 3)
  bool qk_norm_all_heads = false;      ///< … over all heads together (OLMo, MiniMax-M2)
  bool value_norm = false;             ///< norm over head_dim on v, without a gain (Gemma 4)
  bool attention_output_gate = false;  ///< one more projection as wide as the queries, whose
                                       ///< sigmoid multiplies attention's output (Qwen3-Next)
  bool parallel_block = false;         ///< attention and MLP read one shared norm (Phi-1/2, GPT-J)
  bool post_norms = false;             ///< a second norm after attention and after MLP (Gemma 2, 3)
  bool embedding_norm = false;         ///< norm after the word embedding (BLOOM)
  double hidden_dropout = 0;           ///< probability; > 0 stores one mask byte per element
  double attention_dropout = 0;
  int sliding_window = 0;   ///< tokens a windowed layer attends to; 0 = full attention
  int windowed_layers = 0;  ///< layers with the window (in Llama 4: with chunks of that length)
  bool attention_sinks = false;  ///< one learned value per head in every softmax (GPT-OSS)
  MixtureOfExperts moe;
  LatentAttention mla;
  SparseAttention dsa;
  GlobalAttention global;
  GatedDeltaNet delta;
  StateSpace ssm;
  ShortConvolution conv;
  /// Layers that are an MLP alone; the others then are a token mixer alone (Nemotron-H). 0: every
  /// layer has both.
  int mlp_only_layers = 0;
  /// Of a model with layers of one part each, where it is known: a letter for each layer, as in
  /// Megatron-LM's --hybrid-layer-pattern (M state space, * attention, - MLP, E experts). It
  /// changes no price. "": how many layers of each kind is all that is known.
  std::string layer_pattern;
  /// Empty if the file does not contain them, as in schema 1: enough to plan, but not to run.
  std::optional<ModelConstants> constants;

  bool operator==(const ModelSpec&) const = default;

  [[nodiscard]] std::int64_t query_width() const { return std::int64_t{heads} * head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
  /// Width of the input of the output projection: all heads together.
  [[nodiscard]] std::int64_t attention_output_width() const {
    return latent() ? std::int64_t{heads} * mla.v_head_dim : query_width();
  }
  /// What the heads of a layer's attention are: of global attention its own.
  struct HeadShapes {
    int kv_heads = 0;
    int head_dim = 0;
    bool keys_are_values = false;
  };
  [[nodiscard]] HeadShapes head_shapes(TokenMixer mixer) const {
    return mixer == TokenMixer::global_attention
               ? HeadShapes{global.kv_heads, global.head_dim, global.keys_are_values}
               : HeadShapes{kv_heads, head_dim, false};
  }
  [[nodiscard]] bool latent() const { return mla.kv_lora_rank > 0; }
  [[nodiscard]] bool sparse() const { return dsa.topk > 0; }
  /// Width of the routed experts' input and output.
  [[nodiscard]] int expert_hidden() const {
    return moe.latent_hidden > 0 ? moe.latent_hidden : hidden;
  }
  [[nodiscard]] LayerKind layer_kind(int layer) const;  ///< layer counts from 0
  /// Layers whose costs are those of layers with experts.
  [[nodiscard]] int moe_layers() const;
  /// Layers that have experts: of mlp_only_layers those alone, else moe_layers().
  [[nodiscard]] int expert_layers() const;
  /// How many layers have this mixer.
  [[nodiscard]] int layers_with(TokenMixer mixer) const;
  /// Whether layers of this mixer have an MLP, or experts in its place: all have, but where layers
  /// have one part each only those without a mixer.
  [[nodiscard]] bool has_mlp(TokenMixer mixer) const {
    return mlp_only_layers == 0 || mixer == TokenMixer::none;
  }
  /// A mixer of layers that have an MLP: none where layers have one part.
  [[nodiscard]] TokenMixer mixer_before_mlp() const {
    return has_mlp(TokenMixer::attention) ? TokenMixer::attention : TokenMixer::none;
  }
  /// Norm layers in one block: 1 (parallel block, or of one part), 2, or 4 (with post-norms); 3
  /// more where routed and shared experts have norms of their own.
  [[nodiscard]] int norms_per_layer(LayerKind kind = LayerKind::dense) const;

  /// Parameters of one transformer block, grouped by how parallelism splits them.
  struct LayerParameters {
    std::int64_t attention_matrices = 0;      ///< into and out of the heads, split over tp; in
                                              ///< layers with a delta net, a state space or a
                                              ///< convolution into and out of it
    std::int64_t latent_matrices = 0;         ///< MLA's down projections, on every tp rank
    std::int64_t indexer_matrices = 0;        ///< DSA's indexer, on every tp rank
    std::int64_t mlp_matrices = 0;            ///< dense layers: up (and gate) + down, split over tp
    std::int64_t shared_expert_matrices = 0;  ///< the same for the shared experts, split over tp
    std::int64_t expert_matrices = 0;         ///< all routed experts, split over ep·etp
    std::int64_t expert_vectors = 0;          ///< their biases, split over ep
    std::int64_t router = 0;                  ///< router with its bias and scales, shared gate,
                                              ///< projections to and from the experts' latent, on
                                              ///< every tp rank
    std::int64_t sharded_vectors = 0;         ///< biases of column-parallel layers, sinks: over tp
    std::int64_t replicated = 0;              ///< norms, biases of row-parallel layers, on every
                                              ///< tp rank
    [[nodiscard]] std::int64_t total() const {
      return attention_matrices + latent_matrices + indexer_matrices + mlp_matrices +
             shared_expert_matrices + expert_matrices + expert_vectors + router + sharded_vectors +
             replicated;
    }
  };
  [[nodiscard]] LayerParameters layer_parameters(LayerKind kind = LayerKind::dense,
                                                 TokenMixer mixer = TokenMixer::attention) const;
  [[nodiscard]] std::int64_t embedding_parameters()
      const;                                           ///< word (+ learned positions, + its norm)
  [[nodiscard]] std::int64_t head_parameters() const;  ///< final norm + untied head (+ bias)
  [[nodiscard]] std::int64_t parameters() const;       ///< all parameters; tied weights count once
  /// Parameters without the experts that a token does not visit. The whole word embedding counts,
  /// as in the published numbers of Mixtral and Qwen; those of DeepSeek-V3 and GPT-OSS exclude it.
  [[nodiscard]] std::int64_t active_parameters() const;

  /// Model FLOPs of one token, forward + backward, the formula behind every MFU we print:
  ///   6·(active parameters in matrix products, output head included) + 6·L·a·(d_qk + d_v)·S
  ///   a heads; d_qk, d_v their widths for scores and for values (both head_dim except with MLA)
  /// (non-causal attention; windowed layers use min(S, window); experts not visited do no work).
  /// `span` S: the sequence or, where attention stays within the documents of packed sequences,
  /// the sum of the squares of their lengths over the sum of their lengths.
  /// A layer with a gated delta net has instead of the attention term
  ///   6·(k·w + 4·v·d_k·d_v)
  ///   k tokens of the convolution, w its channels; v value heads; d_k, d_v widths of a key and a
  ///   value head, independent of S; one with Kimi delta attention as well
  /// Sparse attention counts min(S, top-k) keys as a window does, and its indexer adds
  ///   4·(its parameters in matrix products) + H·d·(2·S + 4·min(S, top-k))
  ///   H, d its heads and their width: no gradient of its inputs, all keys scored forward, those of
  ///   the loss alone backward
  /// Source: Megatron-LM (arXiv 2104.04473, appendix), PaLM (arXiv 2204.02311, appendix B); for
  /// top-k experts and MLA Megatron-LM's num_floating_point_operations (megatron/training), which
  /// leaves out the router and halves the attention matrix, and has the terms of delta nets and of
  /// state spaces (mamba_layer_flops) and the squares of packed documents
  /// (seqlen_squared_sum_in_batch). That of d98e8a64 counts sparse attention as a full one without
  /// an indexer, which no training does: the term above is ours.
  /// Checked by: tests/core/model/model_test.cpp, tests/core/model/moe_model_test.cpp,
  /// tests/core/model/delta_model_test.cpp, tests/core/model/state_space_model_test.cpp,
  /// tests/core/model/sparse_model_test.cpp.
  /// `frozen`: the weights get no gradients, 4 in place of 6 for each of their products.
  /// `causal`: attention and indexer count the scores alone that a causal mask needs, k·(1 − k/2S)
  /// in place of k = min(S, window or top-k): half of S. So Megatron-LM counts layers
  /// without a window.
  [[nodiscard]] Flops flops_per_token(double span, bool frozen = false, bool causal = false) const;
};

}  // namespace echelon
