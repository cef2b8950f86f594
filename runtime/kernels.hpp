// Kernels: what a queue of a rank can be asked to compute, whatever computes it.
//
// Layout: a token is a row; rows are ordered [sequence][sample], so that a part of the sequence is
// a contiguous block of rows. Matrices are row-major; a weight is [out, in], y = x · Wᵀ (+ bias).
// Arithmetic is in Wide<T> (double for double, else float) and rounded once where T is stored.
// Gradients of parameters are Wide<T> and *added to*; gradients of activations are overwritten.
// Pointers are to memory of the rank's Processor.
#pragma once

#include <cstdint>

#include "core/model/model.hpp"
#include "runtime/element.hpp"
#include "runtime/kernel_shapes.hpp"
#include "runtime/stream.hpp"

namespace echelon {

/// rows × columns of T, one behind the other.
template <class T>
struct Rows {
  const T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// x of a norm, what it was normed with, and (layer norm) its bias.
template <class T>
struct NormOf {
  Normalization kind = Normalization::layer_norm;
  const T* x = nullptr;
  const T* weight = nullptr;
  const T* bias = nullptr;  ///< layer norm
  Wide<T>* mean = nullptr;  ///< [rows], layer norm; the forward writes it, the backward reads it
  Wide<T>* rstd = nullptr;  ///< [rows], the same
  std::int64_t rows = 0;
  std::int64_t width = 0;
  double eps = 0;
};

/// Logits of the part [first, first + valid) of the vocabulary; columns from `valid` on are padding
/// and skipped everywhere.
template <class T>
struct Logits {
  T* data = nullptr;  ///< [rows, columns]
  const std::int32_t* targets = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t valid = 0;
  std::int64_t first = 0;
};

/// Own part of a region's parameters and what the optimizer keeps of them.
template <class T>
struct Adam {
  const Wide<T>* gradient = nullptr;
  Wide<T>* master = nullptr;  ///< may be the weights themselves (T = Wide<T>)
  Wide<T>* first_moment = nullptr;
  Wide<T>* second_moment = nullptr;
  T* weights = nullptr;  ///< written, rounded, where they are not the masters
  std::int64_t count = 0;
};

template <class T>
class Kernels : public Stream {
 public:
  // ---- The three products of a linear layer y = x·Wᵀ, W: [out, in]

  /// y = x·Wᵀ, + bias where there is one, + addend where there is one, which is other memory.
  virtual void multiply(Rows<T> x, const T* weight, std::int64_t out, const T* bias,
                        const T* addend, T* y) = 0;
  /// dx = dy·W, W: [dy.width, in].
  virtual void multiply_back(Rows<T> dy, const T* weight, std::int64_t in, T* dx) = 0;
  /// dW += dyᵀ·x, as many rows of both.
  virtual void add_weight_gradient(Rows<T> dy, Rows<T> x, Wide<T>* dweight) = 0;

  // ---- Norms over rows

  virtual void norm_forward(const NormOf<T>& norm, const SumBefore<T>& before, T* y) = 0;
  /// dx = the gradient of x, + `around` where that is given, which may be dx: the gradient that
  /// goes round the norm. dbias: layer norm.
  virtual void norm_backward(const NormOf<T>& norm, const T* dy, const T* around, T* dx,
                             Wide<T>* dweight, Wide<T>* dbias) = 0;

  // ---- Element-wise

  /// gelu: the tanh form (GPT-2's gelu_new); silu, relu, squared_relu. x: rows of `width`, or of
  /// [gate | up], each `width` wide: y = act(gate) · up.
  virtual void activation_forward(Activation kind, bool gated, const T* x, T* y, std::int64_t rows,
                                  std::int64_t width) = 0;
  virtual void activation_backward(Activation kind, bool gated, const T* x, const T* dy, T* dx,
                                   std::int64_t rows, std::int64_t width) = 0;
  virtual void add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width) = 0;
  virtual void bias_gradient(Rows<T> dy, Wide<T>* dbias) = 0;
  /// x += y.
  virtual void add(T* x, const T* y, std::int64_t count) = 0;
  virtual void copy(const T* from, T* to, std::int64_t count) = 0;

