// Over 400 lines because it is one list: the kernels of every operator.
#include "runtime/cuda/queue/cuda_kernels.hpp"

#include <bit>

#include "core/base/expects.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/kernels/kernels.hpp"

namespace echelon::cuda {
namespace {

int alignment_of(std::initializer_list<const void*> pointers) {
  std::uintptr_t all = 16;
  for (const void* each : pointers) all |= reinterpret_cast<std::uintptr_t>(each);
  return 1 << std::countr_zero(all);
}

}  // namespace

template <class E>
E* CudaKernels::scratch(std::int64_t count) const {
  EXPECTS(count * static_cast<std::int64_t>(sizeof(E)) <= scratch_bytes_,
          "kernels fit the prepared scratch memory");
  return reinterpret_cast<E*>(scratch_);
}

// ---- Memory

void CudaKernels::clear(void* block, std::int64_t bytes) {
  enqueue(
      [&](cudaStream_t on) {
        check(cudaMemsetAsync(block, 0, static_cast<std::size_t>(bytes), on), "clear memory");
      },
      block, bytes);
}

void CudaKernels::copy_bytes(const void* from, void* to, std::int64_t bytes) {
  enqueue(
      [&](cudaStream_t on) {
        check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                              on),
              "copy memory");
      },
      from, to, bytes);
}

// ---- Products

void CudaKernels::product(Product p, const Operands& o) {
  p.bias = o.bias != nullptr;
  p.addend = o.addend != nullptr;
  p.alignment = alignment_of({o.a, o.b, o.d, o.addend, o.bias});
  enqueue([&](cudaStream_t on) { gemm_.run(p, o, on); }, p.m, p.n, p.k, p.a_transposed,
          p.b_transposed, o.a, o.b, o.d, o.bias, o.addend);
}

void CudaKernels::multiply(Rows<T> x, const T* weight, std::int64_t out, const T* bias,
                           const T* addend, T* y) {
  product(forward_product(x.rows, x.width, out), {weight, x.data, y, bias, addend});
}

void CudaKernels::multiply_back(Rows<T> dy, const T* weight, std::int64_t in, T* dx) {
  product(input_product(dy.rows, in, dy.width), {weight, dy.data, dx, nullptr, nullptr});
}

void CudaKernels::add_input_gradient(Rows<T> dy, const T* weight, std::int64_t in, T* dx) {
  product(input_product(dy.rows, in, dy.width), {weight, dy.data, dx, nullptr, dx});
}

void CudaKernels::add_weight_gradient(Rows<T> dy, Rows<T> x, float* dweight) {
  product(weight_product(x.rows, x.width, dy.width), {x.data, dy.data, dweight, nullptr, dweight});
}

// ---- Our own kernels

void CudaKernels::norm_forward(const NormOf<T>& n, const SumBefore<T>& before, T* y) {
  enqueue(
      [&](cudaStream_t on) {
        if (n.kind == Normalization::layer_norm) {
          layer_norm_forward<T>(on, n.x, before, n.weight, n.bias, y, n.mean, n.rstd, n.rows,
                                n.width, n.eps);
        } else {
          rms_norm_forward<T>(on, n.x, before, n.weight, y, n.rstd, n.rows, n.width, n.eps);
        }
      },
      n, before, y);
}

void CudaKernels::norm_backward(const NormOf<T>& n, const T* dy, const T* residual_gradient, T* dx,
                                float* dweight, float* dbias) {
  enqueue(
      [&](cudaStream_t on) {
        auto* const workspace = scratch<float>(norm_backward_workspace(n.rows, n.width));
        if (n.kind == Normalization::layer_norm) {
          layer_norm_backward<T>(on, dy, n.x, n.weight, n.mean, n.rstd, residual_gradient, dx,
                                 dweight, dbias, workspace, n.rows, n.width);
        } else {
          rms_norm_backward<T>(on, dy, n.x, n.weight, n.rstd, residual_gradient, dx, dweight,
                               workspace, n.rows, n.width);
        }
      },
      n, dy, residual_gradient, dx, dweight, dbias);
}

void CudaKernels::activation_forward(Activation kind, bool gated, const T* x, T* y,
                                     std::int64_t rows, std::int64_t width) {
  enqueue(
      [&](cudaStream_t on) {
        if (gated) {
          cuda::gated_forward<T>(on, kind, x, y, rows, width);
        } else {
          cuda::activation_forward<T>(on, kind, x, y, rows * width);
        }
      },
      kind, gated, x, y, rows, width);
}

