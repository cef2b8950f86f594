// Kernels of the CUDA backend. Names, layouts and meaning are those of runtime/cpu/kernels.hpp,
// against which tests compare them; this header documents the differences. T: float, Bfloat16;
// pointers are the device's.
//
// Every function enqueues its kernels on a stream and returns. A failed launch leaves its error for
// take_launch_error(). Workspaces are counted in floats, belong to the caller, and are free again
// when the stream has passed. Every result depends on shapes alone: the same bits on every run and
// every device, no atomics. Arithmetic is in float.
#pragma once

#include <cstdint>
#include <span>

#include "core/model/model.hpp"
#include "runtime/backend/kernel_shapes.hpp"
#include "runtime/backend/optimizer.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/element.hpp"

struct CUstream_st;

namespace echelon::cuda {

using Stream = CUstream_st*;  ///< cudaStream_t

/// Whether all pointers are aligned to 16 bytes, as vectorized accesses need.
template <class... Pointers>
[[nodiscard]] bool aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

/// Loads all kernels onto the calling thread's device. CUDA otherwise loads a kernel at its first
/// launch and may then wait for the device, on which kernels may wait for others. Source: CUDA
/// programming guide, "Lazy Loading". Failures are left for take_launch_error().
void load_kernels();

// ---- Norms, with the sum that precedes them (norms_forward.cu, norms_backward.cu)

template <class T>
void layer_norm_forward(Stream stream, const T* x, const SumBefore<T>& before, const T* weight,
                        const T* bias, T* y, float* mean, float* rstd, std::int64_t rows,
                        std::int64_t width, double eps);
template <class T>
void rms_norm_forward(Stream stream, const T* x, const SumBefore<T>& before, const T* weight, T* y,
                      float* rstd, std::int64_t rows, std::int64_t width, double eps);
[[nodiscard]] std::int64_t norm_backward_workspace(std::int64_t rows, std::int64_t width);
/// x: the norm's input. `gradient`, if given, is added to dx, and may be the same memory: the
/// residual gradient around the norm. dx may also be dy. Without dweight the norm is frozen.
template <class T>
void layer_norm_backward(Stream stream, const T* dy, const T* x, const T* weight, const float* mean,
                         const float* rstd, const T* gradient, T* dx, float* dweight, float* dbias,
                         float* workspace, std::int64_t rows, std::int64_t width);
template <class T>
void rms_norm_backward(Stream stream, const T* dy, const T* x, const T* weight, const float* rstd,
                       const T* gradient, T* dx, float* dweight, float* workspace,
                       std::int64_t rows, std::int64_t width);

// ---- Norms of heads (head_norms.cu): of up to 512 bytes each

template <class T>
void normalize_heads(Stream stream, const AttentionShape& a, const HeadNorms<T>& norms, const T* x,
                     T* y);
[[nodiscard]] std::int64_t head_norms_workspace(const AttentionShape& a);
/// `gradient` of the result becomes that of x. Without dq_weight the norms are frozen.
template <class T>
void normalize_heads_backward(Stream stream, const AttentionShape& a, const HeadNorms<T>& norms,
                              const T* x, T* gradient, float* dq_weight, float* dk_weight,
                              float* workspace);

// ---- Element-wise (elementwise.cu)

template <class T>
void activation_forward(Stream stream, Activation kind, const T* x, T* y, std::int64_t count);
/// y: the activation again, unless it is null; likewise of gated_backward.
template <class T>
void activation_backward(Stream stream, Activation kind, const T* x, const T* dy, T* dx, T* y,
                         std::int64_t count);
template <class T>
void gated_forward(Stream stream, Activation kind, const T* x, T* y, std::int64_t rows,
                   std::int64_t width);
template <class T>
void gated_backward(Stream stream, Activation kind, const T* x, const T* dy, T* dx, T* y,
                    std::int64_t rows, std::int64_t width);
template <class T>
void scale(Stream stream, T* x, double factor, std::int64_t count);
template <class T>
void add(Stream stream, T* x, const T* y, std::int64_t count);
template <class To, class From>
void cast(Stream stream, const From* from, To* to, std::int64_t count);

// ---- Biases and learned positions (bias.cu)

template <class T>
void add_bias(Stream stream, T* x, const T* bias, std::int64_t rows, std::int64_t width);
[[nodiscard]] std::int64_t bias_gradient_workspace(std::int64_t rows, std::int64_t width);
template <class T>
void bias_gradient(Stream stream, const T* dy, float* dbias, float* workspace, std::int64_t rows,
                   std::int64_t width);
/// x[row] += positions[row / samples].
template <class T>
void add_positions(Stream stream, T* x, const T* positions, std::int64_t rows, int samples,
                   std::int64_t width);
/// dpositions[p] += Σ over its samples of dy.
template <class T>
void position_gradient(Stream stream, const T* dy, float* dpositions, std::int64_t rows,
                       int samples, std::int64_t width);

// ---- Rotary positions (rotate.cu)

/// table[p, i] = cos and sin of (first_position + p) · angle i, times the scale, of at most
/// kMaxPairs pairs: positions · 2 · pairs floats, computed in double.
inline constexpr int kMaxPairs = 128;
void rotation_table(Stream stream, float* table, std::int64_t positions,
                    std::int64_t first_position, const RotaryFrequencies& frequencies);
/// Row r is at position r / samples of the table, which has so many pairs of each head.
template <class T>
void rotate(Stream stream, T* x, const float* table, std::int64_t rows, std::int64_t row_stride,
            int samples, int heads, int head_dim, int pairs, int direction);

// ---- Latent attention (latent_norms.cu, latent_heads.cu)

template <class T>
void normalize_latents(Stream stream, const LatentShape& shape, const LatentNorms<T>& norms,
                       const T* latents, T* q, T* kv);
[[nodiscard]] std::int64_t latent_norms_workspace(const LatentShape& shape);
template <class T>
void normalize_latents_backward(Stream stream, const LatentShape& shape,
                                const LatentNorms<T>& norms, const T* latents, const T* q,
                                const T* kv, T* dlatents, float* dq_weight, float* dkv_weight,
                                float* workspace);
/// `table`: of the rotary part (rotation_table), from position 0 on.
template <class T>
void join_latent_heads(Stream stream, const LatentShape& shape, const float* table, const T* q,
                       const T* kv, const T* latents, T* qkv);
template <class T>
void split_latent_heads(Stream stream, const LatentShape& shape, const float* table, const T* dqkv,
                        T* dq, T* dkv, T* dlatents);

// ---- Heads split among ranks, keys passed between them (head_split.cu)

/// [parts, rows, width / parts] from rows of all heads, and back.
template <class T>
void split_heads(Stream stream, const HeadSplit& split, const T* x, T* parts);
template <class T>
void join_heads(Stream stream, const HeadSplit& split, const T* parts, T* x);
template <class T>
void copy_pieces(Stream stream, const Pieces& pieces, const T* from, T* to);

// ---- Attention (attention_forward.cu, attention_backward.cu)

/// Widths of a head, of queries and keys and of values.
[[nodiscard]] constexpr bool attention_takes(int head_dim, int value_dim) {
  return head_dim == value_dim ? head_dim == 64 || head_dim == 128
                               : head_dim == 192 && value_dim == 128;
}
/// Products of bf16 numbers, summed in float; probabilities are rounded to bf16 before they are
/// multiplied with values.
void attention_forward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                       Bfloat16* out, float* log_sum);
/// Bytes of shared memory that a block of any of its kernels takes.
[[nodiscard]] std::int64_t attention_shared_memory(const AttentionShape& shape);
[[nodiscard]] std::int64_t attention_backward_workspace(const AttentionShape& shape);
void attention_backward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                        const Bfloat16* out, const float* log_sum, const Bfloat16* dout,
                        Bfloat16* dqkv, float* workspace);
