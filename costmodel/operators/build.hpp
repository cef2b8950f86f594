// Building blocks of the operator lists: shapes of one layer sharding, and the operators that
// several parts of a layer use. Only the files of this folder include it.
#pragma once

#include <algorithm>
#include <string_view>

#include "costmodel/operators/operators.hpp"

// Legend: T tokens of one microbatch on one rank, Ts the same after sequence sharding,
// h hidden, q query width per rank, kv key/value width per rank, f ffn width per rank,
// A attention heads per rank. Activations are 2 bytes wide (bf16/fp16) in most recipes; fp32
// doubles them, fp64 once more.

namespace echelon::operators {

/// Shapes shared by all operators of one sharding.
struct Shapes {
  double T, Ts, h, q, kv, v, o, f, A, sequence, e;  // kv keys, v values, o outputs of the heads
  double d;                                         // width of a head
  double kv_projected;  // columns of the projection that makes keys and values
  double kept;          // bytes per element of a GEMM input that waits for its weight gradient
  double w;             // … of statistics: maxima, sums of exponentials
  double imbalance;  // rows of the fullest rank's experts over the mean: at most all of its group's
  double expert_rows;                  // unit that an expert's rows are padded to
  bool by_operations = false;          // LayerCode::transformers (transformers_code.cpp)
  bool experts_by_operations = false;  // … and LayerCode::liger, which has no kernels for them
  bool rms_norm = true;
  bool sums_input_gradients = false;     // Framework::separate_projections
  bool splits_second_dimension = false;  // of the framework, with sequence parallelism …
  bool several_sequences = false;        // … of more than one
  double gathered = 2;                   // bytes per element that sequence parallelism gathers
  /// Bytes that a column-parallel product keeps of its input.
  [[nodiscard]] double kept_input() const {
    return splits_second_dimension ? std::min(kept, gathered) * T * h : kept * Ts * h;
  }
};

[[nodiscard]] Shapes shapes_of(const ModelSpec& model, const TrainingJob& job,
                               const Framework& framework, LayerSharding sharding,
                               TokenMixer mixer = TokenMixer::attention);

/// Keys that a query attends to on average, of which it sees `most` at most (those next to it, or
/// any): (S + 1)/2 ≈ S/2 of all under a causal mask, w·(1 − w/2S) of w < S tokens, less in packed
/// documents (keys_in_document).
[[nodiscard]] double attended_keys(const TrainingJob& job, double most);
/// (m × k)·(k × n) that saves `saved` bytes of its input.
[[nodiscard]] Operator gemm(std::string_view name, double m, double n, double k, double saved,
                            double e, double groups = 1);
/// One kernel each way that moves this many bytes; none if it moves nothing.
[[nodiscard]] Operator elementwise(std::string_view name, double forward, double backward,
                                   double saved);
/// Norm: forward reads and writes the tensor; backward reads the gradient, the input and the
/// residual's gradient and writes one. By operations, the gradients of `readers` of its output are
/// summed one after the other.
[[nodiscard]] Operator norm(std::string_view name, const Shapes& s, int readers = 1);
/// Bias, dropout and residual addition in one kernel; the mask is one byte per element.
[[nodiscard]] Operator residual(std::string_view name, const Shapes& s, double dropout);
[[nodiscard]] Operator collective(std::string_view name, CollectiveKind forward,
                                  CollectiveKind backward, double payload, bool backward_overlaps,
                                  Axis axis = Axis::tp);

/// Entry of a column-parallel layer (Megatron's f, or g-bar under sequence parallelism), whose
/// input so many products read where they are apart.
void push_column_entry(OperatorList& list, std::string_view name, const Shapes& s,
                       LayerSharding sharding, int readers = 1);
/// Exit of a row-parallel layer (Megatron's g, or its reduce-scatter form).
void push_row_exit(OperatorList& list, std::string_view name, const Shapes& s,
                   LayerSharding sharding);
/// A kernel that reads and writes `bytes`, forward and backward.
[[nodiscard]] Operator copy(std::string_view name, double bytes);
/// All-to-all over cp that changes a split of the sequence to a split of the heads, or back, of the
/// `bytes` of a rank; nothing with cp 1. `moved`: a kernel before or behind it moves each rank's
/// part to one place.
void push_heads_exchange(OperatorList& list, std::string_view name, double bytes,
                         LayerSharding sharding, bool moved);
/// Full-sequence buffers alive in a sequence-parallel layer.
[[nodiscard]] double gather_buffers(const Shapes& s, const Framework& framework,
                                    LayerSharding sharding);

/// Up (and gate) projection, activation, down projection over `tokens` rows of width `f`.
/// `input` bytes are kept for the first GEMM.
struct MlpNames {
  std::string_view up, activation, down;
};
void push_projections(OperatorList& list, const ModelSpec& model, const Framework& framework,
                      const Shapes& s, const MlpNames& names, double tokens, double f, double input,
                      double buffers, double groups = 1);

// The parts of a layer between its norms, each in the file of its name.
void push_attention(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                    const Framework& framework, const Shapes& s, LayerSharding sharding,
                    TokenMixer mixer);
/// Projections of latent attention to its latents, their norms, and their gathering.
void push_latents(OperatorList& list, const ModelSpec& model, const Shapes& s,
                  LayerSharding sharding);
/// Attention of the keys that an indexer chooses (sparse_attention.cpp).
void push_sparse_attention(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                           const Framework& framework, const Shapes& s, LayerSharding sharding);
/// What a gated delta net does instead of attention (delta_net.cpp).
void push_delta_net(OperatorList& list, const ModelSpec& model, const Shapes& s,
                    LayerSharding sharding);
/// What a state space does instead of attention (state_space.cpp).
void push_state_space(OperatorList& list, const ModelSpec& model, const Shapes& s,
                      LayerSharding sharding);
/// What a gated short convolution does instead of attention (short_convolution.cpp).
void push_short_convolution(OperatorList& list, const ModelSpec& model, const Shapes& s);
void push_mlp(OperatorList& list, const ModelSpec& model, const Framework& framework,
              const Shapes& s, LayerSharding sharding);
/// Routed experts: router, permutation, dispatch to the ranks that hold the experts, one grouped
/// GEMM each way, combination. Every expert is assumed to get the same number of tokens.
///
///   rows sent by a rank      T'·topk,  T' = T/tp with sequence parallelism (else T, dispatched
///   once
///                            by each tp rank for its 1/tp)
///   rows computed by a rank  T'·topk·etp  over  E/ep  local experts
///   all-to-all payload       2·T'·topk·h bytes each way, forward and backward (of which DeepEP and
///                            HybridEP send a part: costmodel/collectives/expert_exchange.hpp)
///   all-gather payload       2·T'·h·ep bytes, with the allgather dispatcher
/// Where the experts have a latent, h is its width, and each token's hidden state is projected to
/// it before the permutation and from it after the combination, by the rank that has the token
/// (Megatron-LM d98e8a64, core/transformer/moe/moe_layer.py, fc1_latent_proj).
/// Source: Megatron-Core MoE (alltoall token dispatcher), GShard (arXiv 2006.16668).
void push_experts(OperatorList& list, const ModelSpec& model, const Framework& framework,
                  const Shapes& s, LayerSharding sharding);

/// Rows that the experts of a rank get at most, T tokens from each of ep ranks: a token visits an
/// expert once.
[[nodiscard]] inline double routed_rows(const MixtureOfExperts& moe, double tokens, int ep) {
  return ep * tokens * std::min(moe.experts_per_token, moe.experts / ep);
}

// Modules of transformers, operation by operation (transformers_code.cpp).
[[nodiscard]] Operator norm_by_operations(std::string_view name, double elements, const Shapes& s,
                                          double saved);
/// A product that stands for `count` linear modules.
[[nodiscard]] Operator as_modules(Operator product, int count);
/// Gate and up projection of `rows` rows, f wide each.
[[nodiscard]] Operator gate_by_operations(std::string_view name, double rows, double f,
                                          const Shapes& s);
/// Routed experts behind the router: the operators from `first` on.
void run_experts_by_operations(OperatorList& list, std::size_t first, const MixtureOfExperts& moe,
                               const Shapes& s, double own, double local, double f, double h);

/// The same where no weight gets a gradient: before and behind the layers of a job with adapters.
[[nodiscard]] OperatorList frozen(const OperatorList& list, const TrainingJob& job);
/// … with adapters on their targets, and weights as the job keeps them (adapters.cpp).
[[nodiscard]] OperatorList adapted(const OperatorList& list, const ModelSpec& model,
                                   const TrainingJob& job, const Framework& framework,
                                   const Shapes& s, LayerSharding sharding);

/// Activations that a layer saves and recomputes under the framework's selective recomputation, and
/// results that it always recomputes (recompute.cpp).
void mark_recomputation(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                        const Framework& framework, const Shapes& s, LayerSharding sharding);
/// What each recomputed module drops and repeats, where the framework has modules
/// (recompute_modules.cpp).
void mark_modules(OperatorList& list, const ModelSpec& model, LayerKind kind);
/// The module whose offload moves what an operator saves, where the framework has such modules
/// (offload_modules.cpp).
void mark_offload(OperatorList& list, const ModelSpec& model, LayerKind kind, TokenMixer mixer);

}  // namespace echelon::operators
