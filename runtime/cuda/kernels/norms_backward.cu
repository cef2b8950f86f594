// LayerNorm and RMSNorm, backward. dx needs sums over a row, the gradients of the parameters need
// sums over the rows: a block processes a strided set of rows, which it reads once from memory (and
// again from its cache), and accumulates its column sums in the same pass.
#include <algorithm>

#include "runtime/cuda/kernels/columns.cuh"

namespace echelon::cuda {
namespace {

constexpr int kNormBackThreads = 512;
constexpr std::size_t kNormBackSharedBytes = 96 * 1024;
// Two blocks on a multiprocessor of 9.0, one on one of 8.0 (norms_forward.cu).
// Two blocks for each of the 132 multiprocessors of an H200 (NVIDIA H100 white paper, SXM5), and
// more than two for the 108 of an A100; a constant, so that sums do not depend on the device.
constexpr std::int64_t kNormParts = 264;

std::int64_t norm_parts(std::int64_t rows) { return std::min(rows, kNormParts); }

/// This block's sums of columns: each thread's own ones, in shared memory if they fit.
template <bool vectorized, bool in_shared>
class ColumnSums {
 public:
  __device__ ColumnSums(const Shared<float>& memory, float* global, std::int64_t width)
      : memory_(memory), global_(global), width_(width) {}
  template <int n>
  __device__ void set(std::int64_t i, const Pack<n>& values) const {
    if constexpr (in_shared) {
      store(memory_, i, values);
    } else {
      store<n, vectorized>(global_ + i, values, width_ - i);
    }
  }
  template <int n>
  __device__ void add(std::int64_t i, const Pack<n>& values) const {
    Pack<n> sums = at<n>(i);
#pragma unroll
    for (int j = 0; j < n; ++j) sums.at[j] += values.at[j];
    set(i, sums);
  }
  template <int n>
  __device__ void finish(std::int64_t i) const {
    if constexpr (in_shared) store<n, vectorized>(global_ + i, at<n>(i), width_ - i);
  }

 private:
  template <int n>
  __device__ Pack<n> at(std::int64_t i) const {
    if constexpr (in_shared) return load<n>(memory_, i);
    return load<n, vectorized>(global_ + i, width_ - i);
  }
  Shared<float> memory_;
  float* global_;
  std::int64_t width_;
};

/// With x̂ = (x − mean)·rstd and g = dy·weight: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)), without
/// mean(g) for the RMS norm; this block's part of dweight = Σ dy·x̂ and dbias = Σ dy.
/// `parts`: [blocks, width] of dweight, then the same of dbias.
template <class T, bool centred, bool vectorized, bool in_shared>
__global__ void norm_rows_back(const T* dy, const T* x, const T* weight, const float* means,
                               const float* rstds, const T* gradient, T* dx, float* parts,
                               std::int64_t rows, std::int64_t width) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto of_warps = shared.allocate<float>(kMaxWarps);
  float* const part = parts + blockIdx.x * width;
  const std::int64_t floats = in_shared ? ceil_div(width, n) * n : 0;
  const ColumnSums<vectorized, in_shared> weights(shared.allocate<float>(floats), part, width);
  const ColumnSums<vectorized, in_shared> biases(shared.allocate<float>(centred ? floats : 0),
                                                 part + gridDim.x * width, width);
  const std::int64_t first = std::int64_t{threadIdx.x} * n;
  const std::int64_t step = std::int64_t{blockDim.x} * n;
  for (std::int64_t i = first; i < width; i += step) {
    weights.set(i, Pack<n>{});
    if constexpr (centred) biases.set(i, Pack<n>{});
  }
  const auto count = static_cast<float>(width);
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float mean = centred ? means[row] : 0.0F;
    const float rstd = rstds[row];
    float total = 0;
    float dot = 0;
    for (std::int64_t i = first; i < width; i += step) {
      const Pack<n> d = load<n, vectorized>(dy + row * width + i, width - i);
      const Pack<n> v = load<n, vectorized>(x + row * width + i, width - i);
      const Pack<n> w = load<n, vectorized>(weight + i, width - i);
      Pack<n> slopes;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float hat = (v.at[j] - mean) * rstd;
        const float g = d.at[j] * w.at[j];
        total += g;
        dot += g * hat;
        slopes.at[j] = d.at[j] * hat;
      }
      weights.add(i, slopes);
      if constexpr (centred) biases.add(i, d);
    }
    const float mean_g = centred ? block_sum(total, of_warps) / count : 0.0F;
    const float mean_dot = block_sum(dot, of_warps) / count;
    for (std::int64_t i = first; i < width; i += step) {
      Pack<n> d = load<n, vectorized>(dy + row * width + i, width - i);
      const Pack<n> v = load<n, vectorized>(x + row * width + i, width - i);
      const Pack<n> w = load<n, vectorized>(weight + i, width - i);
      Pack<n> round{};
      if (gradient != nullptr) round = load<n, vectorized>(gradient + row * width + i, width - i);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float hat = (v.at[j] - mean) * rstd;
        d.at[j] = (d.at[j] * w.at[j] - mean_g - hat * mean_dot) * rstd + round.at[j];
      }
      store<n, vectorized>(dx + row * width + i, d, width - i);
    }
  }
  for (std::int64_t i = first; i < width; i += step) {
    weights.template finish<n>(i);
    if constexpr (centred) biases.template finish<n>(i);
  }
}

