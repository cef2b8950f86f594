// Rotary embedding, half-split form (HuggingFace's rotate_half); source: arXiv 2104.09864, equation
// 34. Angles of far positions need more precision than a float has: they come from a table.
#include <algorithm>

#include "core/base/expects.hpp"
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kRotateThreads = 256;

/// Computed on the host, passed as a launch argument.
struct Angles {
  double of[kMaxPairs];
  double scale;
};

/// One thread for an angle; a row of the table is [cosines | sines].
__global__ void make_table(float* table, std::int64_t positions, int half,
                           std::int64_t first_position, Angles angles) {
  const std::int64_t at = thread_of_grid();
  if (at >= positions * half) return;
  const std::int64_t position = at / half;
  const int i = static_cast<int>(at % half);
  const double angle = static_cast<double>(first_position + position) * angles.of[i];
  table[position * 2 * half + i] = static_cast<float>(angles.scale * cos(angle));
  table[position * 2 * half + half + i] = static_cast<float>(angles.scale * sin(angle));
}

/// Block x: a row; a thread turns n pairs of a head, of which there are `half`.
template <class T, bool vectorized>
__global__ void apply_rope(T* x, const float* table, std::int64_t row_stride, int samples,
                           int heads, int head_dim, int half, float direction) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const float* const angles = table + row / samples * 2 * half;
  const int steps = (half + n - 1) / n;
  for (int work = static_cast<int>(threadIdx.x); work < heads * steps;
       work += static_cast<int>(blockDim.x)) {
    const int i = work % steps * n;
    const int left = half - i;
    T* const low = x + row * row_stride + std::int64_t{work / steps} * head_dim + i;
    T* const high = low + half;
    const Pack<n> c = load_in_row<n, vectorized>(angles + i, left);
    const Pack<n> s = load_in_row<n, vectorized>(angles + half + i, left);
    Pack<n> a = load_in_row<n, vectorized>(low, left);
    Pack<n> b = load_in_row<n, vectorized>(high, left);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float before = a.at[j];
      const float sine = direction * s.at[j];
      a.at[j] = before * c.at[j] - b.at[j] * sine;
      b.at[j] = b.at[j] * c.at[j] + before * sine;
    }
    store_in_row<n, vectorized>(low, a, left);
    store_in_row<n, vectorized>(high, b, left);
  }
}

}  // namespace

void rotation_table(Stream stream, float* table, std::int64_t positions,
                    std::int64_t first_position, const RotaryFrequencies& frequencies) {
  const int half = static_cast<int>(frequencies.angles.size());
  EXPECTS(half <= kMaxPairs, "more pairs than a launch argument holds");
  Angles angles{};
  std::copy(frequencies.angles.begin(), frequencies.angles.end(), angles.of);
  angles.scale = frequencies.scale;
  launch<make_table>(stream, grid_of(ceil_div(positions * half, kRotateThreads)), kRotateThreads, 0,
                     table, positions, half, first_position, angles);
}

template <class T>
void rotate(Stream stream, T* x, const float* table, std::int64_t rows, std::int64_t row_stride,
            int samples, int heads, int head_dim, int pairs, int direction) {
  using D = typename OnDevice<T>::Type;
  constexpr int n = kPack<D>;
  const unsigned threads = threads_for(heads * ceil_div(pairs, n), kRotateThreads);
  const bool whole = pairs % n == 0 && head_dim % n == 0 && row_stride % n == 0;
  with_flag(aligned(x, table) && whole, [&](auto vectorized) {
    launch<apply_rope<D, vectorized.value>>(stream, grid_of(rows), threads, 0, on_device(x), table,
                                            row_stride, samples, heads, head_dim, pairs,
                                            static_cast<float>(direction));
  });
}

#define ECHELON_ROTATE(T)                                                                      \
  template void rotate<T>(Stream, T*, const float*, std::int64_t, std::int64_t, int, int, int, \
                          int, int);
ECHELON_ROTATE(float)
ECHELON_ROTATE(Bfloat16)
#undef ECHELON_ROTATE

}  // namespace echelon::cuda
