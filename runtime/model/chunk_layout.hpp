// ChunkLayout: where a chunk's inputs and outputs lie in the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/model/attention.hpp"
#include "runtime/backend/kernel_shapes.hpp"
#include "runtime/comm/element.hpp"
#include "runtime/model/bump_allocator.hpp"
#include "runtime/model/parameters.hpp"

namespace echelon {

/// Memory of one forward or backward of one unit. Blocks begin at multiples of 64 bytes; what a
/// call does not need may be null.
template <class T>
struct ChunkArguments {
  const T* weights = nullptr;             ///< of the unit; with adapters the frozen ones
  const T* adapters = nullptr;            ///< of the unit, where these are trained
  Wide<T>* gradients = nullptr;           ///< of what is trained of the unit; added to
  const T* experts = nullptr;             ///< of the unit's experts, where ep > 1
  Wide<T>* expert_gradients = nullptr;    ///< of the unit's experts; added to
  const T* tied = nullptr;                ///< of the tied word embedding
  Wide<T>* tied_gradients = nullptr;      ///< of the tied word embedding; added to
  const std::int32_t* tokens = nullptr;   ///< [rows], where the embedding is
  const std::int32_t* targets = nullptr;  ///< [rows], where the loss is
  const T* input = nullptr;  ///< [local rows, hidden], unless the embedding is here; lives as long
                             ///< as `saved` does
  T* output = nullptr;       ///< [local rows, hidden], unless the loss is here
  const T* output_gradient = nullptr;  ///< [local rows, hidden], read by the last unit
  T* gradient = nullptr;  ///< [local rows, hidden]: the upstream gradient from unit to unit, in the
                          ///< end the input's; may be the output gradient's memory
  std::byte* saved = nullptr;          ///< from the forward to the backward of a microbatch
  std::byte* weight_inputs = nullptr;  ///< from backward_input to backward_weight
  std::byte* workspace = nullptr;      ///< during a call
  double* loss = nullptr;              ///< where the loss is
  double loss_scale = 1;  ///< what is differentiated is loss_scale · Σ cross entropy of the rows
  bool loss_in_backward = false;  ///< to both passes of the unit that has the loss: the head and
                                  ///< the loss run in the backward, which computes logits once
};

/// Sizes of the chunk on one rank.
struct ChunkShape {
  std::int64_t rows = 0;   ///< r: tokens of a microbatch, 1/cp of them, ordered [sequence][sample]
  std::int64_t local = 0;  ///< R: rows between layers: rows / tp with sequence parallelism
  std::int64_t hidden = 0;
  int heads = 0;  ///< of this tensor-parallel rank; in attention 1/cp of them
  int kv_heads = 0;
  std::int64_t query = 0;       ///< width of the query heads
  std::int64_t attended = 0;    ///< q: of attention's output
  std::int64_t qkv = 0;         ///< Q: of query, key and value heads
  std::int64_t ffn = 0;         ///< f: width behind the activation
  std::int64_t up = 0;          ///< F: before it; f, or 2f for [gate | up]
  int experts = 0;              ///< E: of a layer with experts
  int choices = 0;              ///< k: experts of a row
  std::int64_t expert_ffn = 0;  ///< e, g: f and F of one expert
  std::int64_t expert_up = 0;
  std::int64_t shared_ffn = 0;  ///< s, S: f and F of the shared experts together
  std::int64_t shared_up = 0;
  std::int64_t gates = 0;   ///< x: rows whose shared experts have a weight, r or none
  std::int64_t sent = 0;    ///< n: rows that the rank sends to experts, r·k
  std::int64_t routed = 0;  ///< m: rows that its experts get at most: n, or of several ranks
                            ///< p·r·min(k, E/p)
  std::int64_t vocab = 0;   ///< V: columns of the logits, padding included
  std::int64_t first_vocab = 0;
  std::int64_t valid_vocab = 0;  ///< columns that are no padding
  std::int64_t loss_rows = 0;    ///< C: rows of logits that exist at once, min(r, 4096)
  std::int64_t rank = 0;         ///< n: of adapters
  bool split = false;            ///< between layers each rank has its part of the sequence
};
[[nodiscard]] ChunkShape shape_of(const ChunkSpec& spec);
/// Widths of a matrix with an adapter on this rank.
struct MatrixWidths {
  std::int64_t in = 0, out = 0;
};
[[nodiscard]] MatrixWidths widths_of(const ChunkShape& shape, AdapterTarget target);
/// Of latent attention; of models without it, without latents.
[[nodiscard]] LatentShape latent_shape_of(const ChunkSpec& spec);
/// Of attention: over whole sequences, with context parallelism by all-to-all on the rank's part of
/// the heads; by a ring of the rank's queries, and as many keys at a time.
[[nodiscard]] AttentionShape attention_shape_of(const ChunkSpec& spec);

/// The memory of a chunk, in bytes. ⌈·⌉ rounds up to a multiple of 64; w and W are the bytes of T
/// and Wide<T>, h is hidden, a heads; the other letters are ChunkShape's.
///
///   saved         = Σ over layers
///                     ⌈wRh⌉                           its input, unless it is the chunk's
///                     ⌈wrQ⌉ + ⌈wRh⌉ + M + L           none, selective
///                     ⌈wrq⌉ + ⌈Wra⌉                   none; ⌈wrq⌉ twice with all-to-all
///                 + ⌈wRh⌉ + ⌈Wr⌉ + ⌈2Wr⌉              the loss; the first as above
///   weight_inputs = Σ over layers
///                     2⌈wRh⌉ + ⌈wrQ⌉ + G              N instead of ⌈wrQ⌉ with latents
///                     ⌈wrq⌉                           selective, full
///                     ⌈wRh⌉ + A + L                   full
///   workspace     = largest over layers of
///                     ⌈wrq⌉ + ⌈Wra⌉                   selective, full; ⌈wrq⌉ twice with
///                                                     all-to-all
///                     ⌈wrQ⌉ + ⌈wRh⌉ + M + L           full
///                 + ⌈wRh⌉ + 2⌈WR⌉ + ⌈wrh⌉             the last twice with sequence parallelism
///                 + max(largest B, ⌈wrq⌉ + ⌈wrQ⌉, ⌈wCV⌉)    of layers, layers, loss;
///                                                 ⌈wrQ⌉ twice with norms of heads or
///                                                 all-to-all; 2⌈2wrK⌉ + ⌈wrK⌉ with a ring
///                   with latents + N + ⌈wrk⌉ + (⌈wrc⌉, or ⌈wrh⌉ without latents of queries)
///
/// Latent attention, with latents of c and k numbers, l of a row together with the rotary key, and
/// a heads of o = nope + rope numbers for queries, of value v: L = ⌈wrl⌉, else 0;
/// N = ⌈wrao⌉ + ⌈wra(nope + v)⌉ + ⌈wrl⌉; Q = a(2o + v), q = av.
///
///                     dense layer               layer with experts
///   M  MLP, saved     ⌈wrF⌉                     ⌈wmg⌉ + ⌈wrE⌉ + D + ⌈wrS⌉ + ⌈wx⌉
///   G  its gradients  ⌈wrF⌉                     ⌈wmg⌉ + ⌈wrE⌉ + ⌈wrS⌉ + ⌈wx⌉
///   A  recomputed     ⌈wrf⌉                     ⌈wme⌉ + D + ⌈wrs⌉
///   B  at a time      2⌈wrf⌉ + ⌈wrF⌉            2⌈w·max(me, rs)⌉ + ⌈wmg⌉ + ⌈wmh⌉ + ⌈Wm⌉ + ⌈wrE⌉
///                                               ⌈wrS⌉ + 2⌈Wx⌉ + ⌈wx⌉
///                                               ⌈wnh⌉ + ⌈Wn⌉                    if p > 1
///   D  routing                                  3⌈4n⌉ + ⌈4pE⌉ + ⌈Wn⌉
///                                               ⌈Wm⌉                            if p > 1
///
/// All-to-all and ring: over cp ranks, cp > 1; K of keys and values. The ring's forward makes
/// attention's output in W bytes a number, where the backward has the gradients.
///
/// An adapter on a matrix adds ⌈wrz⌉ to M, z its rank; adapters on attention's matrices, or on the
/// MLP's, add ⌈wrz⌉ to their part of the workspace.
///
/// p ranks share the experts (ep). No row is ever without a place, whatever the router chooses.
///
/// The outputs of norms and activations, and the experts' rows, are recomputed in every backward:
/// no matrix product, for 2wRh + wrf a layer (of experts 2wRh + wm(e + h) + wrs), and wrQ with
/// norms of heads. The weights of a row's experts multiply the inputs of their down projections, so
/// that nothing keeps the experts' outputs. Checked by: tests/runtime/model/chunk_memory_test.cpp.
struct ChunkMemory {
  std::int64_t saved = 0;
  std::int64_t weight_inputs = 0;
  std::int64_t workspace = 0;
};

/// The rows of a layer's experts: where the router sends the rank's own, and what its experts get.
template <class T>
struct ExpertRouting {
  Routing<T> own;
  std::int32_t* counts = nullptr;  ///< [ep, experts]: own.counts of all ranks, among them its own
  Wide<T>* weights = nullptr;      ///< [routed], of the rows here; with one rank own.weights
};

/// A layer's activations: saved by the forward, or recomputed in the backward.
template <class T>
struct SavedActivations {
  T* qkv = nullptr;     ///< [rows, qkv], rotated; with norms of heads, before both. With
                        ///< all-to-all [cp · rows, qkv / cp], the rank's heads of all tokens
  T* middle = nullptr;  ///< [local, hidden], behind attention
  T* up = nullptr;  ///< [rows, up], before the activation; of experts [routed, expert_up], by slot
  T* logits = nullptr;       ///< [rows, experts], the router's; only of a layer with experts
  ExpertRouting<T> routing;  ///< the same
  T* shared_up = nullptr;    ///< [rows, shared_up], of the shared experts
  T* shared_gate = nullptr;  ///< [gates], the logits of their weights
  T* latents = nullptr;      ///< [rows, latents], before their norms; only of latent attention
  T* attended = nullptr;     ///< [rows, attended]
  T* attention = nullptr;    ///< what attention computed: `attended`, or with all-to-all the other
                             ///< form of it, [cp · rows, attended / cp]
  Wide<T>* log_sum = nullptr;  ///< [samples, heads, sequence]
  /// [rows, rank], the scaled products of adapters' A with their inputs, by target.
  std::array<T*, kAdapterTargets.size()> narrow{};
};

template <class T>
struct SavedLoss {
  Wide<T>* max = nullptr;   ///< [rows]
  Wide<T>* sums = nullptr;  ///< [rows, 2]: of exponentials, and the target's logit
};

/// Gradients of what the projections of latent attention make.
template <class T>
struct LatentGradients {
  T* q = nullptr;        ///< [rows, query]
  T* kv = nullptr;       ///< [rows, key_value]
  T* latents = nullptr;  ///< [rows, latents]
};

/// Inputs of the gradients of a layer's matrices besides what the forward saved.
template <class T>
struct WeightInputs {
  T* mlp_gradient = nullptr;          ///< [local, hidden], of the layer's output
  T* up_gradient = nullptr;           ///< [rows, up]; of experts [routed, expert_up]
  T* logits_gradient = nullptr;       ///< [rows, experts]; only of a layer with experts
  T* shared_up_gradient = nullptr;    ///< [rows, shared_up]
  T* shared_gate_gradient = nullptr;  ///< [gates], of the logits
  T* attention_gradient = nullptr;    ///< [local, hidden], of `middle`
  T* qkv_gradient = nullptr;          ///< [rows, qkv]; of latent attention the next instead
  LatentGradients<T> latent;          ///< only of latent attention
  T* latents = nullptr;               ///< of the saved activations, if recomputed
  T* attended = nullptr;              ///< the same
  T* middle = nullptr;                ///< the same
  T* activated = nullptr;             ///< [rows, ffn], the same; of experts [routed, expert_ffn],
                                      ///< weighted
  T* shared_activated = nullptr;      ///< [rows, shared_ffn], the same
  ExpertRouting<T> routing;           ///< of the saved activations, if recomputed
};

/// Context parallelism by a ring: what passes this rank. A step's block of keys is [rows, kv], rows
/// of [k heads | v heads], and the gradients of an earlier one travel behind it.
template <class T>
struct RingBuffers {
  std::array<T*, 2> blocks{};  ///< each a block and gradients of one: used and received in turn
  T* gradients = nullptr;      ///< [rows, kv], of the block that is computed
  Wide<T>* sums = nullptr;     ///< [rows, attended], the forward's output until now
};

template <class T>
struct Workspace {
  T* normed = nullptr;      ///< [local, hidden]
  Wide<T>* mean = nullptr;  ///< [local]
  Wide<T>* rstd = nullptr;  ///< [local]
  T* partial = nullptr;     ///< [rows, hidden]
  T* gathered = nullptr;    ///< [rows, hidden]; only with sequence parallelism
  // MLP, attention and loss take turns in the same memory.
  T* activated = nullptr;           ///< [rows, ffn]; of experts [routed, expert_ffn], and in turn
                                    ///< [rows, shared_ffn]
  T* activated_gradient = nullptr;  ///< the same
  T* up_gradient = nullptr;         ///< [rows, up]; of experts [routed, expert_up]
  // Only of a layer with experts:
  T* routed = nullptr;                  ///< [routed, hidden], by slot, of several ranks by rank
  Wide<T>* weight_gradients = nullptr;  ///< [routed], of the routing's weights
  T* sent = nullptr;                    ///< [sent, hidden], by slot; only where ep > 1
  Wide<T>* sent_weight_gradients = nullptr;  ///< [sent]; the same
  T* router_gradient = nullptr;              ///< [rows, experts], of the router's logits
  T* shared_up_gradient = nullptr;           ///< [rows, shared_up]
  Wide<T>* gate_weights = nullptr;           ///< [gates], of the shared experts
  Wide<T>* gate_weight_gradients = nullptr;  ///< [gates]
  T* shared_gate_gradient = nullptr;         ///< [gates], of their logits
  T* attended_gradient = nullptr;  ///< [rows, attended], both forms in turn, as the next one
  T* qkv_gradient = nullptr;       ///< [rows, qkv]
  T* normed_qkv = nullptr;         ///< [rows, qkv], rotated; only with norms of heads
  T* exchanged = nullptr;          ///< the same memory, before and after: only with all-to-all
  RingBuffers<T> ring;             ///< only with a ring
  // Only of latent attention:
  LatentGradients<T> latent;  ///< in the forward the projections themselves
  T* normed_q = nullptr;      ///< [rows, q_rank], then its gradient; with a latent of queries
  T* normed_kv = nullptr;     ///< [rows, kv_rank], the same
  T* from_queries = nullptr;  ///< [rows, hidden], a part of the gradient; without one
  // Only with adapters on matrices of attention, or of the MLP:
  T* attention_narrow = nullptr;  ///< [rows, rank], gradient of an adapter's narrow result
  T* mlp_narrow = nullptr;        ///< the same
  T* logits = nullptr;            ///< [loss_rows, vocab]
};

/// An adapter's offsets in the unit's flat parameters of adapters.
struct AdapterPlace {
  std::int64_t a = 0, b = 0;
  MatrixWidths matrix;
};

/// Offsets in the unit's flat parameters; biases only where the model has them. The offset
/// of direct queries is `q_up`. Of a layer with experts `up` and `down` are those of the rank's
/// first one, where ep > 1 in the experts' flat parameters, and those of the others follow.
struct LayerOffsets {
  std::int64_t attention_norm = 0, attention_norm_bias = 0;
  std::int64_t qkv = 0, qkv_bias = 0, output = 0, output_bias = 0;
  std::int64_t q_norm = 0, k_norm = 0;
  std::int64_t latent_down = 0, q_latent_norm = 0, kv_latent_norm = 0, q_up = 0, kv_up = 0;
  std::int64_t mlp_norm = 0, mlp_norm_bias = 0;
  std::int64_t shared_gate = 0, shared_up = 0, shared_down = 0;
  std::int64_t router = 0, router_bias = 0, up = 0, up_bias = 0, down = 0, down_bias = 0;
  std::array<AdapterPlace, kAdapterTargets.size()> adapters{};  ///< by target
};
struct EndOffsets {
  std::int64_t word_embedding = 0,
               position = 0;  ///< in the first unit, a tied word embedding in its own
  std::int64_t final_norm = 0, final_norm_bias = 0, head = 0, head_bias = 0;  ///< in the last
};

/// chunk_offsets.cpp.
[[nodiscard]] std::vector<LayerOffsets> layer_offsets(const ChunkSpec& spec,
                                                      const ChunkParameters& parameters);
[[nodiscard]] EndOffsets end_offsets(const ChunkSpec& spec, const ChunkParameters& parameters);

template <class T>
class ChunkLayout {
 public:
  explicit ChunkLayout(const ChunkSpec& spec);

