// Cross entropy of a vocabulary split over ranks: one pass over the logits for the loss, and one
// that turns them into their gradient. Source: the online softmax, arXiv 1805.02867, algorithm 3.
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kLossThreads = 512;
constexpr int kScaleThreads = 256;
constexpr float kNoLogit = -INFINITY;

/// e^(x − max) as a power of two.
__device__ __forceinline__ float exp_less(float x, float max) {
  return power_of_two((x - max) * kLog2E);
}

/// The state of a row so far: the largest logit, and Σ exp(logit − largest).
struct Softmax {
  float largest = kNoLogit;
  float sum = 0;

  /// What exponents are relative to: minus infinity has probability zero, even if no other logit
  /// was seen.
  __device__ float origin() const { return largest == kNoLogit ? 0.0F : largest; }
  __device__ void raise(float larger) {
    const float before = largest;
    largest = fmaxf(largest, larger);
    sum *= exp_less(before, origin());
  }
  template <int n>
  __device__ void take_in(const Pack<n>& logits) {
    float larger = logits.at[0];
#pragma unroll
    for (int j = 1; j < n; ++j) larger = fmaxf(larger, logits.at[j]);
    raise(larger);
    const float from = origin();
#pragma unroll
    for (int j = 0; j < n; ++j) sum += exp_less(logits.at[j], from);
  }
};

/// NaN is ignored: its exponential is NaN.
__device__ float block_max(float x, const Shared<float>& of_warps) {
  x = warp_max(x);
  if (lane_index() == 0) of_warps.write(warp_index(), x);
  __syncthreads();
  float largest = kNoLogit;
  for (int warp = 0; warp < static_cast<int>(blockDim.x / 32); ++warp) {
    largest = fmaxf(largest, of_warps.read(warp));
  }
  __syncthreads();
  return largest;
}

/// Block: a row. The logits are read once.
template <class T, bool vectorized>
__global__ void row_partials(const T* logits, const std::int32_t* targets, float* max, float* sums,
                             std::int64_t columns, std::int64_t valid, std::int64_t first) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto of_warps = shared.allocate<float>(kMaxWarps);
  const std::int64_t row = blockIdx.x;
  logits += row * columns;
  Softmax softmax;
  const std::int64_t step = std::int64_t{blockDim.x} * n;
  for (std::int64_t i = std::int64_t{threadIdx.x} * n; i < valid; i += step) {
    Pack<n> v = load_in_row<n, vectorized>(logits + i, valid - i);
    if (valid - i < n) {
#pragma unroll
      for (int j = 0; j < n; ++j) v.at[j] = j < valid - i ? v.at[j] : kNoLogit;
    }
    softmax.take_in(v);
  }
  const float largest = block_max(softmax.largest, of_warps);
  softmax.raise(largest);
  const float sum = block_sum(softmax.sum, of_warps);
  if (threadIdx.x != 0) return;
  const std::int64_t target = targets[row] - first;
  max[row] = largest;
  sums[2 * row] = sum;
  sums[2 * row + 1] = target >= 0 && target < valid ? to_float(logits[target]) : 0.0F;
}

/// Thread: a row. A part without logits, or with none but minus infinity, has no sum to rescale.
__global__ void rescale_rows(const float* part_max, const float* max, float* sums,
                             std::int64_t rows) {
  const std::int64_t row = thread_of_grid();
  if (row >= rows || part_max[row] == max[row]) return;
  sums[2 * row] *= exp_less(part_max[row], max[row]);
}

/// A single block. total += Σ over rows of log(sum) + max − the target's logit.
__global__ void sum_losses(const float* max, const float* sums, double* total, std::int64_t rows) {
  SharedMemory shared;
  const auto of_warps = shared.allocate<double>(kMaxWarps);
  double loss = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    loss += log(static_cast<double>(sums[2 * row])) + static_cast<double>(max[row]) -
            static_cast<double>(sums[2 * row + 1]);
  }
  loss = block_sum(loss, of_warps);
  if (threadIdx.x == 0) *total += loss;
}

/// Block: a row, in place. One read and one write of the logits.
template <class T, bool vectorized>
__global__ void row_gradient(T* logits, const std::int32_t* targets, const float* max,
                             const float* sums, std::int64_t columns, std::int64_t valid,
                             std::int64_t first, float scale) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  logits += row * columns;
  const float largest = max[row];
  const float factor = scale / sums[2 * row];
  const std::int64_t target = targets[row] - first;
  const std::int64_t step = std::int64_t{blockDim.x} * n;
  for (std::int64_t i = std::int64_t{threadIdx.x} * n; i < columns; i += step) {
    Pack<n> v = load_in_row<n, vectorized>(logits + i, columns - i);
#pragma unroll
    for (int j = 0; j < n; ++j) v.at[j] = exp_less(v.at[j], largest) * factor;
    if (i <= target && target < i + n) {
#pragma unroll
      for (int j = 0; j < n; ++j) v.at[j] = i + j == target ? v.at[j] - scale : v.at[j];
    }
    if (valid - i < n) {
#pragma unroll
      for (int j = 0; j < n; ++j) v.at[j] = j < valid - i ? v.at[j] : 0.0F;
    }
    store_in_row<n, vectorized>(logits + i, v, columns - i);
  }
}

}  // namespace

template <class T>
void logits_partials(Stream stream, const T* logits, const std::int32_t* targets, float* max,
                     float* sums, std::int64_t rows, std::int64_t columns, std::int64_t valid,
                     std::int64_t first) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  with_flag(aligned(logits) && columns % n == 0, [&](auto vectorized) {
    launch<row_partials<D, vectorized.value>>(
        stream, grid_of(rows), threads_for(ceil_div(valid, n), kLossThreads),
        kMaxWarps * sizeof(float), on_device(logits), targets, max, sums, columns, valid, first);
  });
}

void rescale_sums(Stream stream, const float* part_max, const float* max, float* sums,
                  std::int64_t rows) {
  launch<rescale_rows>(stream, grid_of(ceil_div(rows, kScaleThreads)), kScaleThreads, 0, part_max,
                       max, sums, rows);
}

void add_losses(Stream stream, const float* max, const float* sums, double* total,
                std::int64_t rows) {
  launch<sum_losses>(stream, grid_of(1), threads_for(rows, kLossThreads),
                     kMaxWarps * sizeof(double), max, sums, total, rows);
}

template <class T>
void logits_gradient(Stream stream, T* logits, const std::int32_t* targets, const float* max,
                     const float* sums, std::int64_t rows, std::int64_t columns, std::int64_t valid,
                     std::int64_t first, double scale) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  with_flag(aligned(logits) && columns % n == 0, [&](auto vectorized) {
    launch<row_gradient<D, vectorized.value>>(
        stream, grid_of(rows), threads_for(ceil_div(columns, n), kLossThreads), 0,
        on_device(logits), targets, max, sums, columns, valid, first, static_cast<float>(scale));
  });
}

#define ECHELON_LOSS(T)                                                                         \
  template void logits_partials<T>(Stream, const T*, const std::int32_t*, float*, float*,       \
                                   std::int64_t, std::int64_t, std::int64_t, std::int64_t);     \
  template void logits_gradient<T>(Stream, T*, const std::int32_t*, const float*, const float*, \
                                   std::int64_t, std::int64_t, std::int64_t, std::int64_t,      \
                                   double);
ECHELON_LOSS(float)
ECHELON_LOSS(Bfloat16)
#undef ECHELON_LOSS

}  // namespace echelon::cuda
