// LayerNorm (arXiv 1607.06450) and RMSNorm (arXiv 1910.07467), forward, with the sum before them.
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kNormThreads = 512;
constexpr std::size_t kNormSharedBytes = 96 * 1024;
// Two blocks on a multiprocessor of 9.0, which has 228 KiB, one on one of 8.0 (164 KiB). Source:
// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".

/// A row after the first pass: each thread reads back what it wrote.
template <class T, bool kept>
class Row {
 public:
  __device__ Row(const Shared<T>& memory, const T* source) : memory_(memory), source_(source) {}
  template <int n>
  __device__ void keep(std::int64_t i, const Pack<n>& v) const {
    if constexpr (kept) store(memory_, i, v);
  }
  template <int n, bool vectorized>
  __device__ Pack<n> second_read(std::int64_t i, std::int64_t left) const {
    if constexpr (kept) return load<n>(memory_, i);
    return load_in_row<n, vectorized>(source_ + i, left);
  }

 private:
  Shared<T> memory_;
  const T* source_;
};

/// Block: a row, which is read once if it is `kept` in shared memory.
/// y = (x − mean)·rstd·weight (+ bias); without `centred` the mean is 0 and there is no bias.
/// `x_bias`, `residual` and `sum` are those of SumBefore.
template <class T, bool centred, bool vectorized, bool kept>
__global__ void norm_row(const T* x, const T* x_bias, const T* residual, T* sum, const T* weight,
                         const T* bias, T* y, float* mean_out, float* rstd_out, std::int64_t width,
                         float eps) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto of_warps = shared.allocate<float>(kMaxWarps);
  const std::int64_t first = std::int64_t{threadIdx.x} * n;
  const std::int64_t step = std::int64_t{blockDim.x} * n;
  const std::int64_t row = blockIdx.x;
  x += row * width;
  if (residual != nullptr) {
    residual += row * width;
    sum += row * width;
  }
  const Row<T, kept> kept_row(shared.allocate<T>(kept ? ceil_div(width, n) * n : 0),
                              residual != nullptr ? sum : x);
  float total = 0;
  for (std::int64_t i = first; i < width; i += step) {
    Pack<n> v = load_in_row<n, vectorized>(x + i, width - i);
    if (residual != nullptr) {
      const Pack<n> r = load_in_row<n, vectorized>(residual + i, width - i);
      if (x_bias != nullptr) {
        const Pack<n> b = load_in_row<n, vectorized>(x_bias + i, width - i);
#pragma unroll
        for (int j = 0; j < n; ++j) v.at[j] = to_float(from_float<T>(v.at[j] + b.at[j]));
      }
#pragma unroll
      for (int j = 0; j < n; ++j) v.at[j] = to_float(from_float<T>(v.at[j] + r.at[j]));
      store_in_row<n, vectorized>(sum + i, v, width - i);
    }
    kept_row.keep(i, v);
#pragma unroll
    for (int j = 0; j < n; ++j) total += v.at[j];
  }
  const auto count = static_cast<float>(width);
  const float mean = centred ? block_sum(total, of_warps) / count : 0.0F;
  float squares = 0;
  for (std::int64_t i = first; i < width; i += step) {
    const Pack<n> v = kept_row.template second_read<n, vectorized>(i, width - i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float a = v.at[j] - mean;
      if (vectorized || j < width - i) squares += a * a;
    }
  }
  const float rstd = 1 / sqrtf(block_sum(squares, of_warps) / count + eps);
  for (std::int64_t i = first; i < width; i += step) {
    Pack<n> v = kept_row.template second_read<n, vectorized>(i, width - i);
    const Pack<n> w = load_in_row<n, vectorized>(weight + i, width - i);
    Pack<n> b{};
    if constexpr (centred) b = load_in_row<n, vectorized>(bias + i, width - i);
#pragma unroll
    for (int j = 0; j < n; ++j) v.at[j] = (v.at[j] - mean) * rstd * w.at[j] + b.at[j];
    store_in_row<n, vectorized>(y + row * width + i, v, width - i);
  }
  if (threadIdx.x != 0) return;
  if constexpr (centred) mean_out[row] = mean;
  rstd_out[row] = rstd;
}

template <bool centred, class T>
void norm_forward(Stream stream, const T* x, const SumBefore<T>& before, const T* weight,
                  const T* bias, T* y, float* mean, float* rstd, std::int64_t rows,
                  std::int64_t width, double eps) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  const auto row_bytes = static_cast<std::size_t>(ceil_div(width, n) * n) * sizeof(D);
  const bool kept = row_bytes <= kNormSharedBytes;
  const std::size_t shared = kMaxWarps * sizeof(float) + (kept ? row_bytes : 0);
  const bool all_aligned =
      aligned(x, before.bias, before.residual, before.sum, weight, bias, y) && width % n == 0;
  with_flag(all_aligned, [&](auto vectorized) {
    with_flag(kept, [&](auto keeps) {
      launch<norm_row<D, centred, vectorized.value, keeps.value>>(
          stream, grid_of(rows), threads_for(ceil_div(width, n), kNormThreads), shared,
          on_device(x), on_device(before.bias), on_device(before.residual), on_device(before.sum),
          on_device(weight), on_device(bias), on_device(y), mean, rstd, width,
          static_cast<float>(eps));
    });
  });
}

}  // namespace

template <class T>
void layer_norm_forward(Stream stream, const T* x, const SumBefore<T>& before, const T* weight,
                        const T* bias, T* y, float* mean, float* rstd, std::int64_t rows,
                        std::int64_t width, double eps) {
  norm_forward<true>(stream, x, before, weight, bias, y, mean, rstd, rows, width, eps);
}

template <class T>
void rms_norm_forward(Stream stream, const T* x, const SumBefore<T>& before, const T* weight, T* y,
                      float* rstd, std::int64_t rows, std::int64_t width, double eps) {
  norm_forward<false, T>(stream, x, before, weight, nullptr, y, nullptr, rstd, rows, width, eps);
}

#define ECHELON_NORMS_FORWARD(T)                                                                 \
  template void layer_norm_forward<T>(Stream, const T*, const SumBefore<T>&, const T*, const T*, \
                                      T*, float*, float*, std::int64_t, std::int64_t, double);   \
  template void rms_norm_forward<T>(Stream, const T*, const SumBefore<T>&, const T*, T*, float*, \
                                    std::int64_t, std::int64_t, double);
ECHELON_NORMS_FORWARD(float)
ECHELON_NORMS_FORWARD(Bfloat16)
#undef ECHELON_NORMS_FORWARD

}  // namespace echelon::cuda
