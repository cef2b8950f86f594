// Kernels of the CPU backend. Plain functions over rows of numbers; T: double, float, Bfloat16.
// Layout and arithmetic are those of runtime/backend/kernels.hpp.
// Kernels use the threads that omp_get_max_threads() allows the calling thread, and give the same
// bits for the same number of threads.
#pragma once

#include <cstdint>

#include "core/model/model.hpp"
#include "runtime/backend/kernel_shapes.hpp"
#include "runtime/backend/optimizer.hpp"
#include "runtime/comm/element.hpp"

namespace echelon::cpu {

// ---- GEMM (gemm.cpp): oneDNN, or Eigen without it

enum class Order { plain, transposed };
/// out[m, n] (+)= op(a)[m, k] · op(b)[k, n]. `lda` is the row stride of a in memory.
/// Out: T or Wide<T>.
template <class T, class Out>
void gemm(Order a_order, Order b_order, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, Out* out, std::int64_t ldc, bool add);

// ---- Norms over rows of `width` numbers

/// mean and rstd: one Wide<T> per row, kept for the backward. `residual_gradient`: null, or added
/// to dx.
template <class T>
void layer_norm_forward(const T* x, const SumBefore<T>& before, const T* weight, const T* bias,
                        T* y, Wide<T>* mean, Wide<T>* rstd, std::int64_t rows, std::int64_t width,
                        double eps);
template <class T>
void layer_norm_backward(const T* dy, const T* x, const T* weight, const Wide<T>* mean,
                         const Wide<T>* rstd, const T* residual_gradient, T* dx, Wide<T>* dweight,
                         Wide<T>* dbias, std::int64_t rows, std::int64_t width);
template <class T>
void rms_norm_forward(const T* x, const SumBefore<T>& before, const T* weight, T* y, Wide<T>* rstd,
                      std::int64_t rows, std::int64_t width, double eps);
template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* weight, const Wide<T>* rstd,
                       const T* residual_gradient, T* dx, Wide<T>* dweight, std::int64_t rows,
                       std::int64_t width);

/// RMS norms of the q and k heads, and a copy of v, to other memory; x: rows of a.qkv_stride.
template <class T>
void normalize_heads(const AttentionShape& a, const HeadNorms<T>& norms, const T* x, T* y);
/// In place: `gradient` of the result becomes that of x.
template <class T>
void normalize_heads_backward(const AttentionShape& a, const HeadNorms<T>& norms, const T* x,
                              T* gradient, Wide<T>* dq_weight, Wide<T>* dk_weight);

// ---- Element-wise

/// gelu: the tanh form (GPT-2's gelu_new); silu, relu, squared_relu.
template <class T>
void activation_forward(Activation kind, const T* x, T* y, std::int64_t count);
/// y: the activation again, unless it is null; likewise of gated_backward.
template <class T>
void activation_backward(Activation kind, const T* x, const T* dy, T* dx, T* y, std::int64_t count);
/// x: rows of [gate | up], each `width` wide; y = act(gate) · up, rows of `width`.
template <class T>
void gated_forward(Activation kind, const T* x, T* y, std::int64_t rows, std::int64_t width);
template <class T>
void gated_backward(Activation kind, const T* x, const T* dy, T* dx, T* y, std::int64_t rows,
                    std::int64_t width);
template <class T>
void add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width);
template <class T>
void bias_gradient(const T* dy, Wide<T>* dbias, std::int64_t rows, std::int64_t width);
/// x += y.
template <class T>
void add(T* x, const T* y, std::int64_t count);
template <class T>
void scale(T* x, double factor, std::int64_t count);
template <class To, class From>
void cast(const From* from, To* to, std::int64_t count);

// ---- Positions

/// Rotary embedding in the half-split form (HuggingFace's rotate_half), in place, on `heads` heads
/// of `head_dim` at the start of each row: of each head as many pairs as there are frequencies. Row
/// r is position first_position + r / samples. direction +1 forward, -1 backward.
template <class T>
void rotate(T* x, std::int64_t rows, std::int64_t row_stride, int samples, int heads, int head_dim,
            std::int64_t first_position, const RotaryFrequencies& frequencies, int direction);

/// [parts, rows, width / parts] from rows of all heads, and back.
template <class T>
void split_heads(const HeadSplit& split, const T* x, T* parts);
template <class T>
void join_heads(const HeadSplit& split, const T* parts, T* x);

// ---- Latent attention (norms.cpp, latent.cpp)

template <class T>
void normalize_latents(const LatentShape& shape, const LatentNorms<T>& norms, const T* latents,
                       T* q, T* kv);