void CudaKernels::activation_backward(Activation kind, bool gated, const T* x, const T* dy, T* dx,
                                      T* y, std::int64_t rows, std::int64_t width) {
  enqueue(
      [&](cudaStream_t on) {
        if (gated) {
          cuda::gated_backward<T>(on, kind, x, dy, dx, y, rows, width);
        } else {
          cuda::activation_backward<T>(on, kind, x, dy, dx, y, rows * width);
        }
      },
      kind, gated, x, dy, dx, y, rows, width);
}

void CudaKernels::add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width) {
  enqueue([&](cudaStream_t on) { cuda::add_bias<T>(on, x, bias, rows, width); }, x, bias, rows,
          width);
}

void CudaKernels::bias_gradient(Rows<T> dy, float* dbias) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::bias_gradient<T>(on, dy.data, dbias,
                               scratch<float>(bias_gradient_workspace(dy.rows, dy.width)), dy.rows,
                               dy.width);
      },
      dy, dbias);
}

void CudaKernels::scale(T* x, double factor, std::int64_t count) {
  enqueue([&](cudaStream_t on) { cuda::scale<T>(on, x, factor, count); }, x, factor, count);
}

void CudaKernels::add(T* x, const T* y, std::int64_t count) {
  enqueue([&](cudaStream_t on) { cuda::add<T>(on, x, y, count); }, x, y, count);
}

void CudaKernels::copy(const T* from, T* to, std::int64_t count) {
  copy_bytes(from, to, count * static_cast<std::int64_t>(sizeof(T)));
}

void CudaKernels::copy_pieces(const Pieces& pieces, const T* from, T* to) {
  enqueue([&](cudaStream_t on) { cuda::copy_pieces<T>(on, pieces, from, to); }, pieces, from, to);
}

void CudaKernels::add_positions(T* x, const T* positions, std::int64_t rows, int samples,
                                std::int64_t width) {
  enqueue([&](cudaStream_t on) { cuda::add_positions<T>(on, x, positions, rows, samples, width); },
          x, positions, rows, samples, width);
}

void CudaKernels::position_gradient(Rows<T> dy, int samples, float* dpositions) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::position_gradient<T>(on, dy.data, dpositions, dy.rows, samples, dy.width);
      },
      dy, samples, dpositions);
}

void CudaKernels::normalize_heads(const AttentionShape& s, const HeadNorms<T>& norms, const T* qkv,
                                  T* to) {
  enqueue([&](cudaStream_t on) { cuda::normalize_heads<T>(on, s, norms, qkv, to); }, s, norms, qkv,
          to);
}

void CudaKernels::normalize_heads_backward(const AttentionShape& s, const HeadNorms<T>& norms,
                                           const T* qkv, T* gradient, float* dq_weight,
                                           float* dk_weight) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::normalize_heads_backward<T>(on, s, norms, qkv, gradient, dq_weight, dk_weight,
                                          scratch<float>(head_norms_workspace(s)));
      },
      s, norms, qkv, gradient, dq_weight, dk_weight);
}

const float* CudaKernels::rotation(int width, const RotaryFrequencies& frequencies) const {
  const Rotation& rotation = rotations_.at(width);
  EXPECTS(rotation.frequencies == frequencies, "a table of different angles");
  return rotation.table;
}

void CudaKernels::rotate(const AttentionShape& s, const RotaryFrequencies& frequencies,
                         std::int64_t first_position, T* qkv, int direction) {
  const float* const table =
      rotation(s.head_dim, frequencies) + first_position * 2 * std::ssize(frequencies.angles);
  enqueue(
      [&](cudaStream_t on) {
        cuda::rotate<T>(on, qkv, table, s.sequence * s.samples, s.qkv_stride, s.samples,
                        s.heads + s.kv_heads, s.head_dim,
                        static_cast<int>(frequencies.angles.size()), direction);
      },
      s, first_position, qkv, direction);
}

void CudaKernels::normalize_latents(const LatentShape& s, const LatentNorms<T>& norms,
                                    const T* latents, T* q, T* kv) {
  enqueue([&](cudaStream_t on) { cuda::normalize_latents<T>(on, s, norms, latents, q, kv); }, s,
          norms, latents, q, kv);
}