template <bool centred, class T>
void norm_backward(Stream stream, const T* dy, const T* x, const T* weight, const float* mean,
                   const float* rstd, const T* gradient, T* dx, float* dweight, float* dbias,
                   float* workspace, std::int64_t rows, std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  const std::int64_t parts = norm_parts(rows);
  if (parts == 0) return;
  const std::size_t sums =
      static_cast<std::size_t>(ceil_div(width, n) * n) * sizeof(float) * (centred ? 2 : 1);
  const bool fits = sums <= kNormBackSharedBytes;
  const std::size_t shared = kMaxWarps * sizeof(float) + (fits ? sums : 0);
  with_flag(aligned(dy, x, weight, gradient, dx, workspace) && width % n == 0,
            [&](auto vectorized) {
              with_flag(fits, [&](auto in_shared) {
                launch<norm_rows_back<D, centred, vectorized.value, in_shared.value>>(
                    stream, grid_of(parts), threads_for(ceil_div(width, n), kNormBackThreads),
                    shared, on_device(dy), on_device(x), on_device(weight), mean, rstd,
                    on_device(gradient), on_device(dx), workspace, rows, width);
              });
            });
  launch_add_parts(stream, workspace, parts, width, dweight);
  if (centred) launch_add_parts(stream, workspace + parts * width, parts, width, dbias);
}

}  // namespace

std::int64_t norm_backward_workspace(std::int64_t rows, std::int64_t width) {
  return 2 * norm_parts(rows) * width;
}

template <class T>
void layer_norm_backward(Stream stream, const T* dy, const T* x, const T* weight, const float* mean,
                         const float* rstd, const T* gradient, T* dx, float* dweight, float* dbias,
                         float* workspace, std::int64_t rows, std::int64_t width) {
  norm_backward<true>(stream, dy, x, weight, mean, rstd, gradient, dx, dweight, dbias, workspace,
                      rows, width);
}

template <class T>
void rms_norm_backward(Stream stream, const T* dy, const T* x, const T* weight, const float* rstd,
                       const T* gradient, T* dx, float* dweight, float* workspace,
                       std::int64_t rows, std::int64_t width) {
  norm_backward<false, T>(stream, dy, x, weight, nullptr, rstd, gradient, dx, dweight, nullptr,
                          workspace, rows, width);
}

#define ECHELON_NORMS_BACKWARD(T)                                                                  \
  template void layer_norm_backward<T>(Stream, const T*, const T*, const T*, const float*,         \
                                       const float*, const T*, T*, float*, float*, float*,         \
                                       std::int64_t, std::int64_t);                                \
  template void rms_norm_backward<T>(Stream, const T*, const T*, const T*, const float*, const T*, \
                                     T*, float*, float*, std::int64_t, std::int64_t);
ECHELON_NORMS_BACKWARD(float)
ECHELON_NORMS_BACKWARD(Bfloat16)
#undef ECHELON_NORMS_BACKWARD

}  // namespace echelon::cuda
