// RMS norms (arXiv 1910.07467) of single query and key heads, which lie side by side in a row:
// [q heads | k heads | v heads]. A warp holds a head in registers.
#include <algorithm>

#include "core/base/expects.hpp"
#include "runtime/cuda/kernels/columns.cuh"

namespace echelon::cuda {
namespace {

constexpr int kHeadWarps = 8;  ///< of a block
constexpr int kHeadPacks = 2;  ///< of a lane
/// Blocks of the backward, at most: two for each multiprocessor of an H200 (norms_backward.cu).
constexpr std::int64_t kHeadParts = 264;

std::int64_t head_parts(std::int64_t rows) { return std::min(rows, kHeadParts); }

/// A head's numbers, as a warp's lanes hold them, and 1 / their root mean square.
template <class T, bool vectorized>
struct HeldHead {
  static constexpr int n = kPack<T>;
  Pack<n> values[kHeadPacks];
  float rstd = 0;

  __device__ HeldHead(const T* head, int width, float eps) {
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kHeadPacks; ++p) {
      const int i = (p * 32 + lane_index()) * n;
      values[p] = i < width ? load_in_row<n, vectorized>(head + i, width - i) : Pack<n>{};
#pragma unroll
      for (int j = 0; j < n; ++j) squares += values[p].at[j] * values[p].at[j];
    }
    rstd = 1 / sqrtf(warp_sum(squares) / static_cast<float>(width) + eps);
  }
};

/// Block: a row, a warp every eighth head. Values are copied.
template <class T, bool vectorized>
__global__ void normalize_row_heads(const T* x, const T* q_weight, const T* k_weight, T* y,
                                    std::int64_t stride, int heads, int kv_heads, int width,
                                    float eps) {
  constexpr int n = kPack<T>;
  const std::int64_t row = std::int64_t{blockIdx.x} * stride;
  for (int head = warp_index(); head < heads + 2 * kv_heads; head += kHeadWarps) {
    const std::int64_t at = row + std::int64_t{head} * width;
    HeldHead<T, vectorized> held(x + at, width, eps);
    const bool is_value = head >= heads + kv_heads;
    const T* const weight = head < heads ? q_weight : k_weight;
#pragma unroll
    for (int p = 0; p < kHeadPacks; ++p) {
      const int i = (p * 32 + lane_index()) * n;
      if (i >= width) continue;
      if (!is_value) {
        const Pack<n> w = load_in_row<n, vectorized>(weight + i, width - i);
#pragma unroll
        for (int j = 0; j < n; ++j) held.values[p].at[j] *= held.rstd * w.at[j];
      }
      store_in_row<n, vectorized>(y + at + i, held.values[p], width - i);
    }
  }
}

/// With x̂ = x·rstd and g = dy·weight: dx = rstd·(g − x̂·mean(g·x̂)), in place of dy; this block's
/// parts of Σ dy·x̂ over the query heads of its rows, and over the key heads.
/// `parts`: [blocks, width] of queries, then the same of keys.
template <class T, bool vectorized>
__global__ void normalize_row_heads_back(const T* x, const T* q_weight, const T* k_weight,
                                         T* gradient, float* parts, std::int64_t rows,
                                         std::int64_t stride, int heads, int kv_heads, int width,
                                         float eps) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto memory = shared.allocate<float>(kHeadWarps * ceil_div(width, n) * n);
  Pack<n> q_sums[kHeadPacks] = {};
  Pack<n> k_sums[kHeadPacks] = {};
  const auto back = [&](std::int64_t row, int first, int end, const T* weight,
                        Pack<n>(&sums)[kHeadPacks]) {
    for (int head = first + warp_index(); head < end; head += kHeadWarps) {
      const std::int64_t at = row * stride + std::int64_t{head} * width;
      const HeldHead<T, vectorized> held(x + at, width, eps);
      Pack<n> slopes[kHeadPacks];
      float dot = 0;
#pragma unroll
      for (int p = 0; p < kHeadPacks; ++p) {
        const int i = (p * 32 + lane_index()) * n;
        if (i >= width) continue;
        slopes[p] = load_in_row<n, vectorized>(gradient + at + i, width - i);
        const Pack<n> w = load_in_row<n, vectorized>(weight + i, width - i);
#pragma unroll
        for (int j = 0; j < n; ++j) {
          const float hat = held.values[p].at[j] * held.rstd;
          const float to_weight = slopes[p].at[j] * hat;
          sums[p].at[j] += to_weight;
          slopes[p].at[j] *= w.at[j];
          dot += to_weight * w.at[j];
        }
      }
      const float mean_dot = warp_sum(dot) / static_cast<float>(width);
#pragma unroll
      for (int p = 0; p < kHeadPacks; ++p) {
        const int i = (p * 32 + lane_index()) * n;
        if (i >= width) continue;
#pragma unroll
        for (int j = 0; j < n; ++j) {
          const float hat = held.values[p].at[j] * held.rstd;
          slopes[p].at[j] = (slopes[p].at[j] - hat * mean_dot) * held.rstd;
        }
        store_in_row<n, vectorized>(gradient + at + i, slopes[p], width - i);
      }
    }
  };
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    back(row, 0, heads, q_weight, q_sums);
    back(row, heads, heads + kv_heads, k_weight, k_sums);
  }
  float* const q_part = parts + blockIdx.x * std::int64_t{width};
  add_warps(q_sums, memory, q_part, width);
  __syncthreads();
  add_warps(k_sums, memory, q_part + gridDim.x * std::int64_t{width}, width);
}

