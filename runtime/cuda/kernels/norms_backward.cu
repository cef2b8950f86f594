// LayerNorm and RMSNorm, backward. dx needs sums over a row, the gradients of the parameters need
// sums over the rows: a block processes a strided set of rows and accumulates its column sums in
// the same pass. Narrow rows are read once, by a warp each, others by a block, into registers; the
// widest twice, the second time from a cache.
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
/// A warp's row: as many packs of each lane. A block has eight such rows.
constexpr int kPacksOfLane = 4;
constexpr int kWarpsOfBlock = 8;

/// At most; blocks of a row with less than half the threads are twice as many.
std::int64_t norm_parts(std::int64_t rows, std::int64_t width) {
  return std::min(rows, width > 1024 && width <= 2048 ? 2 * kNormParts : kNormParts);
}

/// Both sums over the block, as block_sum. `memory`: two numbers per warp, and not those of the
/// call before, so that one barrier is enough.
__device__ __forceinline__ Pack<2> block_sums(const Pack<2>& x, const Shared<float>& memory) {
  const Pack<2> own{warp_sum(x.at[0]), warp_sum(x.at[1])};
  if (lane_index() == 0) {
    memory.write(2 * warp_index(), own.at[0]);
    memory.write(2 * warp_index() + 1, own.at[1]);
  }
  __syncthreads();
  Pack<2> sums{};
  for (int warp = 0; warp < static_cast<int>(blockDim.x / 32); ++warp) {
    sums.at[0] += memory.read(2 * warp);
    sums.at[1] += memory.read(2 * warp + 1);
  }
  return sums;
}

/// With x̂ = (x − mean)·rstd and g = dy·weight: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)), without
/// mean(g) for the RMS norm; this block's part of dweight = Σ dy·x̂ and dbias = Σ dy.
/// `parts`: [blocks, width] of dweight, then the same of dbias; share: 1/width.
/// Each row is held by a warp, or with its column sums by the threads of the block, a pack each.
template <class T, bool centred, bool vectorized, bool by_warps>
__global__ void __launch_bounds__(by_warps ? 32 * kWarpsOfBlock : kNormBackThreads, 2)
    norm_held_rows_back(const T* dy, const T* x, const T* weight, const float* means,
                        const float* rstds, const T* gradient, T* dx, float* parts,
                        std::int64_t rows, std::int64_t width, float share) {
  constexpr int n = kPack<T>;
  constexpr int kPacks = by_warps ? kPacksOfLane : 1;
  constexpr int kRows = by_warps ? kWarpsOfBlock : 1;
  SharedMemory shared;
  const auto memory =
      shared.allocate<float>(by_warps ? kRows * ceil_div(width, n) * n : 4 * kMaxWarps);
  const int first = (by_warps ? lane_index() : static_cast<int>(threadIdx.x)) * n;
  Pack<n> weights[kPacks] = {};
  Pack<n> biases[kPacks] = {};
  int odd = 0;  // calls of block_sums take turns
  for (std::int64_t row = std::int64_t{blockIdx.x} * kRows + (by_warps ? warp_index() : 0);
       row < rows; row += std::int64_t{gridDim.x} * kRows) {
    const float mean = centred ? means[row] : 0.0F;
    const float rstd = rstds[row];
    Held<T> d[kPacks];
    Held<T> v[kPacks];
    Held<T> rest[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = first + p * 32 * n;
      if (i >= width) continue;
      d[p] = hold<vectorized>(dy + row * width + i, width - i);
      v[p] = hold<vectorized>(x + row * width + i, width - i);
      if (gradient != nullptr) rest[p] = hold<vectorized>(gradient + row * width + i, width - i);
    }
    Pack<2> sums{};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = first + p * 32 * n;
      if (i >= width) continue;
      const Pack<n> slopes = d[p].numbers();
      const Pack<n> values = v[p].numbers();
      const Pack<n> w = load_in_row<n, vectorized>(weight + i, width - i);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float hat = (values.at[j] - mean) * rstd;
        const float g = slopes.at[j] * w.at[j];
        sums.at[0] += g;
        sums.at[1] += g * hat;
        weights[p].at[j] += slopes.at[j] * hat;
        if constexpr (centred) biases[p].at[j] += slopes.at[j];
      }
    }
    if constexpr (by_warps) {
      sums = {warp_sum(sums.at[0]), warp_sum(sums.at[1])};
    } else {
      sums = block_sums(sums, memory.part(2 * kMaxWarps * odd));
      odd = 1 - odd;
    }
    const float mean_g = centred ? sums.at[0] * share : 0.0F;
    const float mean_dot = sums.at[1] * share;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = first + p * 32 * n;
      if (i >= width) continue;
      Pack<n> slopes = d[p].numbers();
      const Pack<n> values = v[p].numbers();
      const Pack<n> w = load_in_row<n, vectorized>(weight + i, width - i);
      Pack<n> around{};
      if (gradient != nullptr) around = rest[p].numbers();
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float hat = (values.at[j] - mean) * rstd;
        slopes.at[j] = (slopes.at[j] * w.at[j] - mean_g - hat * mean_dot) * rstd + around.at[j];
      }
      store_in_row<n, vectorized>(dx + row * width + i, slopes, width - i);
    }
  }
  float* const weight_part = parts + blockIdx.x * width;
  float* const bias_part = weight_part + gridDim.x * width;
  if constexpr (by_warps) {
    add_warps(weights, memory, weight_part, width);
    if constexpr (centred) {
      __syncthreads();
      add_warps(biases, memory, bias_part, width);
    }
  } else if (first < width) {
    store_in_row<n, vectorized>(weight_part + first, weights[0], width - first);
    if constexpr (centred) {
      store_in_row<n, vectorized>(bias_part + first, biases[0], width - first);
    }
  }
}

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
      store_in_row<n, vectorized>(global_ + i, values, width_ - i);
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
    if constexpr (in_shared) store_in_row<n, vectorized>(global_ + i, at<n>(i), width_ - i);
  }

 private:
  template <int n>
  __device__ Pack<n> at(std::int64_t i) const {
    if constexpr (in_shared) return load<n>(memory_, i);
    return load_in_row<n, vectorized>(global_ + i, width_ - i);
  }
  Shared<float> memory_;
  float* global_;
  std::int64_t width_;
};

