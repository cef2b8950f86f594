// Over 400 lines because every operator has its call here.
#include "runtime/cpu/cpu_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "runtime/cpu/core_wait.hpp"
#include "runtime/cpu/kernels.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {

template <class T>
void CpuKernels<T>::begin(const Instruction&) {
  within_ = {};
  without_core_ = cpu::waited_for_core();
}

template <class T>
WithinTimes CpuKernels<T>::end(const Instruction& i) {
  if (i.queue == Queue::compute)
    at(Within::kernels_without_core) = cpu::waited_for_core() - without_core_;
  return std::exchange(within_, {});
}

template <class T>
void CpuKernels<T>::start(Within part) {
  open_.push_back({part, steady_now(), cpu::waited_for_core(), {}, {}});
}

template <class T>
void CpuKernels<T>::stop() {
  const SubSpan sub_spans = open_.back();
  open_.pop_back();
  const Seconds all = steady_now() - sub_spans.since;
  at(sub_spans.part) += all - sub_spans.nested;
  if (!open_.empty()) open_.back().nested += all;
  const PassComm* const comm = pass_comm(sub_spans.part);
  if (comm == nullptr) return;
  const Seconds without = cpu::waited_for_core() - sub_spans.without_core;
  without_core_ += without;
  at(comm->without_core) += std::max(Seconds{}, std::min(without, all - sub_spans.peers));
}

template <class T>
void CpuKernels<T>::waited(std::optional<Within> part, Seconds time) {
  if (time <= Seconds{}) return;
  if (!part) {
    open_.back().peers += time;
    const PassComm* const comm = pass_comm(open_.back().part);
    if (comm == nullptr) return;
    part = comm->peers;
  }
  at(*part) += time;
}

