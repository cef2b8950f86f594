#include <algorithm>
#include <cmath>

#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {
namespace {

/// sum = x (+ bias) + residual
template <class T>
ECHELON_CLONES void sum_row(const T* x, const T* bias, const T* residual, T* sum,
                            std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += kLanes<Wide<T>>) {
    const std::int64_t left = width - i;
    Lanes<Wide<T>> value = load(x + i, left);
    if (bias != nullptr) value = rounded<T>(value + load(bias + i, left));
    store(sum + i, value + load(residual + i, left), left);
  }
}

/// The row that is normalized.
template <class T>
const T* row_of(const T* x, const SumBefore<T>& before, std::int64_t row, std::int64_t width) {
  const std::int64_t at = row * width;
  if (before.residual == nullptr) return x + at;
  sum_row(x + at, before.bias, before.residual + at, before.sum + at, width);
  return before.sum + at;
}

/// Of one row; centred: its mean (0 for the RMS norm, which has none) and rstd.
template <class W>
struct RowMoments {
  W mean = 0;
  W rstd = 0;
};

template <bool centred, class T>
ECHELON_INLINE RowMoments<Wide<T>> moments(const T* x, std::int64_t width, double eps) {
  using W = Wide<T>;
  constexpr std::int64_t n = kLanes<W>;
  const std::int64_t even = width / (2 * n) * (2 * n);
  const auto count = static_cast<W>(width);
  W mean = 0;
  if constexpr (centred) {
    Lanes<W> total[2] = {};
    for (std::int64_t i = 0; i < even; i += 2 * n) {
      total[0] += load(x + i, n);
      total[1] += load(x + i + n, n);
    }
    for (std::int64_t i = even; i < width; i += n) total[0] += load(x + i, width - i);
    mean = sum<W>(total[0] + total[1]) / count;
  }
  Lanes<W> squares[2] = {};
  for (std::int64_t i = 0; i < even; i += 2 * n) {
    const Lanes<W> a = load(x + i, n) - mean;
    const Lanes<W> b = load(x + i + n, n) - mean;
    squares[0] += a * a;
    squares[1] += b * b;
  }
  W rest = 0;
  for (std::int64_t i = even; i < width; ++i) {
    const W a = W(x[i]) - mean;
    rest += a * a;
  }
  const W variance = (sum<W>(squares[0] + squares[1]) + rest) / count;
  return {mean, 1 / std::sqrt(variance + static_cast<W>(eps))};
}

/// y = (x − mean)·rstd·weight (+ bias)
template <bool centred, class T>
ECHELON_CLONES RowMoments<Wide<T>> norm_row(const T* x, const T* weight, const T* bias, T* y,
                                            std::int64_t width, double eps) {
  using W = Wide<T>;
  const RowMoments<W> m = moments<centred>(x, width, eps);
  for (std::int64_t i = 0; i < width; i += kLanes<W>) {
    const std::int64_t left = width - i;
    Lanes<W> value = (load(x + i, left) - m.mean) * m.rstd * load(weight + i, left);
    if constexpr (centred) value += load(bias + i, left);
    store(y + i, value, left);
  }
  return m;
}

/// With x̂ = (x − mean)·rstd and g = dy·weight: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)), without
/// mean(g) for the RMS norm; dweight += dy·x̂; dbias += dy. `residual_gradient`, or null, is added
/// to dx.
template <bool centred, class T>
ECHELON_CLONES void norm_row_back(const T* dy, const T* x, const T* weight, Wide<T> mean,
                                  Wide<T> rstd, const T* residual_gradient, T* dx, Wide<T>* dweight,
                                  Wide<T>* dbias, std::int64_t width) {
  using W = Wide<T>;
  Lanes<W> total{};
  Lanes<W> dot{};
  for (std::int64_t i = 0; i < width; i += kLanes<W>) {
    const std::int64_t left = width - i;
    const Lanes<W> d = load(dy + i, left);
    const Lanes<W> hat = (load(x + i, left) - mean) * rstd;
    const Lanes<W> g = d * load(weight + i, left);
    if constexpr (centred) {
      total += g;
      store(dbias + i, load(dbias + i, left) + d, left);
    }
    dot += g * hat;
    store(dweight + i, load(dweight + i, left) + d * hat, left);
  }
  const W mean_g = centred ? sum<W>(total) / static_cast<W>(width) : W(0);
  const W mean_dot = sum<W>(dot) / static_cast<W>(width);
  for (std::int64_t i = 0; i < width; i += kLanes<W>) {
    const std::int64_t left = width - i;
    const Lanes<W> hat = (load(x + i, left) - mean) * rstd;
    const Lanes<W> g = load(dy + i, left) * load(weight + i, left);
    Lanes<W> value = (g - mean_g - hat * mean_dot) * rstd;
    if (residual_gradient != nullptr) value += load(residual_gradient + i, left);
    store(dx + i, value, left);
  }
}

}  // namespace

