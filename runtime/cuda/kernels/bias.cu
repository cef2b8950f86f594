#include <algorithm>

#include "runtime/cuda/kernels/columns.cuh"

namespace echelon::cuda {
namespace {

constexpr int kBiasThreads = 256;
// Enough parts that all multiprocessors have work, few enough that adding them is negligible; a
// constant, so that the sums do not depend on the device.
constexpr std::int64_t kBiasParts = 128;

std::int64_t bias_parts(std::int64_t rows) {
  return std::min<std::int64_t>(kBiasParts, ceil_div(rows, kRowsOfBlock));
}

/// Block x: a row; y: a part of its columns. x[row] += y[row / samples], or y[0] without samples.
template <class T, bool vectorized>
__global__ void add_to_rows(T* x, const T* y, std::int64_t width, int samples) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  const std::int64_t from = samples == 0 ? 0 : row / samples * width;
  Pack<n> a = load_in_row<n, vectorized>(x + row * width + i, width - i);
  const Pack<n> b = load_in_row<n, vectorized>(y + from + i, width - i);
#pragma unroll
  for (int j = 0; j < n; ++j) a.at[j] += b.at[j];
  store_in_row<n, vectorized>(x + row * width + i, a, width - i);
}

template <class T>
void launch_add_to_rows(Stream stream, T* x, const T* y, std::int64_t rows, std::int64_t width,
                        int samples) {
  using D = typename OnDevice<T>::Type;
  const unsigned threads = threads_for(ceil_div(width, kPack<D>), kBiasThreads);
  const dim3 blocks = grid_of(rows, ceil_div(width, std::int64_t{threads} * kPack<D>));
  with_flag(aligned(x, y) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<add_to_rows<D, vectorized.value>>(stream, blocks, threads, 0, on_device(x), on_device(y),
                                             width, samples);
  });
}

/// Block x: columns; y: a part of the rows. out[y, c] = Σ of dy over the part.
template <class T, bool vectorized>
__global__ void sum_part(const T* dy, float* out, std::int64_t rows, std::int64_t width,
                         std::int64_t part) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto memory = shared.allocate<float>(kColumnsOfBlock * kRowsOfBlock * n);
  const std::int64_t i = (std::int64_t{blockIdx.x} * kColumnsOfBlock + threadIdx.x) * n;
  const std::int64_t begin = blockIdx.y * part;
  const std::int64_t end = begin + part < rows ? begin + part : rows;
  Pack<n> sums{};
  if (i < width) {
    for (std::int64_t r = begin + threadIdx.y; r < end; r += kRowsOfBlock) {
      const Pack<n> d = load_in_row<n, vectorized>(dy + r * width + i, width - i);
#pragma unroll
      for (int j = 0; j < n; ++j) sums.at[j] += d.at[j];
    }
  }
  sum_of_rows(sums, memory);
  if (threadIdx.y != 0 || i >= width) return;
  store_in_row<n, vectorized>(out + blockIdx.y * width + i, sums, width - i);
}

/// One thread for n columns of a position. dpositions[p] += Σ over its samples of dy.
template <class T, bool vectorized>
__global__ void sum_samples(const T* dy, float* dpositions, std::int64_t width, int samples) {
  constexpr int n = kPack<T>;
  const std::int64_t position = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  float* const to = dpositions + position * width + i;
  Pack<n> sums = load_in_row<n, vectorized>(to, width - i);
  for (int s = 0; s < samples; ++s) {
    const Pack<n> d =
        load_in_row<n, vectorized>(dy + (position * samples + s) * width + i, width - i);
#pragma unroll
    for (int j = 0; j < n; ++j) sums.at[j] += d.at[j];
  }
  store_in_row<n, vectorized>(to, sums, width - i);
}

}  // namespace

template <class T>
void add_bias(Stream stream, T* x, const T* bias, std::int64_t rows, std::int64_t width) {
  launch_add_to_rows(stream, x, bias, rows, width, 0);
}

template <class T>
void add_positions(Stream stream, T* x, const T* positions, std::int64_t rows, int samples,
                   std::int64_t width) {
  launch_add_to_rows(stream, x, positions, rows, width, samples);
}

std::int64_t bias_gradient_workspace(std::int64_t rows, std::int64_t width) {
  return bias_parts(rows) * width;
}

template <class T>
void bias_gradient(Stream stream, const T* dy, float* dbias, float* workspace, std::int64_t rows,
                   std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  const std::int64_t parts = bias_parts(rows);
  if (parts == 0) return;
  const std::int64_t part = ceil_div(rows, parts);
  const dim3 threads(kColumnsOfBlock, kRowsOfBlock);
  const std::size_t shared = kColumnsOfBlock * kRowsOfBlock * n * sizeof(float);
  with_flag(aligned(dy, workspace) && width % n == 0, [&](auto vectorized) {
    launch<sum_part<D, vectorized.value>>(
        stream, grid_of(ceil_div(width, kColumnsOfBlock * n), parts), threads, shared,
        on_device(dy), workspace, rows, width, part);
  });
  launch_add_parts(stream, workspace, parts, width, dbias);
}

template <class T>
void position_gradient(Stream stream, const T* dy, float* dpositions, std::int64_t rows,
                       int samples, std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  const unsigned threads = threads_for(ceil_div(width, kPack<D>), kBiasThreads);
  const dim3 blocks = grid_of(rows / samples, ceil_div(width, std::int64_t{threads} * kPack<D>));
  with_flag(aligned(dy, dpositions) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<sum_samples<D, vectorized.value>>(stream, blocks, threads, 0, on_device(dy), dpositions,
                                             width, samples);
  });
}

#define ECHELON_BIAS(T)                                                                         \
  template void add_bias<T>(Stream, T*, const T*, std::int64_t, std::int64_t);                  \
  template void add_positions<T>(Stream, T*, const T*, std::int64_t, int, std::int64_t);        \
  template void bias_gradient<T>(Stream, const T*, float*, float*, std::int64_t, std::int64_t); \
  template void position_gradient<T>(Stream, const T*, float*, std::int64_t, int, std::int64_t);
ECHELON_BIAS(float)
ECHELON_BIAS(Bfloat16)
#undef ECHELON_BIAS

}  // namespace echelon::cuda
