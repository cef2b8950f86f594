// RMS norms (arXiv 1910.07467) of single query and key heads, which lie side by side in a row:
// [q heads | k heads | v heads]. A warp holds a head in registers.
#include <algorithm>
#include <limits>

#include "core/base/expects.hpp"
#include "runtime/cuda/kernels/columns.cuh"

namespace echelon::cuda {
namespace {

constexpr int kHeadWarps = 8;  ///< of a block
/// Heads of which a warp reads all operands before it uses the first: a warp's rows are short, and
/// enough bytes have to be on their way.
constexpr int kHeadsAtOnce = 4;
constexpr int kHeadsOfBlock = kHeadWarps * kHeadsAtOnce;
/// Blocks of the backward, at most: two for each multiprocessor of an H200 (norms_backward.cu).
constexpr std::int64_t kHeadParts = 264;

std::int64_t head_parts(std::int64_t heads) {
  return std::min(ceil_div(heads, kHeadsOfBlock), kHeadParts);
}

/// 1 / the root mean square of a head, of which each lane holds a pack.
template <int n>
__device__ __forceinline__ float rstd_of(const Pack<n>& values, int width, float eps) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < n; ++j) squares += values.at[j] * values.at[j];
  return 1 / sqrtf(warp_sum(squares) / static_cast<float>(width) + eps);
}

/// Where the heads `number`, `number` + 1 … begin, of rows that have `heads` of them from `first`
/// on.
struct HeadPlaces {
  int heads, first, width;
  std::int64_t stride;
  [[nodiscard]] __device__ __forceinline__ std::int64_t at(int number) const {
    return number / heads * stride + std::int64_t{first + number % heads} * width;
  }
};

/// A warp: some heads. Values are copied.
template <class T, bool vectorized>
__global__ void normalize_some_heads(const T* x, const T* q_weight, const T* k_weight, T* y,
                                     int count, std::int64_t stride, int heads, int kv_heads,
                                     int width, float eps) {
  constexpr int n = kPack<T>;
  const int i = lane_index() * n;
  const HeadPlaces places{heads + 2 * kv_heads, 0, width, stride};
  const int begin = (static_cast<int>(blockIdx.x) * kHeadWarps + warp_index()) * kHeadsAtOnce;
  Held<T> held[kHeadsAtOnce];
#pragma unroll
  for (int h = 0; h < kHeadsAtOnce; ++h) {
    if (begin + h < count && i < width)
      held[h] = hold<vectorized>(x + places.at(begin + h) + i, width - i);
  }
#pragma unroll
  for (int h = 0; h < kHeadsAtOnce; ++h) {
    if (begin + h >= count) continue;
    const int head = (begin + h) % places.heads;
    Pack<n> values{};
    if (i < width) values = held[h].numbers();
    const float rstd = rstd_of(values, width, eps);
    if (i >= width) continue;
    if (head < heads + kv_heads) {
      const Pack<n> w =
          load_in_row<n, vectorized>((head < heads ? q_weight : k_weight) + i, width - i);
#pragma unroll
      for (int j = 0; j < n; ++j) values.at[j] *= rstd * w.at[j];
    }
    store_in_row<n, vectorized>(y + places.at(begin + h) + i, values, width - i);
  }
}

/// With x̂ = x·rstd and g = dy·weight: dx = rstd·(g − x̂·mean(g·x̂)), in place of dy; this block's
/// part of Σ dy·x̂ over its heads, of which there are `count`. Blocks with y = 0: query heads, with
/// y = 1: key heads. `parts`: [blocks, width] of queries, then the same of keys.
template <class T, bool vectorized>
__global__ void normalize_some_heads_back(const T* x, const T* q_weight, const T* k_weight,
                                          T* gradient, float* parts, int rows, std::int64_t stride,
                                          int heads, int kv_heads, int width, float eps) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto memory = shared.allocate<float>(kHeadWarps * ceil_div(width, n) * n);
  const bool keys = blockIdx.y == 1;
  const HeadPlaces places{keys ? kv_heads : heads, keys ? heads : 0, width, stride};
  const int count = rows * places.heads;
  const int i = lane_index() * n;
  Pack<n> w{};
  if (i < width) w = load_in_row<n, vectorized>((keys ? k_weight : q_weight) + i, width - i);
  Pack<n> sums[1] = {};
  for (int begin = (static_cast<int>(blockIdx.x) * kHeadWarps + warp_index()) * kHeadsAtOnce;
       begin < count; begin += static_cast<int>(gridDim.x) * kHeadsOfBlock) {
    Held<T> values_of[kHeadsAtOnce];
    Held<T> slopes_of[kHeadsAtOnce];
#pragma unroll
    for (int h = 0; h < kHeadsAtOnce; ++h) {
      if (begin + h >= count || i >= width) continue;
      const std::int64_t at = places.at(begin + h) + i;
      values_of[h] = hold<vectorized>(x + at, width - i);
      slopes_of[h] = hold<vectorized>(gradient + at, width - i);
    }
#pragma unroll
    for (int h = 0; h < kHeadsAtOnce; ++h) {
      if (begin + h >= count) continue;
      Pack<n> values{};
      Pack<n> slopes{};
      if (i < width) {
        values = values_of[h].numbers();
        slopes = slopes_of[h].numbers();
      }
      const float rstd = rstd_of(values, width, eps);
      float dot = 0;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        values.at[j] *= rstd;
        const float to_weight = slopes.at[j] * values.at[j];
        sums[0].at[j] += to_weight;
        dot += to_weight * w.at[j];
      }
      const float mean_dot = warp_sum(dot) / static_cast<float>(width);
      if (i >= width) continue;
#pragma unroll
      for (int j = 0; j < n; ++j)
        slopes.at[j] = (slopes.at[j] * w.at[j] - values.at[j] * mean_dot) * rstd;
      store_in_row<n, vectorized>(gradient + places.at(begin + h) + i, slopes, width - i);
    }
  }
  add_warps(sums, memory, parts + (blockIdx.y * gridDim.x + blockIdx.x) * std::int64_t{width},
            width);
}