  // ---- Positions

  /// x[row] += positions[row / samples].
  virtual void add_positions(T* x, const T* positions, std::int64_t rows, int samples,
                             std::int64_t width) = 0;
  /// dpositions[p] += Σ over its samples of dy.
  virtual void position_gradient(Rows<T> dy, int samples, Wide<T>* dpositions) = 0;
  /// Rotary embedding in the half-split form (HuggingFace's rotate_half), in place, on the q and k
  /// heads at the start of each row. Row r is position r / samples. direction +1 forward, -1
  /// backward. `frequencies`: the same in every call for heads of one width.
  virtual void rotate(const AttentionShape& shape, const RotaryFrequencies& frequencies, T* qkv,
                      int direction) = 0;

  // ---- Attention: causal, softmax(q·kᵀ/√d), no sequence × sequence matrix is kept

  /// log_sum: per (sample, head, position), kept for the backward.
  virtual void attention_forward(const AttentionShape& shape, const T* qkv, T* out,
                                 Wide<T>* log_sum) = 0;
  /// dqkv is overwritten.
  virtual void attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                                  const Wide<T>* log_sum, const T* dout, T* dqkv) = 0;

  // ---- Embedding, for the part [first, first + count) of the vocabulary

  /// y[row] = weight[token − first], or zero for tokens of other parts.
  virtual void embedding_forward(const std::int32_t* tokens, const T* weight, T* y,
                                 std::int64_t rows, std::int64_t width, std::int64_t first,
                                 std::int64_t count) = 0;
  virtual void embedding_backward(const std::int32_t* tokens, Rows<T> dy, Wide<T>* dweight,
                                  std::int64_t first, std::int64_t count) = 0;

  // ---- Cross entropy. Of several parts of the vocabulary each has its sums by its own largest
  // logit; rescaled to the largest of all they add up.

  /// max[row] = the largest logit, sums[2·row] = Σ exp(logit − max), sums[2·row + 1] = the target's
  /// logit, 0 when it is of another part.
  virtual void logits_partials(const Logits<T>& logits, Wide<T>* max, Wide<T>* sums) = 0;
  /// sums[2·row] ·= exp(part_max − max).
  virtual void rescale_sums(const Wide<T>* part_max, const Wide<T>* max, Wide<T>* sums,
                            std::int64_t rows) = 0;
  /// total += Σ over rows of log(sum) + max − the target's logit.
  virtual void add_losses(const Wide<T>* max, const Wide<T>* sums, double* total,
                          std::int64_t rows) = 0;
  /// In place: logits become scale · (softmax − 1[target]); zero in padded columns.
  virtual void logits_gradient(const Logits<T>& logits, const Wide<T>* max, const Wide<T>* sums,
                               double scale) = 0;

  // ---- Gradients and optimizer

  /// x += y.
  virtual void add_gradients(Wide<T>* x, const Wide<T>* y, std::int64_t count) = 0;
  virtual void copy_wide(const Wide<T>* from, Wide<T>* to, std::int64_t count) = 0;
  virtual void widen(const T* from, Wide<T>* to, std::int64_t count) = 0;
  /// total += Σ x², in double.
  virtual void sum_of_squares(const Wide<T>* x, std::int64_t count, double* total) = 0;
  /// scale = most / (norm + 1e-6) where the norm √squares is above `most` > 0, else 1
  /// (torch.nn.utils.clip_grad_norm_); NaN where the norm is not finite.
  virtual void clip_scale(const double* squares, double most, Wide<T>* scale) = 0;
  /// Gradients are multiplied by *scale; nothing changes where that is NaN. Source: Adam (arXiv
  /// 1412.6980) algorithm 1, AdamW (arXiv 1711.05101) algorithm 2.
  virtual void adam(const AdamStep& step, const Wide<T>* scale, const Adam<T>& states) = 0;
};

}  // namespace echelon
