#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/kernels.hpp"

namespace echelon::cpu {

template <class T>
void logits_max(const T* logits, Wide<T>* max, std::int64_t rows, std::int64_t columns,
                std::int64_t valid) {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * columns;
    Wide<T> most = -std::numeric_limits<Wide<T>>::infinity();
    for (std::int64_t i = 0; i < valid; ++i) {
      const Wide<T> x(row[i]);
      most = most >= x || most != most ? most : x;  // NaN stays
    }
    max[r] = most;
  }
}

template <class T>
void logits_sums(const T* logits, const std::int32_t* targets, const Wide<T>* max, Wide<T>* sums,
                 std::int64_t rows, std::int64_t columns, std::int64_t valid, std::int64_t first) {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * columns;
    Wide<T> sum = 0;
    for (std::int64_t i = 0; i < valid; ++i) sum += std::exp(Wide<T>(row[i]) - max[r]);
    const std::int64_t target = targets[r] - first;
    sums[2 * r] = sum;
    sums[2 * r + 1] = target >= 0 && target < valid ? Wide<T>(row[target]) : Wide<T>(0);
  }
}

template <class T>
void logits_gradient(T* logits, const std::int32_t* targets, const Wide<T>* max,
                     const Wide<T>* sums, std::int64_t rows, std::int64_t columns,
                     std::int64_t valid, std::int64_t first, double scale) {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * columns;
    const Wide<T> factor = Wide<T>(scale) / sums[2 * r];
    const std::int64_t target = targets[r] - first;
    const bool here = target >= 0 && target < valid;
    const Wide<T> own =
        here ? std::exp(Wide<T>(row[target]) - max[r]) * factor - Wide<T>(scale) : Wide<T>(0);
    for (std::int64_t i = 0; i < valid; ++i) {
      row[i] = T(std::exp(Wide<T>(row[i]) - max[r]) * factor);
    }
    if (here) row[target] = T(own);
    std::fill(row + valid, row + columns, T());
  }
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
