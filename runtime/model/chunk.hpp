// Chunk: forward and backward of consecutive layers, for one microbatch on one rank of a
// tensor-parallel and a context-parallel group. Allocates nothing: all memory is the caller's
// (chunk_layout.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/backend/kernels.hpp"
#include "runtime/backend/timed_communicator.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/element.hpp"
#include "runtime/model/chunk_layout.hpp"
#include "runtime/model/context_tokens.hpp"

namespace echelon {

/// Collectives of a layer, all of ⟨rows, hidden⟩ (Megatron-LM, arXiv 1909.08053 section 3; with
/// sequence parallelism arXiv 2205.05198 section 4.2). AR all-reduce, AG all-gather, RS
/// reduce-scatter over tp:
///
///                       forward     backward    backward_input  backward_weight  full
///                       recomputation
///   plain               2 AR        2 AR        2 AR            -                1 AR
///   sequence parallel   2 AG, 2 RS  4 AG, 2 RS  2 AG, 2 RS      4 AG             2 AG, 1 RS
///
/// On queues with a side stream, the backward's collectives of column-parallel matrices run beside
/// its products (Megatron-Core, LinearWithGradAccumulationAndAsyncCommunication in
/// tensor_parallel/layers.py): the gather of a matrix's normed input beside the gradient of its
/// input, the sum of that gradient beside the gradient of its weight; in backward_weight, the
/// gather for a weight gradient beside the one before it. Gathers of the upstream gradient, the
/// sums of backward_input, and the forward's collectives are exposed.
///
/// With context parallelism a rank has its part of each sample's tokens with all heads. By
/// all-to-all (DeepSpeed-Ulysses, arXiv 2309.14509; Megatron's --cp-comm-type a2a) it has in
/// attention its part of the heads of all tokens. All-to-alls over cp change one form into the
/// other, of q, k and v before attention and of its output after it: 2 forward, 2 in the backward
/// or backward_input, where a recomputed attention adds its last one, a fully recomputed layer
/// both.
///
/// By a ring (arXiv 2310.01889; p2p) a rank's queries stay, and keys and values of the others come
/// from the rank before and go on to the next: cp − 1 times forward or in a recomputation, as often
/// in the backward, and cp − 1 times their gradients, to the rank that they belong to. Each runs
/// beside attention on the block before, the backward's first beside the gradient of the output
/// projection's input (chunk_context.cpp).
///
/// Over ep, of a layer with experts: an all-gather of how many rows each expert gets and an
/// all-to-all of the rows' weights, once forward; all-to-alls of the rows, of hidden numbers each:
/// 2 forward, 3 backward and an all-to-all of the gradients of the weights (2 in backward_input, 2
/// in backward_weight). All are exposed.
///
/// With latent attention every rank computes the latents of all rows, from the gathered normed
/// input; collectives are the same. The gradients of what makes latents are summed over tp once a
/// step, as those of routers.
///
/// Adapters add no collectives: of a column-parallel matrix A is whole on every rank and B split as
/// its rows are, of a row-parallel one A split as its columns are and B whole, so that the ranks'
/// results add up with those of the matrix, and so do the gradients of its input. Gradients of
/// what is whole are summed over tp once a step. Frozen weights get no gradients, and nothing is
/// gathered for these.
///
/// The embedding takes 1 AR (RS) forward and 0 (1 AG) backward; head and loss 0 (1 AG) and two
/// small AR per 1024 rows forward, 1 AR (1 AG, 1 RS) backward, which computes the logits again.
/// When the backward follows its forward at once (ChunkArguments::loss_in_backward), the backward
/// does both, and computes the logits once. Checked by:
/// tests/runtime/model/chunk_parallel_test.cpp.
template <class T>
class Chunk {
 public:
  /// All work is enqueued on `kernels`. `tp`: the tensor-parallel group. `kv`: those of it, in
  /// order, that hold the same kv head, if there are fewer heads than ranks. `cp`: the
  /// context-parallel group. `ep`: the ranks that share the experts. Null for a group of one.
  Chunk(Kernels<T>& kernels, const ChunkSpec& spec, TimedCommunicator* tp, Communicator* kv,
        TimedCommunicator* cp = nullptr, TimedCommunicator* ep = nullptr);