/// Whether rows and heads begin where 16 bytes do.
template <class D>
bool in_packs(const AttentionShape& a) {
  EXPECTS(a.head_dim <= 32 * kPack<D>, "a head that a warp can hold");
  EXPECTS(a.sequence * a.samples * (a.heads + 2 * a.kv_heads) <= std::numeric_limits<int>::max(),
          "heads that an int can count");
  return a.head_dim % kPack<D> == 0 && a.qkv_stride % kPack<D> == 0;
}

}  // namespace

template <class T>
void normalize_heads(Stream stream, const AttentionShape& a, const HeadNorms<T>& norms, const T* x,
                     T* y) {
  using D = typename OnDevice<T>::Type;
  const bool packs = in_packs<D>(a) && aligned(norms.q_weight, norms.k_weight, x, y);
  const std::int64_t count = a.sequence * a.samples * (a.heads + 2 * a.kv_heads);
  with_flag(packs, [&](auto vectorized) {
    launch<normalize_some_heads<D, vectorized.value>>(
        stream, grid_of(ceil_div(count, kHeadsOfBlock)), 32 * kHeadWarps, 0, on_device(x),
        on_device(norms.q_weight), on_device(norms.k_weight), on_device(y), static_cast<int>(count),
        a.qkv_stride, a.heads, a.kv_heads, a.head_dim, static_cast<float>(norms.eps));
  });
}

std::int64_t head_norms_workspace(const AttentionShape& a) {
  return 2 * head_parts(a.sequence * a.samples * a.heads) * a.head_dim;
}

template <class T>
void normalize_heads_backward(Stream stream, const AttentionShape& a, const HeadNorms<T>& norms,
                              const T* x, T* gradient, float* dq_weight, float* dk_weight,
                              float* workspace) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  const std::int64_t rows = a.sequence * a.samples;
  const std::int64_t parts = head_parts(rows * a.heads);
  const auto floats = static_cast<std::size_t>(kHeadWarps * ceil_div(a.head_dim, n) * n);
  const bool packs = in_packs<D>(a) && aligned(norms.q_weight, norms.k_weight, x, gradient);
  with_flag(packs, [&](auto vectorized) {
    launch<normalize_some_heads_back<D, vectorized.value>>(
        stream, grid_of(parts, 2), 32 * kHeadWarps, floats * sizeof(float), on_device(x),
        on_device(norms.q_weight), on_device(norms.k_weight), on_device(gradient), workspace,
        static_cast<int>(rows), a.qkv_stride, a.heads, a.kv_heads, a.head_dim,
        static_cast<float>(norms.eps));
  });
  if (dq_weight != nullptr)
    launch_add_parts(stream, workspace, parts, a.head_dim, dq_weight, dk_weight);
}

#define ECHELON_HEAD_NORMS(T)                                                                    \
  template void normalize_heads<T>(Stream, const AttentionShape&, const HeadNorms<T>&, const T*, \
                                   T*);                                                          \
  template void normalize_heads_backward<T>(Stream, const AttentionShape&, const HeadNorms<T>&,  \
                                            const T*, T*, float*, float*, float*);
ECHELON_HEAD_NORMS(float)
ECHELON_HEAD_NORMS(Bfloat16)
#undef ECHELON_HEAD_NORMS

}  // namespace echelon::cuda