template <class T>
void layer_norm_forward(const T* x, const SumBefore<T>& before, const T* weight, const T* bias,
                        T* y, Wide<T>* mean, Wide<T>* rstd, std::int64_t rows, std::int64_t width,
                        double eps) {
  in_parts(rows, grain_of_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const row = row_of(x, before, r, width);
      const auto m = norm_row<true>(row, weight, bias, y + r * width, width, eps);
      mean[r] = m.mean;
      rstd[r] = m.rstd;
    }
  });
}

template <class T>
void layer_norm_backward(const T* dy, const T* x, const T* weight, const Wide<T>* mean,
                         const Wide<T>* rstd, const T* residual_gradient, T* dx, Wide<T>* dweight,
                         Wide<T>* dbias, std::int64_t rows, std::int64_t width) {
  RowSums<Wide<T>> weights(rows, width);
  RowSums<Wide<T>> biases(rows, width);
  in_parts(rows, weights.kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      norm_row_back<true>(dy + r * width, x + r * width, weight, mean[r], rstd[r],
                          residual_gradient == nullptr ? nullptr : residual_gradient + r * width,
                          dx + r * width, weights.part(begin), biases.part(begin), width);
    }
  });
  if (dweight != nullptr) weights.add_to(dweight);
  if (dbias != nullptr) biases.add_to(dbias);
}

template <class T>
void rms_norm_forward(const T* x, const SumBefore<T>& before, const T* weight, T* y, Wide<T>* rstd,
                      std::int64_t rows, std::int64_t width, double eps) {
  in_parts(rows, grain_of_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const row = row_of(x, before, r, width);
      rstd[r] = norm_row<false>(row, weight, weight, y + r * width, width, eps).rstd;
    }
  });
}

template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* weight, const Wide<T>* rstd,
                       const T* residual_gradient, T* dx, Wide<T>* dweight, std::int64_t rows,
                       std::int64_t width) {
  RowSums<Wide<T>> weights(rows, width);
  in_parts(rows, weights.kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      norm_row_back<false, T>(
          dy + r * width, x + r * width, weight, 0, rstd[r],
          residual_gradient == nullptr ? nullptr : residual_gradient + r * width, dx + r * width,
          weights.part(begin), nullptr, width);
    }
  });
  if (dweight != nullptr) weights.add_to(dweight);
}

template <class T>
void normalize_heads(const AttentionShape& a, const HeadNorms<T>& norms, const T* x, T* y) {
  const std::int64_t rows = a.sequence * a.samples;
  const int normed = a.heads + a.kv_heads;
  in_parts(rows, grain_of_rows(a.qkv_stride), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t row = r * a.qkv_stride;
      for (int head = 0; head < normed; ++head) {
        const std::int64_t at = row + std::int64_t{head} * a.head_dim;
        const T* const weight = head < a.heads ? norms.q_weight : norms.k_weight;
        norm_row<false>(x + at, weight, weight, y + at, a.head_dim, norms.eps);
      }
      const std::int64_t values = std::int64_t{normed} * a.head_dim;
      std::copy(x + row + values, x + row + a.qkv_stride, y + row + values);
    }
  });
}