template <class T>
void normalize_latents_backward(const LatentShape& shape, const LatentNorms<T>& norms,
                                const T* latents, const T* q, const T* kv, T* dlatents,
                                Wide<T>* dq_weight, Wide<T>* dkv_weight);
template <class T>
void join_latent_heads(const LatentShape& shape, const RotaryFrequencies& frequencies, const T* q,
                       const T* kv, const T* latents, T* qkv);
template <class T>
void split_latent_heads(const LatentShape& shape, const RotaryFrequencies& frequencies,
                        const T* dqkv, T* dq, T* dkv, T* dlatents);

// ---- Attention: causal, softmax(factor·q·kᵀ/√d), no sequence × sequence matrix is kept

/// log_sum: per (sample, head, position), kept for the backward.
template <class T>
void attention_forward(const AttentionShape& shape, const T* qkv, T* out, Wide<T>* log_sum);
/// dqkv is overwritten.
template <class T>
void attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                        const Wide<T>* log_sum, const T* dout, T* dqkv);
/// As in operators.def.
template <class T>
void attention_block_forward(const AttentionShape& shape, const AttentionBlock& block, const T* qkv,
                             const T* keys, Wide<T>* out, Wide<T>* log_sum);
template <class T>
void attention_block_backward(const AttentionShape& shape, const AttentionBlock& block,
                              const T* qkv, const T* keys, const T* out, const Wide<T>* log_sum,
                              const T* dout, T* dqkv, T* dkeys);

// ---- Experts (experts.cpp)

/// All of `routing` is written. NaN is larger than nothing; a row of them visits the first experts.
template <class T>
void route(const Router& router, const T* logits, const T* bias, const Routing<T>& routing);
template <class T>
void route_backward(const Router& router, const T* logits, const Routing<T>& routing,
                    const Wide<T>* dweights, T* dlogits);
template <class T>
void gather_rows(const T* x, const std::int32_t* rows, std::int64_t count, std::int64_t width,
                 T* y);
template <class T>
void combine_rows(const T* x, const std::int32_t* slots, std::int64_t rows, int choices,
                  std::int64_t width, const T* addend, T* y);
template <class T>
void weight_rows(T* x, const Wide<T>* weights, std::int64_t rows, std::int64_t width);
template <class T>
void weight_rows_backward(T* x, T* dy, const Wide<T>* weights, Wide<T>* dweights, std::int64_t rows,
                          std::int64_t width);
template <class T>
void gate_forward(const T* logits, Wide<T>* weights, std::int64_t count);
template <class T>
void gate_backward(const Wide<T>* weights, const Wide<T>* dweights, T* dlogits, std::int64_t count);

// ---- Embedding and loss, for the part [first, first + count) of the vocabulary

/// y[row] = weight[token − first], or zero for tokens of other parts.
template <class T>
void embedding_forward(const std::int32_t* tokens, const T* weight, T* y, std::int64_t rows,
                       std::int64_t width, std::int64_t first, std::int64_t count);
/// Deterministic for any number of threads.
template <class T>
void embedding_backward(const std::int32_t* tokens, const T* dy, Wide<T>* dweight,
                        std::int64_t rows, std::int64_t width, std::int64_t first,
                        std::int64_t count);
/// Largest logit of each row; columns from `valid` on are padding and skipped everywhere.
template <class T>
void logits_max(const T* logits, Wide<T>* max, std::int64_t rows, std::int64_t columns,
                std::int64_t valid);
/// sums[2·row] = Σ exp(logit − max), sums[2·row + 1] = the target's logit, 0 if it is in another
/// part.
template <class T>
void logits_sums(const T* logits, const std::int32_t* targets, const Wide<T>* max, Wide<T>* sums,
                 std::int64_t rows, std::int64_t columns, std::int64_t valid, std::int64_t first);
/// In place: logits become scale · (softmax − 1[target]); zero in padded columns.
template <class T>
void logits_gradient(T* logits, const std::int32_t* targets, const Wide<T>* max,
                     const Wide<T>* sums, std::int64_t rows, std::int64_t columns,
                     std::int64_t valid, std::int64_t first, double scale);

// ---- Optimizer

/// `master` may be the weights themselves (T = Wide<T>); `weights` is written, rounded, if they
/// differ. Source: Adam (arXiv 1412.6980) algorithm 1, AdamW (arXiv 1711.05101) algorithm 2.
template <class T>
void adam(const AdamStep& step, const Wide<T>* gradient, Wide<T>* master, Wide<T>* m, Wide<T>* v,
          T* weights, std::int64_t count);
/// In double, in a fixed order for any number of threads.
template <class W>
[[nodiscard]] double sum_of_squares(const W* x, std::int64_t count);

}  // namespace echelon::cpu