template <class T>
void CpuKernels<T>::upload(const void* from, void* to, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

template <class T>
void CpuKernels<T>::download(const void* from, void* to, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

template <class T>
void CpuKernels<T>::clear(void* block, std::int64_t bytes) {
  std::memset(block, 0, static_cast<std::size_t>(bytes));
}

template <class T>
void CpuKernels<T>::multiply(Rows<T> x, const T* weight, std::int64_t out, const T* bias,
                             const T* addend, T* y) {
  using cpu::Order;
  cpu::gemm(Order::plain, Order::transposed, x.rows, out, x.width, x.data, x.width, weight, x.width,
            y, out, addend == y);
  if (bias != nullptr) cpu::add_bias(y, bias, x.rows, out);
  if (addend != nullptr && addend != y) cpu::add(y, addend, x.rows * out);
}

template <class T>
void CpuKernels<T>::multiply_back(Rows<T> dy, const T* weight, std::int64_t in, T* dx) {
  using cpu::Order;
  cpu::gemm(Order::plain, Order::plain, dy.rows, in, dy.width, dy.data, dy.width, weight, in, dx,
            in, false);
}

template <class T>
void CpuKernels<T>::add_input_gradient(Rows<T> dy, const T* weight, std::int64_t in, T* dx) {
  using cpu::Order;
  cpu::gemm(Order::plain, Order::plain, dy.rows, in, dy.width, dy.data, dy.width, weight, in, dx,
            in, true);
}

template <class T>
void CpuKernels<T>::add_weight_gradient(Rows<T> dy, Rows<T> x, Wide<T>* dweight) {
  using cpu::Order;
  cpu::gemm(Order::transposed, Order::plain, dy.width, x.width, dy.rows, dy.data, dy.width, x.data,
            x.width, dweight, x.width, true);
}

template <class T>
void CpuKernels<T>::norm_forward(const NormOf<T>& n, const SumBefore<T>& before, T* y) {
  if (n.kind == Normalization::layer_norm) {
    cpu::layer_norm_forward(n.x, before, n.weight, n.bias, y, n.mean, n.rstd, n.rows, n.width,
                            n.eps);
  } else {
    cpu::rms_norm_forward(n.x, before, n.weight, y, n.rstd, n.rows, n.width, n.eps);
  }
}

template <class T>
void CpuKernels<T>::norm_backward(const NormOf<T>& n, const T* dy, const T* residual_gradient,
                                  T* dx, Wide<T>* dweight, Wide<T>* dbias) {
  if (n.kind == Normalization::layer_norm) {
    cpu::layer_norm_backward(dy, n.x, n.weight, n.mean, n.rstd, residual_gradient, dx, dweight,
                             dbias, n.rows, n.width);
  } else {
    cpu::rms_norm_backward(dy, n.x, n.weight, n.rstd, residual_gradient, dx, dweight, n.rows,
                           n.width);
  }
}

template <class T>
void CpuKernels<T>::activation_forward(Activation kind, bool gated, const T* x, T* y,
                                       std::int64_t rows, std::int64_t width) {
  if (gated) {
    cpu::gated_forward(kind, x, y, rows, width);
  } else {
    cpu::activation_forward(kind, x, y, rows * width);
  }
}

template <class T>
void CpuKernels<T>::activation_backward(Activation kind, bool gated, const T* x, const T* dy, T* dx,
                                        T* y, std::int64_t rows, std::int64_t width) {
  if (gated) {
    cpu::gated_backward(kind, x, dy, dx, y, rows, width);
  } else {
    cpu::activation_backward(kind, x, dy, dx, y, rows * width);
  }
}

template <class T>
void CpuKernels<T>::add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width) {
  cpu::add_bias(x, bias, rows, width);
}

template <class T>
void CpuKernels<T>::bias_gradient(Rows<T> dy, Wide<T>* dbias) {
  cpu::bias_gradient(dy.data, dbias, dy.rows, dy.width);
}

template <class T>
void CpuKernels<T>::scale(T* x, double factor, std::int64_t count) {
  cpu::scale(x, factor, count);
}

template <class T>
void CpuKernels<T>::add(T* x, const T* y, std::int64_t count) {
  cpu::add(x, y, count);
}

template <class T>
void CpuKernels<T>::copy(const T* from, T* to, std::int64_t count) {
  std::copy_n(from, count, to);
}

template <class T>
void CpuKernels<T>::copy_pieces(const Pieces& pieces, const T* from, T* to) {
  for (std::int64_t row = 0; row < pieces.rows; ++row)
    std::copy_n(from + row * pieces.from_stride, pieces.width, to + row * pieces.to_stride);
}

template <class T>
void CpuKernels<T>::add_positions(T* x, const T* positions, std::int64_t rows, int samples,
                                  std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    cpu::add(x + row * width, positions + row / samples * width, width);
  }
}

template <class T>
void CpuKernels<T>::position_gradient(Rows<T> dy, int samples, Wide<T>* dpositions) {
  for (std::int64_t p = 0; p < dy.rows / samples; ++p) {
    cpu::bias_gradient(dy.data + p * samples * dy.width, dpositions + p * dy.width, samples,
                       dy.width);
  }
}

template <class T>
void CpuKernels<T>::normalize_heads(const AttentionShape& shape, const HeadNorms<T>& norms,
                                    const T* qkv, T* to) {
  cpu::normalize_heads(shape, norms, qkv, to);
}

template <class T>
void CpuKernels<T>::normalize_heads_backward(const AttentionShape& shape, const HeadNorms<T>& norms,
                                             const T* qkv, T* gradient, Wide<T>* dq_weight,
                                             Wide<T>* dk_weight) {
  cpu::normalize_heads_backward(shape, norms, qkv, gradient, dq_weight, dk_weight);
}

template <class T>
void CpuKernels<T>::rotate(const AttentionShape& s, const RotaryFrequencies& frequencies,
                           std::int64_t first_position, T* qkv, int direction) {
  cpu::rotate(qkv, s.sequence * s.samples, s.qkv_stride, s.samples, s.heads + s.kv_heads,
              s.head_dim, first_position, frequencies, direction);
}

template <class T>
void CpuKernels<T>::normalize_latents(const LatentShape& shape, const LatentNorms<T>& norms,
                                      const T* latents, T* q, T* kv) {
  cpu::normalize_latents(shape, norms, latents, q, kv);
}

