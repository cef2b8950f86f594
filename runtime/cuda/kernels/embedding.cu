#include <algorithm>

#include "runtime/cuda/kernels/columns.cuh"

namespace echelon::cuda {
namespace {

constexpr int kEmbeddingThreads = 256;
/// Enough for all multiprocessors, few enough that those of few distinct tokens end at once.
constexpr std::int64_t kTokenBlocks = 4096;
/// Rows that a token has in a batch, about: a block then has one token.
constexpr std::int64_t kRowsOfToken = 4;

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
  if (token >= 0 && token < count)
    v = load_in_row<n, vectorized>(weight + token * width + i, width - i);
  store_in_row<n, vectorized>(y + row * width + i, v, width - i);
}

/// Block x: every so many distinct tokens; y: a part of the columns. Adds up the rows with a token,
/// eight at a time, and adds the sum to the gradient.
template <class T, bool vectorized>
__global__ void add_token_rows(const std::int32_t* tokens, const std::int32_t* token_rows,
                               const T* dy, float* dweight, std::int64_t rows, std::int64_t width,
                               std::int64_t first, std::int64_t count) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto memory = shared.allocate<float>(kColumnsOfBlock * kRowsOfBlock * n);
  const std::int32_t* const begins = token_rows + 1;
  const std::int32_t* const sorted = token_rows + rows + 2;
  const std::int64_t i = (std::int64_t{blockIdx.y} * kColumnsOfBlock + threadIdx.x) * n;
  for (std::int64_t each = blockIdx.x; each < token_rows[0]; each += gridDim.x) {
    const std::int64_t end = begins[each + 1];
    const std::int64_t token = tokens[sorted[begins[each]]] - first;
    if (token < 0 || token >= count) continue;
    Pack<n> sums{};
    if (i < width) {
      for (std::int64_t at = begins[each] + threadIdx.y; at < end; at += kRowsOfBlock) {
        const Pack<n> d = load_in_row<n, vectorized>(dy + sorted[at] * width + i, width - i);
#pragma unroll
        for (int j = 0; j < n; ++j) sums.at[j] += d.at[j];
      }
    }
    sum_of_rows(sums, memory);
    if (threadIdx.y == 0 && i < width) {
      float* const to = dweight + token * width + i;
      Pack<n> sum = load_in_row<n, vectorized>(to, width - i);
#pragma unroll
      for (int j = 0; j < n; ++j) sum.at[j] += sums.at[j];
      store_in_row<n, vectorized>(to, sum, width - i);
    }
    __syncthreads();  // the next token's sums take the same memory
  }
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

template <class T>
void embedding_backward(Stream stream, const std::int32_t* tokens, const std::int32_t* token_rows,
                        const T* dy, float* dweight, std::int64_t rows, std::int64_t width,
                        std::int64_t first, std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  constexpr std::int64_t n = kPack<D>;
  const dim3 blocks = grid_of(std::min(ceil_div(rows, kRowsOfToken), kTokenBlocks),
                              ceil_div(width, kColumnsOfBlock * n));
  constexpr std::size_t kShared = kColumnsOfBlock * kRowsOfBlock * n * sizeof(float);
  with_flag(aligned(dy, dweight) && width % n == 0, [&](auto vectorized) {
    launch<add_token_rows<D, vectorized.value>>(stream, blocks, dim3(kColumnsOfBlock, kRowsOfBlock),
                                                kShared, tokens, token_rows, on_device(dy), dweight,
                                                rows, width, first, count);
  });
}

#define ECHELON_EMBEDDING(T)                                                                      \
  template void embedding_forward<T>(Stream, const std::int32_t*, const T*, T*, std::int64_t,     \
                                     std::int64_t, std::int64_t, std::int64_t);                   \
  template void embedding_backward<T>(Stream, const std::int32_t*, const std::int32_t*, const T*, \
                                      float*, std::int64_t, std::int64_t, std::int64_t,           \
                                      std::int64_t);
ECHELON_EMBEDDING(float)
ECHELON_EMBEDDING(Bfloat16)
#undef ECHELON_EMBEDDING

}  // namespace echelon::cuda
