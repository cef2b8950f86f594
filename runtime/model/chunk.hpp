// Chunk: forward and backward of consecutive layers, for one microbatch on one tensor-parallel
// rank. Allocates nothing: all memory is the caller's (chunk_layout.hpp).
#pragma once

#include <cstdint>

#include "runtime/communicator.hpp"
#include "runtime/element.hpp"
#include "runtime/kernels.hpp"
#include "runtime/model/chunk_layout.hpp"

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
/// The embedding takes 1 AR (RS) forward and 0 (1 AG) backward; head and loss 0 (1 AG) and two
/// small AR per 1024 rows forward, 1 AR (1 AG, 1 RS) backward, where the logits are made again: all
/// but the last 1024 rows' when the backward follows its forward at once (Pass::logits_left).
/// Checked by: tests/runtime/chunk_parallel_test.cpp.
template <class T>
class Chunk {
 public:
  /// Everything is put on `kernels`. `tp`: the tensor-parallel group. `kv`: those of it, in order,
  /// that hold the same kv head, where there are fewer heads than ranks. Null for a group of one.
  Chunk(Kernels<T>& kernels, const ChunkSpec& spec, Communicator* tp, Communicator* kv);

  [[nodiscard]] const ChunkSpec& spec() const { return layout_.spec(); }
  [[nodiscard]] const ChunkParameters& parameters() const { return layout_.parameters(); }
  [[nodiscard]] const ChunkShape& shape() const { return layout_.shape(); }
  [[nodiscard]] const ChunkMemory& memory() const { return layout_.memory(); }
  /// Numbers in an input, an output and their gradients.
  [[nodiscard]] std::int64_t boundary_count() const { return shape().local * shape().hidden; }

  /// Units rise. The unit that has the loss adds Σ cross entropy of the microbatch's rows to
  /// *pass.loss (the same on all tp ranks).
  void forward(int unit, const Pass<T>& pass) const;
  /// Units fall. The same as backward_input and backward_weight, bit for bit.
  void backward(int unit, const Pass<T>& pass) const { run_backward(unit, pass, Weights::now); }
  /// Makes the running gradient; gradients of norms, embeddings and head are complete after it.
  void backward_input(int unit, const Pass<T>& pass) const {
    run_backward(unit, pass, Weights::later);
  }
  /// Gradients of the layers' matrices and biases. Needs weights, gradients, input, saved,
  /// weight_inputs, workspace.
  void backward_weight(int unit, const Pass<T>& pass) const;
  /// After a unit's last backward of a step: adds up what the tp ranks have parts of.
  void finish_gradients(int unit, Wide<T>* gradients) const;

 private:
  enum class Weights { now, later };
  void run_backward(int unit, const Pass<T>& pass, Weights weights) const;

  // chunk.cpp
  /// All rows of what each tp rank has its part of.
  const T* gathered(const T* local, T* memory) const;
  /// The sum of what the tp ranks hold; of it this rank's part, in `scattered`, when split.
  const T* reduced(T* partial, T* scattered) const;
  /// To `out`, but for the sum that is left to do.
  [[nodiscard]] SumBefore<T> row_parallel(const T* x, std::int64_t width, const T* weight,
                                          const T* bias, const T* residual,
                                          const Workspace<T>& work, T* out) const;
  /// What is left, where no norm follows.
  void finish_sum(const SumBefore<T>& left) const;
  /// To work.normed; leaves the statistics that norm_backward reads. `left`: of x.
  void norm_forward(const T* x, const SumBefore<T>& left, const T* weight, const T* bias,
                    const Workspace<T>& work) const;
  [[nodiscard]] NormOf<T> norm_of(const T* x, const T* weight, const T* bias,
                                  const Workspace<T>& work) const;

  // chunk_forward.cpp
  // `left`: of the state or the tape's middle that is read; what is returned, of the one written.
  void project_qkv(int layer, const Pass<T>& pass, const LayerTape<T>& tape,
                   const SumBefore<T>& left) const;
  void rotate(T* qkv, int direction) const;
  [[nodiscard]] AttentionShape attention_shape() const;
  void attend(const LayerTape<T>& tape) const;
  [[nodiscard]] SumBefore<T> leave_attention(int layer, const Pass<T>& pass,
                                             const LayerTape<T>& tape) const;
  void project_up(int layer, const Pass<T>& pass, const LayerTape<T>& tape,
                  const SumBefore<T>& left) const;
  void activate(const T* up, T* activated) const;
  [[nodiscard]] SumBefore<T> leave_mlp(int layer, const Pass<T>& pass,
                                       const LayerTape<T>& tape) const;

  // chunk_backward.cpp
  void layer_backward(int layer, const Pass<T>& pass, Weights weights) const;
  void make_again(int layer, const Pass<T>& pass, const LayerTape<T>& tape) const;
  void mlp_backward(int layer, const Pass<T>& pass, const LayerTape<T>& tape,
                    const WeightInputs<T>& later, Weights weights) const;
  void attention_backward(int layer, const Pass<T>& pass, const LayerTape<T>& tape,
                          const WeightInputs<T>& later, Weights weights) const;
  struct ColumnParallel {
    const T* dy;  ///< [rows, width]
    std::int64_t width;
    const T* weight;
  };
  /// Back through a column-parallel matrix and the norm before it, of x, to the running gradient.
  void leave_backward(const ColumnParallel& from, const T* x, std::int64_t norm,
                      std::int64_t norm_bias, const Pass<T>& pass) const;
  /// `whole`: all rows of the gradient. The normed input is in work.normed.
  void mlp_weights(int layer, const Pass<T>& pass, const T* gradient, const T* whole,
                   const T* activated, const T* up_gradient) const;
  void attention_weights(int layer, const Pass<T>& pass, const T* gradient, const T* whole,
                         const T* attended, const T* qkv_gradient) const;

  // chunk_ends.cpp
  [[nodiscard]] int first_position() const;
  void embed(const Pass<T>& pass) const;
  void embed_backward(const Pass<T>& pass) const;
  const T* head(const Pass<T>& pass) const;
  void make_logits(const T* in, std::int64_t count, const Pass<T>& pass, T* logits) const;
  void loss_forward(const Pass<T>& pass, const SumBefore<T>& left) const;
  [[nodiscard]] Logits<T> logits_of(std::int64_t row, std::int64_t count,
                                    const Pass<T>& pass) const;
  void loss_backward(const Pass<T>& pass) const;

  Kernels<T>& k_;
  ChunkLayout<T> layout_;
  RotaryFrequencies rotary_;  ///< empty without rotary positions
  Communicator* tp_;
  Communicator* kv_;
};

}  // namespace echelon
