// The rows that a router sends to experts.
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kThreads = 256;

/// Block x: a row; y: a part of its columns.
template <class T, bool vectorized>
__global__ void take_rows(const T* x, const std::int32_t* rows, T* y, std::int64_t width) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  const auto v = load_in_row<n, vectorized>(x + std::int64_t{rows[row]} * width + i, width - i);
  store_in_row<n, vectorized>(y + row * width + i, v, width - i);
}

/// The same; `addend`: null, or of the same rows as y.
template <class T, bool vectorized>
__global__ void add_choices(const T* x, const std::int32_t* slots, int choices, const T* addend,
                            T* y, std::int64_t width) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  Pack<n> sum{};
  if (addend != nullptr) sum = load_in_row<n, vectorized>(addend + row * width + i, width - i);
  for (int j = 0; j < choices; ++j) {
    const std::int64_t slot = slots[row * choices + j];
    const auto v = load_in_row<n, vectorized>(x + slot * width + i, width - i);
#pragma unroll
    for (int at = 0; at < n; ++at) sum.at[at] += v.at[at];
  }
  store_in_row<n, vectorized>(y + row * width + i, sum, width - i);
}

/// The same: x ·= the row's weight.
template <class T, bool vectorized>
__global__ void weight(T* x, const float* weights, std::int64_t width) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  auto v = load_in_row<n, vectorized>(x + row * width + i, width - i);
#pragma unroll
  for (int at = 0; at < n; ++at) v.at[at] *= weights[row];
  store_in_row<n, vectorized>(x + row * width + i, v, width - i);
}

/// Block x: a row.
template <class T, bool vectorized>
__global__ void weight_back(T* x, T* dy, const float* weights, float* dweights,
                            std::int64_t width) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto of_warps = shared.allocate<float>(kMaxWarps);
  const std::int64_t row = blockIdx.x;
  const float by = weights[row];
  float dot = 0;
  for (std::int64_t i = threadIdx.x * n; i < width; i += std::int64_t{blockDim.x} * n) {
    auto v = load_in_row<n, vectorized>(x + row * width + i, width - i);
    auto d = load_in_row<n, vectorized>(dy + row * width + i, width - i);
#pragma unroll
    for (int at = 0; at < n; ++at) {
      dot += v.at[at] * d.at[at];
      v.at[at] *= by;
      d.at[at] *= by;
    }
    store_in_row<n, vectorized>(x + row * width + i, v, width - i);
    store_in_row<n, vectorized>(dy + row * width + i, d, width - i);
  }
  const float sum = block_sum(dot, of_warps);
  if (threadIdx.x == 0) dweights[row] = sum;
}

/// A thread: a weight.
template <class T>
__global__ void gate(const T* logits, float* weights, std::int64_t count) {
  const std::int64_t i = thread_of_grid();
  if (i < count) weights[i] = sigmoid(to_float(logits[i]));
}

/// The same.
template <class T>
__global__ void gate_back(const float* weights, const float* dweights, T* dlogits,
                          std::int64_t count) {
  const std::int64_t i = thread_of_grid();
  if (i < count) dlogits[i] = from_float<T>(dweights[i] * weights[i] * (1 - weights[i]));
}

/// Blocks of rows, and of parts of their columns.
template <class D>
struct RowBlocks {
  RowBlocks(std::int64_t rows, std::int64_t width)
      : threads(threads_for(ceil_div(width, kPack<D>), kThreads)),
        grid(grid_of(rows, ceil_div(width, threads * kPack<D>))) {}
  unsigned threads;
  dim3 grid;
};

}  // namespace

template <class T>
void gather_rows(Stream stream, const T* x, const std::int32_t* rows, std::int64_t count,
                 std::int64_t width, T* y) {
  using D = typename OnDevice<T>::Type;
  const RowBlocks<D> blocks(count, width);
  with_flag(aligned(x, y) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<take_rows<D, vectorized.value>>(stream, blocks.grid, blocks.threads, 0, on_device(x),
                                           rows, on_device(y), width);
  });
}

template <class T>
void combine_rows(Stream stream, const T* x, const std::int32_t* slots, std::int64_t rows,
                  int choices, std::int64_t width, const T* addend, T* y) {
  using D = typename OnDevice<T>::Type;
  const RowBlocks<D> blocks(rows, width);
  with_flag(aligned(x, addend, y) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<add_choices<D, vectorized.value>>(stream, blocks.grid, blocks.threads, 0, on_device(x),
                                             slots, choices, on_device(addend), on_device(y),
                                             width);
  });
}

template <class T>
void weight_rows(Stream stream, T* x, const float* weights, std::int64_t rows, std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  const RowBlocks<D> blocks(rows, width);
  with_flag(aligned(x) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<weight<D, vectorized.value>>(stream, blocks.grid, blocks.threads, 0, on_device(x),
                                        weights, width);
  });
}

template <class T>
void weight_rows_backward(Stream stream, T* x, T* dy, const float* weights, float* dweights,
                          std::int64_t rows, std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  const unsigned threads = threads_for(ceil_div(width, kPack<D>), kThreads);
  with_flag(aligned(x, dy) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<weight_back<D, vectorized.value>>(stream, grid_of(rows), threads,
                                             kMaxWarps * sizeof(float), on_device(x), on_device(dy),
                                             weights, dweights, width);
  });
}

template <class T>
void gate_forward(Stream stream, const T* logits, float* weights, std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  launch<gate<D>>(stream, grid_of(ceil_div(count, kThreads)), kThreads, 0, on_device(logits),
                  weights, count);
}

template <class T>
void gate_backward(Stream stream, const float* weights, const float* dweights, T* dlogits,
                   std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  launch<gate_back<D>>(stream, grid_of(ceil_div(count, kThreads)), kThreads, 0, weights, dweights,
                       on_device(dlogits), count);
}

#define ECHELON_EXPERTS(T)                                                                        \
  template void gather_rows<T>(Stream, const T*, const std::int32_t*, std::int64_t, std::int64_t, \
                               T*);                                                               \
  template void combine_rows<T>(Stream, const T*, const std::int32_t*, std::int64_t, int,         \
                                std::int64_t, const T*, T*);                                      \
  template void weight_rows<T>(Stream, T*, const float*, std::int64_t, std::int64_t);             \
  template void weight_rows_backward<T>(Stream, T*, T*, const float*, float*, std::int64_t,       \
                                        std::int64_t);                                            \
  template void gate_forward<T>(Stream, const T*, float*, std::int64_t);                          \
  template void gate_backward<T>(Stream, const float*, const float*, T*, std::int64_t);
ECHELON_EXPERTS(float)
ECHELON_EXPERTS(Bfloat16)
#undef ECHELON_EXPERTS

}  // namespace echelon::cuda