  [[nodiscard]] const ChunkSpec& spec() const { return layout_.spec(); }
  [[nodiscard]] const ChunkParameters& parameters() const { return layout_.parameters(); }
  [[nodiscard]] const ChunkShape& shape() const { return layout_.shape(); }
  [[nodiscard]] const ChunkMemory& memory() const { return layout_.memory(); }
  /// Numbers in an input, an output and their gradients.
  [[nodiscard]] std::int64_t boundary_count() const { return shape().local * shape().hidden; }

  /// Units rise. The unit that has the loss adds Σ cross entropy of the microbatch's rows to
  /// *pass.loss (the same on all tp ranks).
  void forward(int unit, const ChunkArguments<T>& args) const;
  /// Units fall. The same as backward_input and backward_weight, bit for bit.
  void backward(int unit, const ChunkArguments<T>& args) const {
    run_backward(unit, args, Weights::now);
  }
  /// Makes the upstream gradient; gradients of norms, embeddings and head are complete after it.
  void backward_input(int unit, const ChunkArguments<T>& args) const {
    run_backward(unit, args, Weights::later);
  }
  /// Gradients of the layers' matrices and biases. Needs weights, gradients, input, saved,
  /// weight_inputs, workspace.
  void backward_weight(int unit, const ChunkArguments<T>& args) const;
  /// After a unit's last backward of a step: sums the partial gradients of the tp ranks.
  void finish_gradients(int unit, Wide<T>* gradients) const;

 private:
  enum class Weights { now, later };
  void run_backward(int unit, const ChunkArguments<T>& args, Weights weights) const;

  // chunk.cpp
  /// The result of a collective that runs beside the queue's work until arrived().
  struct Coming {
    const T* data = nullptr;
    TimedCommunicator::Pending pending{};
  };
  /// All rows of what each tp rank has its part of.
  [[nodiscard]] Coming begin_gather(const T* local, T* memory) const;
  /// The sum of what the tp ranks hold; of it this rank's part, in `scattered`, when split.
  [[nodiscard]] Coming begin_reduce(T* partial, T* scattered) const;
  const T* arrived(const Coming& coming) const;
  const T* gathered(const T* local, T* memory) const {
    return arrived(begin_gather(local, memory));
  }
  const T* reduced(T* partial, T* scattered) const {
    return arrived(begin_reduce(partial, scattered));
  }
  /// A row-parallel matrix and what is added to its result.
  struct RowParallel {
    const T* x;  ///< [rows, width]
    std::int64_t width;
    const T* weight;
    const T* bias;
    const T* residual;
    AdapterTarget target;
    int layer;
  };
  /// Writes to `out`, except for the sum that remains to be done.
  [[nodiscard]] SumBefore<T> row_parallel(const RowParallel& matrix, const ChunkArguments<T>& args,
                                          T* out) const;
  /// Finishes the remaining sum if no norm follows.
  void finish_sum(const SumBefore<T>& left) const;
  /// To work.normed; leaves the statistics that norm_backward reads. `left`: of x.
  void norm_forward(const T* x, const SumBefore<T>& left, const T* weight, const T* bias,
                    const Workspace<T>& work) const;
  [[nodiscard]] NormOf<T> norm_of(const T* x, const T* weight, const T* bias,
                                  const Workspace<T>& work) const;

  /// Rows of one of the rank's experts from one rank, among the routed ones.
  struct ExpertRows {
    int expert;
    std::int64_t first, count;
  };
  /// What the experts of a layer get in this pass.
  struct Exchange {
    std::vector<ExpertRows> experts;  ///< without empty ones
    /// Rows for each expert of each rank that shares the experts; they lie in that order.
    std::vector<std::int64_t> to;
    /// Rows of each such rank for each own expert; they lie expert by expert.
    std::vector<std::int64_t> from;
    std::int64_t rows = 0;  ///< in all
  };

