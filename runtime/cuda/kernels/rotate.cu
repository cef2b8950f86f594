// Rotary embedding, half-split form (HuggingFace's rotate_half); source: arXiv 2104.09864, equation
// 34. Angles of far positions need more digits than a float has: they come from a table.
#include <algorithm>

#include "core/base/expects.hpp"
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kRotateThreads = 256;

/// Made on the host, handed over with the launch.
struct Angles {
  double of[kMostPairs];
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

/// Block x: a row; a thread turns n pairs of a head.
template <class T, bool packs>
__global__ void turn_row(T* x, const float* table, std::int64_t row_stride, int samples, int heads,
                         int half, float direction) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const float* const angles = table + row / samples * 2 * half;
  const int steps = (half + n - 1) / n;
  for (int work = static_cast<int>(threadIdx.x); work < heads * steps;
       work += static_cast<int>(blockDim.x)) {
    const int i = work % steps * n;
    const int left = half - i;
    T* const low = x + row * row_stride + std::int64_t{work / steps} * 2 * half + i;
    T* const high = low + half;
    const Some<n> c = load<n, packs>(angles + i, left);
    const Some<n> s = load<n, packs>(angles + half + i, left);
    Some<n> a = load<n, packs>(low, left);
    Some<n> b = load<n, packs>(high, left);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float before = a.at[j];
      const float sine = direction * s.at[j];
      a.at[j] = before * c.at[j] - b.at[j] * sine;
      b.at[j] = b.at[j] * c.at[j] + before * sine;
    }
    store<n, packs>(low, a, left);
    store<n, packs>(high, b, left);
  }
}

}  // namespace

void rotation_table(Stream stream, float* table, std::int64_t positions, int head_dim,
                    std::int64_t first_position, const RotaryFrequencies& frequencies) {
  const int half = head_dim / 2;
  EXPECTS(half <= kMostPairs && frequencies.angles.size() == static_cast<std::size_t>(half),
          "angles of other heads");
  Angles angles{};
  std::copy(frequencies.angles.begin(), frequencies.angles.end(), angles.of);
  angles.scale = frequencies.scale;
  launch<make_table>(stream, grid_of(parts_of(positions * half, kRotateThreads)), kRotateThreads, 0,
                     table, positions, half, first_position, angles);
}

template <class T>
void rotate(Stream stream, T* x, const float* table, std::int64_t rows, std::int64_t row_stride,
            int samples, int heads, int head_dim, int direction) {
  using D = typename OnDevice<T>::Type;
  constexpr int n = kPack<D>;
  const int half = head_dim / 2;
  const unsigned threads = threads_for(heads * parts_of(half, n), kRotateThreads);
  with_flag(aligned(x, table) && half % n == 0 && row_stride % n == 0, [&](auto packs) {
    launch<turn_row<D, packs.value>>(stream, grid_of(rows), threads, 0, on_device(x), table,
                                     row_stride, samples, heads, half,
                                     static_cast<float>(direction));
  });
}

#define ECHELON_ROTATE(T) \
  template void rotate<T>(Stream, T*, const float*, std::int64_t, std::int64_t, int, int, int, int);
ECHELON_ROTATE(float)
ECHELON_ROTATE(Bfloat16)
#undef ECHELON_ROTATE

}  // namespace echelon::cuda
