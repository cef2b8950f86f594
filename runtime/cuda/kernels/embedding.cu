#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kEmbeddingThreads = 256;

/// Block x: a row; y: a part of its columns.
template <class T, bool vectorized>
__global__ void embed(const std::int32_t* tokens, const T* weight, T* y, std::int64_t width,
                      std::int64_t first, std::int64_t count) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  const std::int64_t token = tokens[row] - first;
  Pack<n> v{};
  if (token >= 0 && token < count) v = load<n, vectorized>(weight + token * width + i, width - i);
  store<n, vectorized>(y + row * width + i, v, width - i);
}

__global__ void clear(std::int32_t* x, std::int64_t count) {
  const std::int64_t i = thread_of_grid();
  if (i < count) x[i] = 0;
}

/// Warp: a row. next[row]: the next row with the same token, or −1; preceded[next[row]] = 1.
__global__ void chain_equal_tokens(const std::int32_t* tokens, std::int32_t* next,
                                   std::int32_t* preceded, std::int64_t rows) {
  const std::int64_t row = thread_of_grid() / 32;
  if (row >= rows) return;
  const std::int32_t token = tokens[row];
  std::int64_t found = -1;
  for (std::int64_t begin = row + 1; begin < rows && found < 0; begin += 32) {
    const std::int64_t other = begin + lane_index();
    const unsigned same = __ballot_sync(0xffffffffU, other < rows && tokens[other] == token);
    if (same != 0) found = begin + __ffs(static_cast<int>(same)) - 1;
  }
  if (lane_index() != 0) return;
  next[row] = static_cast<std::int32_t>(found);
  if (found >= 0) preceded[found] = 1;
}

/// Block x: the first row with its token; y: a part of the columns. Adds up all rows with the
/// token, in their order, and then to the gradient.
template <class T, bool vectorized>
__global__ void add_chain(const std::int32_t* tokens, const T* dy, float* dweight,
                          const std::int32_t* next, const std::int32_t* preceded,
                          std::int64_t width, std::int64_t first, std::int64_t count) {
  constexpr int n = kPack<T>;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  const std::int64_t token = tokens[blockIdx.x] - first;
  if (i >= width || token < 0 || token >= count || preceded[blockIdx.x] != 0) return;
  Pack<n> sums{};
  for (std::int64_t row = blockIdx.x; row >= 0;) {
    const std::int64_t following = next[row];  // requested before the wait for the row
    const Pack<n> d = load<n, vectorized>(dy + row * width + i, width - i);
#pragma unroll
    for (int j = 0; j < n; ++j) sums.at[j] += d.at[j];
    row = following;
  }
  float* const to = dweight + token * width + i;
  Pack<n> sum = load<n, vectorized>(to, width - i);
#pragma unroll
  for (int j = 0; j < n; ++j) sum.at[j] += sums.at[j];
  store<n, vectorized>(to, sum, width - i);
}

}  // namespace

template <class T>
void embedding_forward(Stream stream, const std::int32_t* tokens, const T* weight, T* y,
                       std::int64_t rows, std::int64_t width, std::int64_t first,
                       std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  const unsigned threads = threads_for(ceil_div(width, n), kEmbeddingThreads);
  with_flag(aligned(weight, y) && width % n == 0, [&](auto vectorized) {
    launch<embed<D, vectorized.value>>(stream, grid_of(rows, ceil_div(width, threads * n)), threads,
                                       0, tokens, on_device(weight), on_device(y), width, first,
                                       count);
  });
}

std::int64_t embedding_backward_workspace(std::int64_t rows) { return 2 * rows; }

template <class T>
void embedding_backward(Stream stream, const std::int32_t* tokens, const T* dy, float* dweight,
                        std::int32_t* workspace, std::int64_t rows, std::int64_t width,
                        std::int64_t first, std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  std::int32_t* const next = workspace;
  std::int32_t* const preceded = workspace + rows;
  launch<clear>(stream, grid_of(ceil_div(rows, kEmbeddingThreads)), kEmbeddingThreads, 0, preceded,
                rows);
  launch<chain_equal_tokens>(stream, grid_of(ceil_div(rows * 32, kEmbeddingThreads)),
                             kEmbeddingThreads, 0, tokens, next, preceded, rows);
  const unsigned threads = threads_for(ceil_div(width, n), kEmbeddingThreads);
  with_flag(aligned(dy, dweight) && width % n == 0, [&](auto vectorized) {
    launch<add_chain<D, vectorized.value>>(stream, grid_of(rows, ceil_div(width, threads * n)),
                                           threads, 0, tokens, on_device(dy), dweight, next,
                                           preceded, width, first, count);
  });
}

#define ECHELON_EMBEDDING(T)                                                                   \
  template void embedding_forward<T>(Stream, const std::int32_t*, const T*, T*, std::int64_t,  \
                                     std::int64_t, std::int64_t, std::int64_t);                \
  template void embedding_backward<T>(Stream, const std::int32_t*, const T*, float*,           \
                                      std::int32_t*, std::int64_t, std::int64_t, std::int64_t, \
                                      std::int64_t);
ECHELON_EMBEDDING(float)
ECHELON_EMBEDDING(Bfloat16)
#undef ECHELON_EMBEDDING

}  // namespace echelon::cuda
