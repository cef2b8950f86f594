#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {

namespace {

template <class T>
ECHELON_CLONES Wide<T> max_of(const T* x, std::int64_t count) {
  return largest_of(x, count, -std::numeric_limits<Wide<T>>::infinity());
}

/// Σ exp(x − max)
template <class T>
ECHELON_CLONES Wide<T> sum_of_exp(const T* x, Wide<T> max, std::int64_t count) {
  using W = Wide<T>;
  constexpr W kNothing = -std::numeric_limits<W>::infinity();
  Lanes<W> total{};
  for (std::int64_t i = 0; i < count; i += kLanes<W>) {
    total += exp(load(x + i, count - i, kNothing) - max);
  }
  return sum<W>(total);
}

/// x = factor·exp(x − max)
template <class T>
ECHELON_CLONES void scaled_exp(T* x, Wide<T> max, Wide<T> factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes<Wide<T>>) {
    store(x + i, exp(load(x + i, count - i) - max) * factor, count - i);
  }
}

}  // namespace

template <class T>
void logits_max(const T* logits, Wide<T>* max, std::int64_t rows, std::int64_t columns,
                std::int64_t valid) {
  in_parts(rows, grain_of_rows(columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) max[r] = max_of(logits + r * columns, valid);
  });
}

template <class T>
void logits_sums(const T* logits, const std::int32_t* targets, const Wide<T>* max, Wide<T>* sums,
                 std::int64_t rows, std::int64_t columns, std::int64_t valid, std::int64_t first) {
  in_parts(rows, grain_of_rows(columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = logits + r * columns;
      const std::int64_t target = targets[r] - first;
      sums[2 * r] = sum_of_exp(row, max[r], valid);
      sums[2 * r + 1] = target >= 0 && target < valid ? Wide<T>(row[target]) : Wide<T>(0);
    }
  });
}

template <class T>
void logits_gradient(T* logits, const std::int32_t* targets, const Wide<T>* max,
                     const Wide<T>* sums, std::int64_t rows, std::int64_t columns,
                     std::int64_t valid, std::int64_t first, double scale) {
  const auto each = static_cast<Wide<T>>(scale);
  in_parts(rows, grain_of_rows(columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* row = logits + r * columns;
      const Wide<T> factor = each / sums[2 * r];
      const std::int64_t target = targets[r] - first;
      const bool here = target >= 0 && target < valid;
      // The target's own value, before it is overwritten: it is rounded once.
      const Wide<T> own =
          here ? std::exp(Wide<T>(row[target]) - max[r]) * factor - each : Wide<T>(0);
      scaled_exp(row, max[r], factor, valid);
      if (here) row[target] = T(own);
      std::fill(row + valid, row + columns, T());
    }
  });
}

#define ECHELON_LOSS(T)                                                                      \
  template void logits_max<T>(const T*, Wide<T>*, std::int64_t, std::int64_t, std::int64_t); \
  template void logits_sums<T>(const T*, const std::int32_t*, const Wide<T>*, Wide<T>*,      \
                               std::int64_t, std::int64_t, std::int64_t, std::int64_t);      \
  template void logits_gradient<T>(T*, const std::int32_t*, const Wide<T>*, const Wide<T>*,  \
                                   std::int64_t, std::int64_t, std::int64_t, std::int64_t,   \
                                   double);
ECHELON_LOSS(double)
ECHELON_LOSS(float)
ECHELON_LOSS(Bfloat16)
#undef ECHELON_LOSS

}  // namespace echelon::cpu