  [[nodiscard]] const ChunkSpec& spec() const { return spec_; }
  [[nodiscard]] const ChunkParameters& parameters() const { return parameters_; }
  [[nodiscard]] const ChunkShape& shape() const { return shape_; }
  [[nodiscard]] const LatentShape& latent() const { return latent_; }
  [[nodiscard]] const ChunkMemory& memory() const { return memory_; }
  [[nodiscard]] const LayerOffsets& layer(int layer) const {
    return layers_[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] const AdapterPlace& adapter(int layer, AdapterTarget target) const {
    return this->layer(layer).adapters[static_cast<std::size_t>(target)];
  }
  [[nodiscard]] const EndOffsets& ends() const { return ends_; }
  [[nodiscard]] bool has_experts(int layer) const {
    return spec_.model.layer_kind(spec_.first_layer + layer) == LayerKind::moe;
  }
  /// Whether matrices of this kind have adapters.
  [[nodiscard]] bool adapts(AdapterTarget target) const {
    return spec_.adapters && spec_.adapters->targets.contains(target);
  }
  [[nodiscard]] bool adapts(AdapterTargets any) const {
    return spec_.adapters && spec_.adapters->targets.intersects(any);
  }
  [[nodiscard]] Recompute recompute(int layer) const {
    return spec_.recompute[static_cast<std::size_t>(layer)];
  }

  /// The input of a layer; of one past the last: the chunk's output, or the final norm's input.
  [[nodiscard]] const T* state(int layer, const ChunkArguments<T>& args) const;
  [[nodiscard]] T* new_state(int layer, const ChunkArguments<T>& args) const;
  [[nodiscard]] SavedActivations<T> saved_activations(int layer,
                                                      const ChunkArguments<T>& args) const;
  [[nodiscard]] SavedLoss<T> saved_loss(const ChunkArguments<T>& args) const;
  [[nodiscard]] WeightInputs<T> weight_inputs(int layer, const ChunkArguments<T>& args) const;
  /// MLP: the part for a layer of this kind.
  [[nodiscard]] Workspace<T> workspace(const ChunkArguments<T>& args,
                                       LayerKind kind = LayerKind::dense) const;

 private:
  /// Whether the input of a layer lies in saved memory.
  [[nodiscard]] bool saves_state(int layer) const {
    return (layer > 0 || spec_.embedding) && (layer < spec_.layers || spec_.loss);
  }
  void measure();
  SavedActivations<T> allocate_activations(int layer, BumpAllocator& saved,
                                           BumpAllocator& recomputed) const;
  SavedLoss<T> allocate_loss(BumpAllocator& saved) const;
  WeightInputs<T> allocate_weight_inputs(int layer, BumpAllocator& allocator) const;
  ExpertRouting<T> allocate_routing(BumpAllocator& allocator) const;
  LatentGradients<T> allocate_latent_gradients(BumpAllocator& allocator) const;
  void allocate_latent_workspace(Workspace<T>& workspace, BumpAllocator& attention) const;
  [[nodiscard]] RingBuffers<T> allocate_ring(const Workspace<T>& workspace,
                                             BumpAllocator& attention) const;
  Workspace<T> allocate_workspace(BumpAllocator& allocator, LayerKind kind) const;

  ChunkSpec spec_;
  ChunkParameters parameters_;
  ChunkShape shape_;
  LatentShape latent_;
  ChunkMemory memory_;
  std::vector<LayerOffsets> layers_;
  EndOffsets ends_;
  std::vector<std::int64_t> saved_at_;          ///< per layer, and of the loss
  std::vector<std::int64_t> weight_inputs_at_;  ///< per layer
  std::int64_t recomputed_bytes_ = 0;           ///< workspace for what is recomputed
};

}  // namespace echelon
