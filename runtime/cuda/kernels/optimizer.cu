#include <algorithm>

#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kAdamThreads = 256;
constexpr int kAdamEach = 4;
constexpr int kSquareThreads = 256;
constexpr int kSquareEach = 4;
// Enough blocks to keep a device busy; a constant, so that sums do not depend on the device.
constexpr std::int64_t kSquareParts = 1024;

/// Adam (arXiv 1412.6980) algorithm 1, AdamW (arXiv 1711.05101) algorithm 2. A thread has four
/// numbers: 16 bytes of each operand, 8 of bf16 weights.
template <class T, bool vectorized, bool copies>
__global__ void adam_packs(AdamFactors<float> f, const float* gradient_scale, const float* gradient,
                           float* master, float* m, float* v, T* weights, std::int64_t count) {
  constexpr int n = kAdamEach;
  const std::int64_t i = thread_of_grid() * n;
  if (i >= count) return;
  const std::int64_t left = count - i;
  const float scale = gradient_scale == nullptr ? f.scale : f.scale * *gradient_scale;
  if (scale != scale) return;  // NaN
  const Pack<n> g = load<n, vectorized>(gradient + i, left);
  Pack<n> weight = load<n, vectorized>(master + i, left);
  Pack<n> mean = load<n, vectorized>(m + i, left);
  Pack<n> square = load<n, vectorized>(v + i, left);
#pragma unroll
  for (int j = 0; j < n; ++j) {
    const float slope = g.at[j] * scale + f.added * weight.at[j];
    mean.at[j] = f.beta1 * mean.at[j] + f.rest1 * slope;
    square.at[j] = f.beta2 * square.at[j] + f.rest2 * slope * slope;
    weight.at[j] =
        f.kept * weight.at[j] - f.rate * mean.at[j] / (sqrtf(square.at[j]) * f.root + f.eps);
  }
  store<n, vectorized>(m + i, mean, left);
  store<n, vectorized>(v + i, square, left);
  store<n, vectorized>(master + i, weight, left);
  if constexpr (copies) store<n, vectorized>(weights + i, weight, left);
}

/// Block: a strided set of groups of four. parts[block] = Σ x².
template <class T, bool vectorized>
__global__ void square_parts(const T* x, double* parts, std::int64_t count) {
  constexpr int n = kSquareEach;
  SharedMemory shared;
  const auto of_warps = shared.allocate<double>(kMaxWarps);
  double sum = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x * n;
  for (std::int64_t i = thread_of_grid() * n; i < count; i += step) {
    const Pack<n> v = load<n, vectorized>(x + i, count - i);
#pragma unroll
    for (int j = 0; j < n; ++j) sum += static_cast<double>(v.at[j]) * static_cast<double>(v.at[j]);
  }
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/// A single block. total += Σ parts.
__global__ void add_squares(const double* parts, std::int64_t count, double* total) {
  SharedMemory shared;
  const auto of_warps = shared.allocate<double>(kMaxWarps);
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) *total += sum;
}

__global__ void find_scale(const double* squares, double max_norm, float* scale) {
  if (threadIdx.x != 0) return;
  constexpr double kLittle = 1e-6;  // torch.nn.utils.clip_grad_norm_
  const double norm = sqrt(*squares);
  const bool clips = max_norm > 0 && norm > max_norm;
  const double found = clips ? max_norm / (norm + kLittle) : 1.0;
  *scale = norm - norm == 0 ? static_cast<float>(found) : nanf("");
}

}  // namespace

template <class T>
void adam(Stream stream, const AdamStep& step, const float* gradient_scale, const float* gradient,
          float* master, float* m, float* v, T* weights, std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  const bool copies = static_cast<const void*>(weights) != master;
  const dim3 blocks = grid_of(ceil_div(count, std::int64_t{kAdamThreads} * kAdamEach));
  with_flag(aligned(gradient, master, m, v, weights), [&](auto vectorized) {
    with_flag(copies, [&](auto copied) {
      launch<adam_packs<D, vectorized.value, copied.value>>(
          stream, blocks, kAdamThreads, 0, AdamFactors<float>(step), gradient_scale, gradient,
          master, m, v, on_device(weights), count);
    });
  });
}

std::int64_t sum_of_squares_workspace(std::int64_t count) {
  return std::min(kSquareParts, ceil_div(count, std::int64_t{kSquareThreads} * kSquareEach));
}

void sum_of_squares(Stream stream, const float* x, double* total, double* workspace,
                    std::int64_t count) {
  const std::int64_t parts = sum_of_squares_workspace(count);
  if (parts == 0) return;
  const std::size_t shared = kMaxWarps * sizeof(double);
  with_flag(aligned(x), [&](auto vectorized) {
    launch<square_parts<float, vectorized.value>>(stream, grid_of(parts), kSquareThreads, shared, x,
                                                  workspace, count);
  });
  launch<add_squares>(stream, grid_of(1), kSquareThreads, shared, workspace, parts, total);
}

void clip_scale(Stream stream, const double* squares, double max_norm, float* scale) {
  launch<find_scale>(stream, grid_of(1), 32, 0, squares, max_norm, scale);
}

#define ECHELON_ADAM(T)                                                                      \
  template void adam<T>(Stream, const AdamStep&, const float*, const float*, float*, float*, \
                        float*, T*, std::int64_t);
ECHELON_ADAM(float)
ECHELON_ADAM(Bfloat16)
#undef ECHELON_ADAM

}  // namespace echelon::cuda