/// As in operators.def; the workspace of the backward is attention_backward's.
void attention_block_forward(Stream stream, const AttentionShape& shape,
                             const AttentionBlock& block, const Bfloat16* qkv, const Bfloat16* keys,
                             float* out, float* log_sum);
void attention_block_backward(Stream stream, const AttentionShape& shape,
                              const AttentionBlock& block, const Bfloat16* qkv,
                              const Bfloat16* keys, const Bfloat16* out, const float* log_sum,
                              const Bfloat16* dout, Bfloat16* dqkv, Bfloat16* dkeys,
                              float* workspace);

// ---- Experts (experts.cu)

template <class T>
void route(Stream stream, const Router& router, const T* logits, const T* bias,
           const Routing<T>& routing);
template <class T>
void route_backward(Stream stream, const Router& router, const T* logits, const Routing<T>& routing,
                    const float* dweights, T* dlogits);
template <class T>
void gather_rows(Stream stream, const T* x, const std::int32_t* rows, std::int64_t count,
                 std::int64_t width, T* y);
template <class T>
void combine_rows(Stream stream, const T* x, const std::int32_t* slots, std::int64_t rows,
                  int choices, std::int64_t width, const T* addend, T* y);
template <class T>
void weight_rows(Stream stream, T* x, const float* weights, std::int64_t rows, std::int64_t width);
template <class T>
void weight_rows_backward(Stream stream, T* x, T* dy, const float* weights, float* dweights,
                          std::int64_t rows, std::int64_t width);