  // chunk_adapters.cpp: nothing where matrices of this kind have no adapters. `x`: the matrix's
  // input, of a column-parallel one all rows; `y`: its result on this rank.
  [[nodiscard]] bool freezes() const { return spec().adapters.has_value(); }
  /// narrow = s·A·x, which the backward needs again.
  void narrow(AdapterTarget target, int layer, const ChunkArguments<T>& args, const T* x) const;
  /// y += B·narrow.
  void add_adapter(AdapterTarget target, int layer, const ChunkArguments<T>& args, const T* x,
                   T* y) const;
  /// dx += s·(dy·B)·A. Keeps s·dy·B for the next call, that of A's gradient.
  void adapter_backward(AdapterTarget target, int layer, const ChunkArguments<T>& args, const T* dy,
                        T* dx) const;
  void adapter_weights(AdapterTarget target, int layer, const ChunkArguments<T>& args, const T* x,
                       const T* dy) const;
  [[nodiscard]] T* narrow_of(AdapterTarget target, int layer, const ChunkArguments<T>& args) const;
  [[nodiscard]] T* narrow_gradient_of(AdapterTarget target, const ChunkArguments<T>& args) const;
  void scale_narrow(T* x) const;
  /// Of a frozen parameter there is none.
  [[nodiscard]] Wide<T>* gradient_at(std::int64_t offset, const ChunkArguments<T>& args) const {
    return freezes() ? nullptr : args.gradients + offset;
  }

  // chunk_layer.cpp
  // `left`: the remaining sum of the input (state or `middle`); the result is that of the output.
  void project_qkv(int layer, const ChunkArguments<T>& args, const SavedActivations<T>& activations,
                   const SumBefore<T>& left) const;
  void rotate(T* qkv, int direction) const;
  [[nodiscard]] HeadNorms<T> head_norms(int layer, const ChunkArguments<T>& args) const;
  /// What attention is of: the saved qkv, or with norms of heads those of them, which it makes.
  const T* attention_input(int layer, const ChunkArguments<T>& args, const T* qkv) const;
  void attention_core(int layer, const ChunkArguments<T>& args,
                      const SavedActivations<T>& activations) const;

  // chunk_context.cpp
  /// Of a context-parallel rank: its tokens with all heads to all tokens with its heads, and back.
  /// `from` may be `to`.
  struct HeadExchange {
    HeadSplit split;
    std::vector<std::int64_t> counts;  ///< elements for each member
  };
  void scatter_heads(const HeadExchange& of, const T* from, T* to,
                     const ChunkArguments<T>& args) const;
  void gather_heads(const HeadExchange& of, const T* from, T* to,
                    const ChunkArguments<T>& args) const;
  using Pending = TimedCommunicator::Pending;
  /// Begins to send `count` numbers to the next rank and to receive as many from the one before.
  [[nodiscard]] Pending begin_pass(const T* from, T* to, std::int64_t count) const;
  /// Numbers of a block of keys and values.
  [[nodiscard]] std::int64_t block_count() const;
  void pack_keys(const T* qkv, T* keys) const;
  /// What the rank's queries see of the keys that came `step` ranks far.
  [[nodiscard]] AttentionBlock block_of(int step) const;
  void ring_forward(const T* qkv, const SavedActivations<T>& activations,
                    const RingBuffers<T>& ring) const;
  [[nodiscard]] Pending begin_ring_backward(const T* qkv, const RingBuffers<T>& ring) const;
  /// `work.attended_gradient` to dqkv.
  void ring_backward(const T* qkv, const SavedActivations<T>& activations, const Workspace<T>& work,
                     Pending pending, T* dqkv) const;

  [[nodiscard]] SumBefore<T> output_projection(int layer, const ChunkArguments<T>& args,
                                               const SavedActivations<T>& activations) const;
  // Of a layer with experts the result is what they get; otherwise it is empty.
  Exchange project_up(int layer, const ChunkArguments<T>& args,
                      const SavedActivations<T>& activations, const SumBefore<T>& left) const;
  void activate(const T* up, T* activated, std::int64_t rows, std::int64_t width) const;
  [[nodiscard]] SumBefore<T> down_projection(int layer, const ChunkArguments<T>& args,
                                             const SavedActivations<T>& activations,
                                             const Exchange& exchange) const;