template <class T>
void normalize_heads_backward(const AttentionShape& a, const HeadNorms<T>& norms, const T* x,
                              T* gradient, Wide<T>* dq_weight, Wide<T>* dk_weight) {
  const std::int64_t rows = a.sequence * a.samples;
  RowSums<Wide<T>> q_sums(rows, a.head_dim);
  RowSums<Wide<T>> k_sums(rows, a.head_dim);
  in_parts(rows, q_sums.kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (int head = 0; head < a.heads + a.kv_heads; ++head) {
        const std::int64_t at = r * a.qkv_stride + std::int64_t{head} * a.head_dim;
        const bool query = head < a.heads;
        const auto rstd = moments<false>(x + at, a.head_dim, norms.eps).rstd;
        norm_row_back<false, T>(gradient + at, x + at, query ? norms.q_weight : norms.k_weight, 0,
                                rstd, nullptr, gradient + at, (query ? q_sums : k_sums).part(begin),
                                nullptr, a.head_dim);
      }
    }
  });
  if (dq_weight != nullptr) q_sums.add_to(dq_weight);
  if (dk_weight != nullptr) k_sums.add_to(dk_weight);
}

template <class T>
void normalize_latents(const LatentShape& s, const LatentNorms<T>& norms, const T* latents, T* q,
                       T* kv) {
  in_parts(s.rows, grain_of_rows(s.latents()), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const row = latents + r * s.latents();
      const auto norm = [&](const T* x, const T* weight, T* y, std::int64_t width) {
        norm_row<false>(x, weight, weight, y + r * width, width, norms.eps);
      };
      if (s.q_rank > 0) norm(row, norms.q_weight, q, s.q_rank);
      norm(row + s.q_rank, norms.kv_weight, kv, s.kv_rank);
    }
  });
}

template <class T>
void normalize_latents_backward(const LatentShape& s, const LatentNorms<T>& norms, const T* latents,
                                const T* q, const T* kv, T* dlatents, Wide<T>* dq_weight,
                                Wide<T>* dkv_weight) {
  RowSums<Wide<T>> q_sums(s.rows, s.q_rank);
  RowSums<Wide<T>> kv_sums(s.rows, s.kv_rank);
  in_parts(s.rows, q_sums.kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto back = [&](const T* dy, const T* weight, std::int64_t first, std::int64_t width,
                            RowSums<Wide<T>>& sums) {
        const T* const x = latents + r * s.latents() + first;
        const auto rstd = moments<false>(x, width, norms.eps).rstd;
        norm_row_back<false, T>(dy + r * width, x, weight, 0, rstd, nullptr,
                                dlatents + r * s.latents() + first, sums.part(begin), nullptr,
                                width);
      };
      if (s.q_rank > 0) back(q, norms.q_weight, 0, s.q_rank, q_sums);
      back(kv, norms.kv_weight, s.q_rank, s.kv_rank, kv_sums);
    }
  });
  q_sums.add_to(dq_weight);
  kv_sums.add_to(dkv_weight);
}

#define ECHELON_NORMS(T)                                                                           \
  template void layer_norm_forward<T>(const T*, const SumBefore<T>&, const T*, const T*, T*,       \
                                      Wide<T>*, Wide<T>*, std::int64_t, std::int64_t, double);     \
  template void layer_norm_backward<T>(const T*, const T*, const T*, const Wide<T>*,               \
                                       const Wide<T>*, const T*, T*, Wide<T>*, Wide<T>*,           \
                                       std::int64_t, std::int64_t);                                \
  template void rms_norm_forward<T>(const T*, const SumBefore<T>&, const T*, T*, Wide<T>*,         \
                                    std::int64_t, std::int64_t, double);                           \
  template void rms_norm_backward<T>(const T*, const T*, const T*, const Wide<T>*, const T*, T*,   \
                                     Wide<T>*, std::int64_t, std::int64_t);                        \
  template void normalize_heads<T>(const AttentionShape&, const HeadNorms<T>&, const T*, T*);      \
  template void normalize_heads_backward<T>(const AttentionShape&, const HeadNorms<T>&, const T*,  \
                                            T*, Wide<T>*, Wide<T>*);                               \
  template void normalize_latents<T>(const LatentShape&, const LatentNorms<T>&, const T*, T*, T*); \
  template void normalize_latents_backward<T>(const LatentShape&, const LatentNorms<T>&, const T*, \
                                              const T*, const T*, T*, Wide<T>*, Wide<T>*);
ECHELON_NORMS(double)
ECHELON_NORMS(float)
ECHELON_NORMS(Bfloat16)
#undef ECHELON_NORMS

}  // namespace echelon::cpu
