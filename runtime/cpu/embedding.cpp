#include <algorithm>

#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {

template <class T>
void embedding_forward(const std::int32_t* tokens, const T* weight, T* y, std::int64_t rows,
                       std::int64_t width, std::int64_t first, std::int64_t count) {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t token = tokens[r] - first;
    if (token >= 0 && token < count) {
      std::copy_n(weight + token * width, width, y + r * width);
    } else {
      std::fill_n(y + r * width, width, T());
    }
  }
}

template <class T>
void embedding_backward(const std::int32_t* tokens, const T* dy, Wide<T>* dweight,
                        std::int64_t rows, std::int64_t width, std::int64_t first,
                        std::int64_t count) {
  // Each thread has some columns of all rows: every sum runs over the rows in order.
  constexpr std::int64_t kColumns = 64;
#pragma omp parallel for schedule(static)
  for (std::int64_t begin = 0; begin < width; begin += kColumns) {
    const std::int64_t end = std::min(width, begin + kColumns);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t token = tokens[r] - first;
      if (token < 0 || token >= count) continue;
      add_rows(dy + r * width + begin, 1, 0, end - begin, dweight + token * width + begin);
    }
  }
}

#define ECHELON_EMBEDDING(T)                                                                 \
  template void embedding_forward<T>(const std::int32_t*, const T*, T*, std::int64_t,        \
                                     std::int64_t, std::int64_t, std::int64_t);              \
  template void embedding_backward<T>(const std::int32_t*, const T*, Wide<T>*, std::int64_t, \
                                      std::int64_t, std::int64_t, std::int64_t);
ECHELON_EMBEDDING(double)
ECHELON_EMBEDDING(float)
ECHELON_EMBEDDING(Bfloat16)
#undef ECHELON_EMBEDDING

}  // namespace echelon::cpu
