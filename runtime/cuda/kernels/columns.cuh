// Sums over the rows of a matrix, in two steps without atomics: blocks add up parts of the rows
// into a workspace [parts, width], then `add_parts` adds those, in a fixed order.
#pragma once

#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {

/// A block of the second step, and of sums over columns in general: 32 adjacent columns (or vectors
/// of them), 8 rows at a time.
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

/// out[c] += Σ over parts of workspace[part, c].
template <class Out>
__global__ void add_parts(const float* workspace, std::int64_t parts, std::int64_t width,
                          Out* out) {
  SharedMemory shared;
  const auto memory = shared.allocate<float>(kColumnsOfBlock * kRowsOfBlock);
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumnsOfBlock + threadIdx.x;
  Pack<1> sum{};
  if (column < width) {
    for (std::int64_t part = threadIdx.y; part < parts; part += kRowsOfBlock) {
      sum.at[0] += workspace[part * width + column];
    }
  }
  sum_of_rows(sum, memory);
  if (threadIdx.y == 0 && column < width) out[column] += sum.at[0];
}

inline void launch_add_parts(Stream stream, const float* workspace, std::int64_t parts,
                             std::int64_t width, float* out) {
  launch<add_parts<float>>(
      stream, grid_of(ceil_div(width, kColumnsOfBlock)), dim3(kColumnsOfBlock, kRowsOfBlock),
      kColumnsOfBlock * kRowsOfBlock * sizeof(float), workspace, parts, width, out);
}

}  // namespace echelon::cuda
