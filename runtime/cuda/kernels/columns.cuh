// Sums over the rows of a matrix, in two steps without atomics: blocks add up parts of the rows
// into a workspace [parts, width], then `add_parts` adds those, in a fixed order.
#pragma once

#include <algorithm>

#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {

/// A block of sums over columns: 32 adjacent ones (or vectors of them), 8 rows at a time.
inline constexpr unsigned kColumnsOfBlock = 32;
inline constexpr unsigned kRowsOfBlock = 8;

/// The sum over the 8 rows of the block of each thread's n numbers, in order, for its first row.
/// `memory`: 8 · 32 · n numbers.
template <int n>
__device__ __forceinline__ void sum_of_rows(Pack<n>& sums, const Shared<float>& memory) {
  const int column = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(threadIdx.y);
  constexpr int kColumns = static_cast<int>(kColumnsOfBlock);
  // Number j of all threads of a row is contiguous: threads use different banks.
#pragma unroll
  for (int j = 0; j < n; ++j) memory.write((row * n + j) * kColumns + column, sums.at[j]);
  __syncthreads();
  if (row != 0) return;
  for (int other = 1; other < static_cast<int>(kRowsOfBlock); ++other) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      sums.at[j] += memory.read((other * n + j) * kColumns + column);
    }
  }
}

/// part[c] = Σ over the block's warps of their sums, in order; these lie as a warp's row does.
/// `memory`: a row of whole packs for each warp.
template <int n, int packs>
__device__ __forceinline__ void add_warps(const Pack<n> (&sums)[packs], const Shared<float>& memory,
                                          float* part, std::int64_t width) {
  const std::int64_t stride = ceil_div(width, n) * n;
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const int i = (p * 32 + lane_index()) * n;
    if (i < width) store(memory, warp_index() * stride + i, sums[p]);
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    float sum = 0;
    for (int warp = 0; warp < static_cast<int>(blockDim.x / 32); ++warp)
      sum += memory.read(warp * stride + i);
    part[i] = sum;
  }
}

/// Rows of threads of a block of `add_parts`, at most: as many as its columns.
inline constexpr std::int64_t kPartsOfBlock = 32;

/// out[c] += Σ over parts of workspace[part, c]; blocks with y = 1 add the `parts` behind to
/// `other`.
template <class Out>
__global__ void add_parts(const float* workspace, std::int64_t parts, std::int64_t width, Out* out,
                          Out* other) {
  SharedMemory shared;
  constexpr int kStride = kColumnsOfBlock + 1;  // threads of a warp read from different banks
  const auto memory = shared.allocate<float>(blockDim.y * kStride);
  if (blockIdx.y == 1) {
    workspace += parts * width;
    out = other;
  }
  const std::int64_t first = std::int64_t{blockIdx.x} * kColumnsOfBlock;
  const std::int64_t column = first + threadIdx.x;
  float sum = 0;
  if (column < width) {
#pragma unroll 4
    for (std::int64_t part = threadIdx.y; part < parts; part += blockDim.y) {
      sum += workspace[part * width + column];
    }
  }
  memory.write(threadIdx.y * kStride + threadIdx.x, sum);
  __syncthreads();
  for (unsigned i = threadIdx.y; i < kColumnsOfBlock; i += blockDim.y) {  // a warp: a column
    sum = warp_sum(threadIdx.x < blockDim.y ? memory.read(threadIdx.x * kStride + i) : 0.0F);
    if (threadIdx.x == 0 && first + i < width) out[first + i] += sum;
  }
}

/// With `other`, the workspace has as many parts for it behind those of `out`.
inline void launch_add_parts(Stream stream, const float* workspace, std::int64_t parts,
                             std::int64_t width, float* out, float* other = nullptr) {
  const auto rows = static_cast<unsigned>(std::min(parts, kPartsOfBlock));
  launch<add_parts<float>>(
      stream, grid_of(ceil_div(width, kColumnsOfBlock), other == nullptr ? 1 : 2),
      dim3(kColumnsOfBlock, rows), rows * (kColumnsOfBlock + 1) * sizeof(float), workspace, parts,
      width, out, other);
}

}  // namespace echelon::cuda