/// Whether rows and heads begin where 16 bytes do.
template <class D>
bool in_packs(const AttentionShape& a) {
  EXPECTS(a.head_dim <= 32 * kHeadPacks * kPack<D>, "a head that a warp can hold");
  return a.head_dim % kPack<D> == 0 && a.qkv_stride % kPack<D> == 0;
}

}  // namespace

template <class T>
void normalize_heads(Stream stream, const AttentionShape& a, const HeadNorms<T>& norms, const T* x,
                     T* y) {
  using D = typename OnDevice<T>::Type;
  const bool packs = in_packs<D>(a) && aligned(norms.q_weight, norms.k_weight, x, y);
  with_flag(packs, [&](auto vectorized) {
    launch<normalize_row_heads<D, vectorized.value>>(
        stream, grid_of(a.sequence * a.samples), 32 * kHeadWarps, 0, on_device(x),
        on_device(norms.q_weight), on_device(norms.k_weight), on_device(y), a.qkv_stride, a.heads,
        a.kv_heads, a.head_dim, static_cast<float>(norms.eps));
  });
}

std::int64_t head_norms_workspace(std::int64_t rows, int head_dim) {
  return 2 * head_parts(rows) * head_dim;
}

template <class T>
void normalize_heads_backward(Stream stream, const AttentionShape& a, const HeadNorms<T>& norms,
                              const T* x, T* gradient, float* dq_weight, float* dk_weight,
                              float* workspace) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  const std::int64_t rows = a.sequence * a.samples;
  const std::int64_t parts = head_parts(rows);
  const auto floats = static_cast<std::size_t>(kHeadWarps * ceil_div(a.head_dim, n) * n);
  const bool packs = in_packs<D>(a) && aligned(norms.q_weight, norms.k_weight, x, gradient);
  with_flag(packs, [&](auto vectorized) {
    launch<normalize_row_heads_back<D, vectorized.value>>(
        stream, grid_of(parts), 32 * kHeadWarps, floats * sizeof(float), on_device(x),
        on_device(norms.q_weight), on_device(norms.k_weight), on_device(gradient), workspace, rows,
        a.qkv_stride, a.heads, a.kv_heads, a.head_dim, static_cast<float>(norms.eps));
  });
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