void CudaKernels::normalize_latents_backward(const LatentShape& s, const LatentNorms<T>& norms,
                                             const T* latents, const T* q, const T* kv, T* dlatents,
                                             float* dq_weight, float* dkv_weight) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::normalize_latents_backward<T>(on, s, norms, latents, q, kv, dlatents, dq_weight,
                                            dkv_weight, scratch<float>(latent_norms_workspace(s)));
      },
      s, norms, latents, q, kv, dlatents, dq_weight, dkv_weight);
}

void CudaKernels::join_latent_heads(const LatentShape& s, const RotaryFrequencies& frequencies,
                                    const T* q, const T* kv, const T* latents, T* qkv) {
  const float* const table = rotation(s.rope, frequencies);
  enqueue([&](cudaStream_t on) { cuda::join_latent_heads<T>(on, s, table, q, kv, latents, qkv); },
          s, q, kv, latents, qkv);
}

void CudaKernels::split_latent_heads(const LatentShape& s, const RotaryFrequencies& frequencies,
                                     const T* dqkv, T* dq, T* dkv, T* dlatents) {
  const float* const table = rotation(s.rope, frequencies);
  enqueue(
      [&](cudaStream_t on) { cuda::split_latent_heads<T>(on, s, table, dqkv, dq, dkv, dlatents); },
      s, dqkv, dq, dkv, dlatents);
}

void CudaKernels::split_heads(const HeadSplit& split, const T* x, T* parts) {
  enqueue([&](cudaStream_t on) { cuda::split_heads<T>(on, split, x, parts); }, split, x, parts);
}

void CudaKernels::join_heads(const HeadSplit& split, const T* parts, T* x) {
  enqueue([&](cudaStream_t on) { cuda::join_heads<T>(on, split, parts, x); }, split, parts, x);
}

void CudaKernels::attention_forward(const AttentionShape& shape, const T* qkv, T* out,
                                    float* log_sum) {
  enqueue(
      [&](cudaStream_t on) {
        attention_.forward(on, shape, qkv, out, log_sum,
                           scratch<std::byte>(attention_.workspace(shape)));
      },
      shape, qkv, out, log_sum);
}

void CudaKernels::attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                                     const float* log_sum, const T* dout, T* dqkv) {
  enqueue(
      [&](cudaStream_t on) {
        attention_.backward(on, shape, qkv, out, log_sum, dout, dqkv,
                            scratch<std::byte>(attention_.workspace(shape)));
      },
      shape, qkv, out, log_sum, dout, dqkv);
}

void CudaKernels::attention_block_forward(const AttentionShape& shape, const AttentionBlock& block,
                                          const T* qkv, const T* keys, float* out, float* log_sum) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::attention_block_forward(on, shape, block, qkv, keys, out, log_sum);
      },
      shape, block, qkv, keys, out, log_sum);
}

void CudaKernels::attention_block_backward(const AttentionShape& shape, const AttentionBlock& block,
                                           const T* qkv, const T* keys, const T* out,
                                           const float* log_sum, const T* dout, T* dqkv, T* dkeys) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::attention_block_backward(on, shape, block, qkv, keys, out, log_sum, dout, dqkv, dkeys,
                                       scratch<float>(attention_backward_workspace(shape)));
      },
      shape, block, qkv, keys, out, log_sum, dout, dqkv, dkeys);
}

void CudaKernels::route(const Router& router, const T* logits, const T* bias,
                        const Routing<T>& routing) {
  enqueue([&](cudaStream_t on) { cuda::route<T>(on, router, logits, bias, routing); }, router,
          logits, bias, routing);
}

void CudaKernels::route_backward(const Router& router, const T* logits, const Routing<T>& routing,
                                 const float* dweights, T* dlogits) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::route_backward<T>(on, router, logits, routing, dweights, dlogits);
      },
      router, logits, routing, dweights, dlogits);
}

void CudaKernels::gather_rows(const T* x, const std::int32_t* rows, std::int64_t count,
                              std::int64_t width, T* y) {
  enqueue([&](cudaStream_t on) { cuda::gather_rows<T>(on, x, rows, count, width, y); }, x, rows,
          count, width, y);
}

void CudaKernels::combine_rows(const T* x, const std::int32_t* slots, std::int64_t rows,
                               int choices, std::int64_t width, const T* addend, T* y) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::combine_rows<T>(on, x, slots, rows, choices, width, addend, y);
      },
      x, slots, rows, choices, width, addend, y);
}

void CudaKernels::weight_rows(T* x, const float* weights, std::int64_t rows, std::int64_t width) {
  enqueue([&](cudaStream_t on) { cuda::weight_rows<T>(on, x, weights, rows, width); }, x, weights,
          rows, width);
}