  void layer_backward(int layer, const ChunkArguments<T>& args, Weights weights) const;
  /// As project_up, if it is repeated.
  Exchange recompute(int layer, const ChunkArguments<T>& args,
                     const SavedActivations<T>& activations) const;
  void mlp_backward(int layer, const ChunkArguments<T>& args,
                    const SavedActivations<T>& activations, const WeightInputs<T>& later,
                    Weights weights) const;
  void attention_backward(int layer, const ChunkArguments<T>& args,
                          const SavedActivations<T>& activations, const WeightInputs<T>& later,
                          Weights weights) const;
  /// A column-parallel matrix and the norm before it, of x.
  struct ColumnParallel {
    const T* dy;  ///< [rows, width], the gradient of its output
    std::int64_t width;
    std::int64_t weight;  ///< offsets
    std::optional<std::int64_t> bias;
    AdapterTarget target;
    int layer;
    const T* x;
    std::int64_t norm, norm_bias;
  };
  /// Back through both, to the upstream gradient. `in`: the normed input of the matrix, for the
  /// gradients of weight and bias; none: these come later.
  void column_parallel_backward(const ColumnParallel& matrix, const Coming* in,
                                const ChunkArguments<T>& args) const;
  /// Of weight and bias.
  void column_parallel_weights(const ColumnParallel& matrix, const T* in,
                               const ChunkArguments<T>& args) const;
  [[nodiscard]] ColumnParallel qkv_matrix(int layer, const T* dy,
                                          const ChunkArguments<T>& args) const;
  [[nodiscard]] ColumnParallel up_matrix(int layer, const T* dy, const T* middle) const;
  /// Begins the gather of a column-parallel matrix's input, if a gradient needs it.
  [[nodiscard]] Coming begin_input_gather(AdapterTarget target, const Workspace<T>& work) const;
  /// Gradients of the row-parallel matrix and its bias. `whole`: all rows of the gradient.
  void down_weights(int layer, const ChunkArguments<T>& args, const T* gradient, const T* whole,
                    const T* activated) const;
  void output_weights(int layer, const ChunkArguments<T>& args, const T* gradient, const T* whole,
                      const T* attended) const;

  // chunk_latent.cpp
  [[nodiscard]] LatentNorms<T> latent_norms(int layer, const ChunkArguments<T>& args) const;
  [[nodiscard]] LatentShape latent_rows(const TokenRun& run) const;
  /// `in`: the normed input, all rows. Writes latents and rotated qkv.
  void latent_heads(int layer, const ChunkArguments<T>& args,
                    const SavedActivations<T>& activations, const T* in) const;
  /// From the gradient of the rotated qkv to the upstream gradient. `in` as of
  /// column_parallel_backward.
  void latent_backward(int layer, const ChunkArguments<T>& args, const T* latents,
                       const LatentGradients<T>& gradients, const T* qkv_gradient,
                       const Coming* in) const;
  /// Gradients of the up projections; of the down projections and of direct queries.
  void latent_up_weights(int layer, const ChunkArguments<T>& args, const T* latents,
                         const LatentGradients<T>& gradients) const;
  void latent_down_weights(int layer, const ChunkArguments<T>& args,
                           const LatentGradients<T>& gradients, const T* in) const;

  // chunk_experts.cpp
  [[nodiscard]] Router router() const;
  [[nodiscard]] const T* expert_weights(const ChunkArguments<T>& args) const {
    return spec().ep > 1 ? args.experts : args.weights;
  }
  [[nodiscard]] Wide<T>* expert_gradients(const ChunkArguments<T>& args) const {
    return spec().ep > 1 ? args.expert_gradients : args.gradients;
  }
  /// Waits for the routers of all ranks.
  [[nodiscard]] Exchange exchange_of(const ExpertRouting<T>& routing) const;
  /// Rows of x, [rows, hidden], to their experts, in the workspace.
  const T* dispatch(const T* x, const ExpertRouting<T>& routing, const Exchange& exchange,
                    const ChunkArguments<T>& args) const;
  /// y[row] = the sum of what the row's experts left in the workspace, + addend where there is one.
  void combine(const ExpertRouting<T>& routing, const Exchange& exchange, const T* addend, T* y,
               const ChunkArguments<T>& args) const;
  /// `in`: the normed input, all rows.
  Exchange experts_up(int layer, const ChunkArguments<T>& args,
                      const SavedActivations<T>& activations, const T* in) const;
  [[nodiscard]] SumBefore<T> experts_down(int layer, const ChunkArguments<T>& args,
                                          const SavedActivations<T>& activations,
                                          const Exchange& exchange) const;
  void experts_backward(int layer, const ChunkArguments<T>& args,
                        const SavedActivations<T>& activations, const Exchange& exchange,
                        const WeightInputs<T>& later, Weights weights) const;
  /// `whole`: all rows of the gradient of the layer's output, `in`: of the normed input. Begins the
  /// gather of the gradient of attention's output, which takes the memory of `whole`.
  [[nodiscard]] Coming experts_backward_weight(int layer, const ChunkArguments<T>& args,
                                               const Coming& whole, const Coming& in) const;
  /// Gradients of the down projections; of the up projections and the router. `routed_gradient`,
  /// `activated` and `up_gradient` have a row per routed row.
  void experts_down_weights(int layer, const ChunkArguments<T>& args, const Exchange& exchange,
                            const T* routed_gradient, const T* activated) const;
  void experts_up_weights(int layer, const ChunkArguments<T>& args, const Exchange& exchange,
                          const ExpertRouting<T>& routing, const T* in, const T* up_gradient,
                          const T* logits_gradient) const;