template <class T>
void CpuKernels<T>::normalize_latents_backward(const LatentShape& shape,
                                               const LatentNorms<T>& norms, const T* latents,
                                               const T* q, const T* kv, T* dlatents,
                                               Wide<T>* dq_weight, Wide<T>* dkv_weight) {
  cpu::normalize_latents_backward(shape, norms, latents, q, kv, dlatents, dq_weight, dkv_weight);
}

template <class T>
void CpuKernels<T>::join_latent_heads(const LatentShape& shape,
                                      const RotaryFrequencies& frequencies, const T* q, const T* kv,
                                      const T* latents, T* qkv) {
  cpu::join_latent_heads(shape, frequencies, q, kv, latents, qkv);
}

template <class T>
void CpuKernels<T>::split_latent_heads(const LatentShape& shape,
                                       const RotaryFrequencies& frequencies, const T* dqkv, T* dq,
                                       T* dkv, T* dlatents) {
  cpu::split_latent_heads(shape, frequencies, dqkv, dq, dkv, dlatents);
}

template <class T>
void CpuKernels<T>::split_heads(const HeadSplit& split, const T* x, T* parts) {
  cpu::split_heads(split, x, parts);
}

template <class T>
void CpuKernels<T>::join_heads(const HeadSplit& split, const T* parts, T* x) {
  cpu::join_heads(split, parts, x);
}

template <class T>
void CpuKernels<T>::attention_forward(const AttentionShape& shape, const T* qkv, T* out,
                                      Wide<T>* log_sum) {
  cpu::attention_forward(shape, qkv, out, log_sum);
}

template <class T>
void CpuKernels<T>::attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                                       const Wide<T>* log_sum, const T* dout, T* dqkv) {
  cpu::attention_backward(shape, qkv, out, log_sum, dout, dqkv);
}

template <class T>
void CpuKernels<T>::attention_block_forward(const AttentionShape& shape,
                                            const AttentionBlock& block, const T* qkv,
                                            const T* keys, Wide<T>* out, Wide<T>* log_sum) {
  cpu::attention_block_forward(shape, block, qkv, keys, out, log_sum);
}

template <class T>
void CpuKernels<T>::attention_block_backward(const AttentionShape& shape,
                                             const AttentionBlock& block, const T* qkv,
                                             const T* keys, const T* out, const Wide<T>* log_sum,
                                             const T* dout, T* dqkv, T* dkeys) {
  cpu::attention_block_backward(shape, block, qkv, keys, out, log_sum, dout, dqkv, dkeys);
}

template <class T>
void CpuKernels<T>::route(const Router& router, const T* logits, const T* bias,
                          const Routing<T>& routing) {
  cpu::route(router, logits, bias, routing);
}

template <class T>
void CpuKernels<T>::route_backward(const Router& router, const T* logits, const Routing<T>& routing,
                                   const Wide<T>* dweights, T* dlogits) {
  cpu::route_backward(router, logits, routing, dweights, dlogits);
}

template <class T>
void CpuKernels<T>::gather_rows(const T* x, const std::int32_t* rows, std::int64_t count,
                                std::int64_t width, T* y) {
  cpu::gather_rows(x, rows, count, width, y);
}

template <class T>
void CpuKernels<T>::combine_rows(const T* x, const std::int32_t* slots, std::int64_t rows,
                                 int choices, std::int64_t width, const T* addend, T* y) {
  cpu::combine_rows(x, slots, rows, choices, width, addend, y);
}

template <class T>
void CpuKernels<T>::weight_rows(T* x, const Wide<T>* weights, std::int64_t rows,
                                std::int64_t width) {
  cpu::weight_rows(x, weights, rows, width);
}

template <class T>
void CpuKernels<T>::weight_rows_backward(T* x, T* dy, const Wide<T>* weights, Wide<T>* dweights,
                                         std::int64_t rows, std::int64_t width) {
  cpu::weight_rows_backward(x, dy, weights, dweights, rows, width);
}

template <class T>
void CpuKernels<T>::gate_forward(const T* logits, Wide<T>* weights, std::int64_t count) {
  cpu::gate_forward(logits, weights, count);
}