template <class T>
void gate_forward(Stream stream, const T* logits, float* weights, std::int64_t count);
template <class T>
void gate_backward(Stream stream, const float* weights, const float* dweights, T* dlogits,
                   std::int64_t count);

// ---- Embedding and loss, for the part [first, first + count) of the vocabulary (embedding.cu,
// loss.cu)

template <class T>
void embedding_forward(Stream stream, const std::int32_t* tokens, const T* weight, T* y,
                       std::int64_t rows, std::int64_t width, std::int64_t first,
                       std::int64_t count);
/// `token_rows`: of the tokens (TokenRows::group). Rows of one token are added eight at a time.
template <class T>
void embedding_backward(Stream stream, const std::int32_t* tokens, const std::int32_t* token_rows,
                        const T* dy, float* dweight, std::int64_t rows, std::int64_t width,
                        std::int64_t first, std::int64_t count);

/// The CPU's logits_max and logits_sums in one pass: the sums are those of this part's own max.
/// With more parts than one: the largest max of all, rescale_sums, and the sums' sum over the
/// parts.
template <class T>
void logits_partials(Stream stream, const T* logits, const std::int32_t* targets, float* max,
                     float* sums, std::int64_t rows, std::int64_t columns, std::int64_t valid,
                     std::int64_t first);
/// sums[2·row] ·= exp(part_max − max).
void rescale_sums(Stream stream, const float* part_max, const float* max, float* sums,
                  std::int64_t rows);
/// total += Σ over rows of log(sum) + max − the target's logit.
void add_losses(Stream stream, const float* max, const float* sums, double* total,
                std::int64_t rows);
template <class T>
void logits_gradient(Stream stream, T* logits, const std::int32_t* targets, const float* max,
                     const float* sums, std::int64_t rows, std::int64_t columns, std::int64_t valid,
                     std::int64_t first, double scale);

// ---- Optimizer (optimizer.cu)

/// Gradients are also multiplied by *gradient_scale, if that is not null: the result of clip_scale,
/// which the host need not wait for. Nothing changes if it is NaN.
template <class T>
void adam(Stream stream, const AdamStep& step, const float* gradient_scale, const float* gradient,
          float* master, float* m, float* v, T* weights, std::int64_t count);
/// In doubles.
[[nodiscard]] std::int64_t sum_of_squares_workspace(std::int64_t count);
/// total += Σ x².
void sum_of_squares(Stream stream, const float* x, double* total, double* workspace,
                    std::int64_t count);
/// scale = max_norm / (norm + 1e-6) if the norm √squares is above `max_norm` > 0, else 1; NaN if
/// the norm is not finite.
void clip_scale(Stream stream, const double* squares, double max_norm, float* scale);

// ---- Over the memory of ranks that share a GPU (reduce.cu)

inline constexpr int kMaxMembers = 64;  ///< the limit of a launch's arguments
/// As in runtime/comm/ordered_reduction.hpp, with the same bits (except for the payload of NaN).
void reduce_in_order(Stream stream, std::span<const void* const> in, std::int64_t in_at,
                     std::span<void* const> out, std::int64_t out_at, std::int64_t count,
                     Element element, Reduction how);
/// Each of `to` gets a copy. One of them may be `from`; otherwise they do not overlap.
void copy_to_all(Stream stream, const void* from, std::span<void* const> to, std::int64_t bytes);

}  // namespace echelon::cuda