  // chunk_shared_experts.cpp: nothing without shared experts
  struct SharedGradients {
    T* up = nullptr;    ///< [rows, shared_up]
    T* gate = nullptr;  ///< [gates]
  };
  void shared_up(int layer, const ChunkArguments<T>& args, const SavedActivations<T>& activations,
                 const T* in) const;
  /// The inputs of the down projection, weighted.
  void activate_shared(const ChunkArguments<T>& args, const SavedActivations<T>& activations,
                       T* activated) const;
  /// Their output in y; null: there are none.
  [[nodiscard]] const T* shared_down(int layer, const ChunkArguments<T>& args,
                                     const SavedActivations<T>& activations, T* y) const;
  /// `whole`: all rows of the gradient of the layer's output.
  [[nodiscard]] SharedGradients shared_backward(int layer, const ChunkArguments<T>& args,
                                                const SavedActivations<T>& activations,
                                                const T* whole, const WeightInputs<T>& later,
                                                Weights weights) const;
  /// dx += the gradient of the normed input.
  void add_shared_input_gradient(int layer, const ChunkArguments<T>& args,
                                 const SharedGradients& of, T* dx) const;
  void shared_down_weights(int layer, const ChunkArguments<T>& args, const T* whole,
                           const T* activated) const;
  void shared_up_weights(int layer, const ChunkArguments<T>& args, const T* in,
                         const SharedGradients& of) const;

  // chunk_ends.cpp
  [[nodiscard]] std::vector<TokenRun> local_tokens() const;
  void embed(const ChunkArguments<T>& args) const;
  void embed_backward(const ChunkArguments<T>& args) const;
  const T* head(const ChunkArguments<T>& args) const;
  void make_logits(const T* in, std::int64_t count, const ChunkArguments<T>& args, T* logits) const;
  void partials_of(const T* in, std::int64_t row, std::int64_t count,
                   const ChunkArguments<T>& args) const;
  void add_losses(const ChunkArguments<T>& args) const;
  void loss_forward(const ChunkArguments<T>& args, const SumBefore<T>& left) const;
  [[nodiscard]] Logits<T> logits_of(std::int64_t row, std::int64_t count,
                                    const ChunkArguments<T>& args) const;
  void loss_backward(const ChunkArguments<T>& args) const;

  Kernels<T>& k_;
  ChunkLayout<T> layout_;
  RotaryFrequencies rotary_;  ///< empty without rotary positions
  TimedCommunicator* tp_;
  Communicator* kv_;
  TimedCommunicator* cp_;
  TimedCommunicator* ep_;
  AttentionShape attention_;
  std::vector<TokenRun> tokens_;           ///< of each sample, on this rank
  std::vector<TokenRun> attended_tokens_;  ///< of attention's rows
  HeadExchange of_qkv_;
  HeadExchange of_attended_;
  /// By where a layer's routing is kept: of its last forward, for a backward that need not wait for
  /// the GPU again.
  mutable std::map<const std::int32_t*, Exchange> exchanges_;
};

}  // namespace echelon