template <class T>
void CpuKernels<T>::gate_backward(const Wide<T>* weights, const Wide<T>* dweights, T* dlogits,
                                  std::int64_t count) {
  cpu::gate_backward(weights, dweights, dlogits, count);
}

template <class T>
void CpuKernels<T>::embedding_forward(const std::int32_t* tokens, const T* weight, T* y,
                                      std::int64_t rows, std::int64_t width, std::int64_t first,
                                      std::int64_t count) {
  cpu::embedding_forward(tokens, weight, y, rows, width, first, count);
}

template <class T>
void CpuKernels<T>::embedding_backward(const std::int32_t* tokens, Rows<T> dy, Wide<T>* dweight,
                                       std::int64_t first, std::int64_t count) {
  cpu::embedding_backward(tokens, dy.data, dweight, dy.rows, dy.width, first, count);
}

template <class T>
void CpuKernels<T>::logits_partials(const Logits<T>& l, Wide<T>* max, Wide<T>* sums) {
  cpu::logits_max(l.data, max, l.rows, l.columns, l.valid);
  cpu::logits_sums(l.data, l.targets, max, sums, l.rows, l.columns, l.valid, l.first);
}

template <class T>
void CpuKernels<T>::rescale_sums(const Wide<T>* part_max, const Wide<T>* max, Wide<T>* sums,
                                 std::int64_t rows) {
  // A part with only padding has sums of zero and no largest logit.
  for (std::int64_t i = 0; i < rows; ++i) {
    sums[2 * i] = sums[2 * i] == 0 ? 0 : sums[2 * i] * std::exp(part_max[i] - max[i]);
  }
}

template <class T>
void CpuKernels<T>::add_losses(const Wide<T>* max, const Wide<T>* sums, double* total,
                               std::int64_t rows) {
  double loss = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    loss += std::log(double(sums[2 * i])) + double(max[i]) - double(sums[2 * i + 1]);
  }
  *total += loss;
}

template <class T>
void CpuKernels<T>::logits_gradient(const Logits<T>& l, const Wide<T>* max, const Wide<T>* sums,
                                    double scale) {
  cpu::logits_gradient(l.data, l.targets, max, sums, l.rows, l.columns, l.valid, l.first, scale);
}

template <class T>
void CpuKernels<T>::add_gradients(Wide<T>* x, const Wide<T>* y, std::int64_t count) {
  cpu::add(x, y, count);
}

template <class T>
void CpuKernels<T>::copy_wide(const Wide<T>* from, Wide<T>* to, std::int64_t count) {
  std::copy_n(from, count, to);
}

template <class T>
void CpuKernels<T>::copy_to_wide(const T* from, Wide<T>* to, std::int64_t count) {
  cpu::cast(from, to, count);
}

template <class T>
void CpuKernels<T>::copy_from_wide(const Wide<T>* from, T* to, std::int64_t count) {
  cpu::cast(from, to, count);
}

template <class T>
void CpuKernels<T>::sum_of_squares(const Wide<T>* x, std::int64_t count, double* total) {
  *total += cpu::sum_of_squares(x, count);
}

template <class T>
void CpuKernels<T>::clip_scale(const double* squares, double max_norm, Wide<T>* scale) {
  constexpr double kLittle = 1e-6;
  const double norm = std::sqrt(*squares);
  double value = 1;
  if (!std::isfinite(norm)) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (max_norm > 0 && norm > max_norm) {
    value = max_norm / (norm + kLittle);
  }
  *scale = static_cast<Wide<T>>(value);
}

template <class T>
void CpuKernels<T>::optimizer_update(const OptimizerStep& step, const Wide<T>* scale,
                                     const OptimizerOperands<T>& o) {
  if (std::isnan(*scale)) return;
  AdamStep scaled = step;
  scaled.gradient_scale = static_cast<double>(*scale);
  cpu::adam<T>(scaled, o.gradient, o.master, o.states[0], o.states[1], o.weights, o.count);
}

template class CpuKernels<double>;
template class CpuKernels<float>;
template class CpuKernels<Bfloat16>;

}  // namespace echelon