void CudaKernels::weight_rows_backward(T* x, T* dy, const float* weights, float* dweights,
                                       std::int64_t rows, std::int64_t width) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::weight_rows_backward<T>(on, x, dy, weights, dweights, rows, width);
      },
      x, dy, weights, dweights, rows, width);
}

void CudaKernels::gate_forward(const T* logits, float* weights, std::int64_t count) {
  enqueue([&](cudaStream_t on) { cuda::gate_forward<T>(on, logits, weights, count); }, logits,
          weights, count);
}

void CudaKernels::gate_backward(const float* weights, const float* dweights, T* dlogits,
                                std::int64_t count) {
  enqueue([&](cudaStream_t on) { cuda::gate_backward<T>(on, weights, dweights, dlogits, count); },
          weights, dweights, dlogits, count);
}

void CudaKernels::embedding_forward(const std::int32_t* tokens, const T* weight, T* y,
                                    std::int64_t rows, std::int64_t width, std::int64_t first,
                                    std::int64_t count) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::embedding_forward<T>(on, tokens, weight, y, rows, width, first, count);
      },
      tokens, weight, y, rows, width, first, count);
}

void CudaKernels::embedding_backward(const std::int32_t* tokens, Rows<T> dy, float* dweight,
                                     std::int64_t first, std::int64_t count) {
  const std::int32_t* const token_rows = processor_.token_rows(tokens);
  enqueue(
      [&](cudaStream_t on) {
        cuda::embedding_backward<T>(on, tokens, token_rows, dy.data, dweight, dy.rows, dy.width,
                                    first, count);
      },
      tokens, token_rows, dy, dweight, first, count);
}

void CudaKernels::logits_partials(const Logits<T>& l, float* max, float* sums) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::logits_partials<T>(on, l.data, l.targets, max, sums, l.rows, l.columns, l.valid,
                                 l.first);
      },
      l, max, sums);
}

void CudaKernels::rescale_sums(const float* part_max, const float* max, float* sums,
                               std::int64_t rows) {
  enqueue([&](cudaStream_t on) { cuda::rescale_sums(on, part_max, max, sums, rows); }, part_max,
          max, sums, rows);
}

void CudaKernels::add_losses(const float* max, const float* sums, double* total,
                             std::int64_t rows) {
  enqueue([&](cudaStream_t on) { cuda::add_losses(on, max, sums, total, rows); }, max, sums, total,
          rows);
}

void CudaKernels::logits_gradient(const Logits<T>& l, const float* max, const float* sums,
                                  double scale) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::logits_gradient<T>(on, l.data, l.targets, max, sums, l.rows, l.columns, l.valid,
                                 l.first, scale);
      },
      l, max, sums, scale);
}

void CudaKernels::add_gradients(float* x, const float* y, std::int64_t count) {
  enqueue([&](cudaStream_t on) { cuda::add<float>(on, x, y, count); }, x, y, count);
}

void CudaKernels::copy_wide(const float* from, float* to, std::int64_t count) {
  copy_bytes(from, to, count * static_cast<std::int64_t>(sizeof(float)));
}

void CudaKernels::copy_to_wide(const T* from, float* to, std::int64_t count) {
  enqueue([&](cudaStream_t on) { cuda::cast(on, from, to, count); }, from, to, count);
}

void CudaKernels::copy_from_wide(const float* from, T* to, std::int64_t count) {
  enqueue([&](cudaStream_t on) { cuda::cast(on, from, to, count); }, from, to, count);
}

void CudaKernels::sum_of_squares(const float* x, std::int64_t count, double* total) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::sum_of_squares(on, x, total, scratch<double>(sum_of_squares_workspace(count)), count);
      },
      x, count, total);
}

void CudaKernels::clip_scale(const double* squares, double max_norm, float* scale) {
  enqueue([&](cudaStream_t on) { cuda::clip_scale(on, squares, max_norm, scale); }, squares,
          max_norm, scale);
}

void CudaKernels::optimizer_update(const OptimizerStep& step, const float* scale,
                                   const OptimizerOperands<T>& o) {
  enqueue(
      [&](cudaStream_t on) {
        cuda::adam<T>(on, step, scale, o.gradient, o.master, o.states[0], o.states[1], o.weights,
                      o.count);
      },
      step.step);
}

}  // namespace echelon::cuda