/// The same of wider rows.
template <class T, bool centred, bool vectorized, bool in_shared>
__global__ void norm_wide_rows_back(const T* dy, const T* x, const T* weight, const float* means,
                                    const float* rstds, const T* gradient, T* dx, float* parts,
                                    std::int64_t rows, std::int64_t width, float share) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto of_warps = shared.allocate<float>(4 * kMaxWarps);
  int odd = 0;  // calls of block_sums take turns
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
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float mean = centred ? means[row] : 0.0F;
    const float rstd = rstds[row];
    Pack<2> total{};
    for (std::int64_t i = first; i < width; i += step) {
      const Pack<n> d = load_in_row<n, vectorized>(dy + row * width + i, width - i);
      const Pack<n> v = load_in_row<n, vectorized>(x + row * width + i, width - i);
      const Pack<n> w = load_in_row<n, vectorized>(weight + i, width - i);
      Pack<n> slopes;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float hat = (v.at[j] - mean) * rstd;
        const float g = d.at[j] * w.at[j];
        total.at[0] += g;
        total.at[1] += g * hat;
        slopes.at[j] = d.at[j] * hat;
      }
      weights.add(i, slopes);
      if constexpr (centred) biases.add(i, d);
    }
    total = block_sums(total, of_warps.part(2 * kMaxWarps * odd));
    odd = 1 - odd;
    const float mean_g = centred ? total.at[0] * share : 0.0F;
    const float mean_dot = total.at[1] * share;
    for (std::int64_t i = first; i < width; i += step) {
      Pack<n> d = load_in_row<n, vectorized>(dy + row * width + i, width - i);
      const Pack<n> v = load_in_row<n, vectorized>(x + row * width + i, width - i);
      const Pack<n> w = load_in_row<n, vectorized>(weight + i, width - i);
      Pack<n> round{};
      if (gradient != nullptr)
        round = load_in_row<n, vectorized>(gradient + row * width + i, width - i);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float hat = (v.at[j] - mean) * rstd;
        d.at[j] = (d.at[j] * w.at[j] - mean_g - hat * mean_dot) * rstd + round.at[j];
      }
      store_in_row<n, vectorized>(dx + row * width + i, d, width - i);
    }
  }
  for (std::int64_t i = first; i < width; i += step) {
    weights.template finish<n>(i);
    if constexpr (centred) biases.template finish<n>(i);
  }
}

template <auto kernel>
struct Kernel {
  static constexpr auto value = kernel;
};

template <bool centred, class T>
void norm_backward(Stream stream, const T* dy, const T* x, const T* weight, const float* mean,
                   const float* rstd, const T* gradient, T* dx, float* dweight, float* dbias,
                   float* workspace, std::int64_t rows, std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  if (rows == 0) return;
  const bool narrow = width <= 32 * kPacksOfLane * n;
  const bool held = narrow || width <= kNormBackThreads * n;
  const std::int64_t parts =
      std::min(narrow ? ceil_div(rows, kWarpsOfBlock) : rows, norm_parts(rows, width));
  const auto row_floats = static_cast<std::size_t>(ceil_div(width, n) * n);
  const std::size_t sums = row_floats * sizeof(float) * (centred ? 2 : 1);
  const bool fits = sums <= kNormBackSharedBytes;
  const auto run = [&](auto kernel, unsigned threads, std::size_t shared) {
    launch<kernel.value>(stream, grid_of(parts), threads, shared, on_device(dy), on_device(x),
                         on_device(weight), mean, rstd, on_device(gradient), on_device(dx),
                         workspace, rows, width, 1 / static_cast<float>(width));
  };
  const unsigned threads = threads_for(ceil_div(width, n), kNormBackThreads);
  constexpr std::size_t kOfWarps = 4 * kMaxWarps * sizeof(float);
  with_flag(
      aligned(dy, x, weight, gradient, dx, workspace) && width % n == 0, [&](auto vectorized) {
        constexpr bool kVectorized = decltype(vectorized)::value;
        if (narrow) {
          run(Kernel<norm_held_rows_back<D, centred, kVectorized, true>>{}, 32 * kWarpsOfBlock,
              kWarpsOfBlock * row_floats * sizeof(float));
        } else if (held) {
          run(Kernel<norm_held_rows_back<D, centred, kVectorized, false>>{}, threads, kOfWarps);
        } else if (fits) {
          run(Kernel<norm_wide_rows_back<D, centred, kVectorized, true>>{}, threads,
              kOfWarps + sums);
        } else {
          run(Kernel<norm_wide_rows_back<D, centred, kVectorized, false>>{}, threads, kOfWarps);
        }
      });
  if (dweight != nullptr) launch_add_parts(stream, workspace, parts, width, dweight, dbias);
}

}  // namespace

std::int64_t norm_backward_workspace(std::int64_t rows, std::int64_t width) {
  return 2 * norm_parts(rows, width) * width;
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
