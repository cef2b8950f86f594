// The heads of rows, split among context-parallel ranks and joined again, or some of them packed.
// One read, one write.
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kHeadSplitThreads = 256;

/// Element of the parts that holds a column of a whole row; columns are [q heads | k heads | v
/// heads], in the whole row and in each part's.
__device__ __forceinline__ std::int64_t place_in_parts(const HeadSplit& split, std::int64_t row,
                                                       std::int64_t column) {
  const std::int64_t key_begin = split.query;
  const std::int64_t value_begin = key_begin + split.key;
  const std::int64_t begin = column < key_begin     ? 0
                             : column < value_begin ? key_begin
                                                    : value_begin;
  const std::int64_t own = (column < key_begin     ? split.query
                            : column < value_begin ? split.key
                                                   : split.value) /
                           split.parts;
  const std::int64_t part = (column - begin) / own;
  const std::int64_t width = (split.query + split.key + split.value) / split.parts;
  return (part * split.rows + row) * width + begin / split.parts + (column - begin) % own;
}

/// Block x: a row; y: a part of its columns. With `vectorized` a thread moves 16 bytes, which lie
/// in one part; else one number.
template <class T, bool vectorized, bool joins>
__global__ void move_heads(const T* from, T* to, HeadSplit split) {
  constexpr int n = vectorized ? kPack<T> : 1;
  const std::int64_t row = blockIdx.x;
  const std::int64_t width = split.query + split.key + split.value;
  const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (column >= width) return;
  const std::int64_t whole = row * width + column;
  const std::int64_t part = place_in_parts(split, row, column);
  const T* const x = from + (joins ? part : whole);
  T* const y = to + (joins ? whole : part);
  if constexpr (vectorized) {
    store_bits(y, load_bits<uint4>(x));
  } else {
    *y = *x;
  }
}

/// Block x: a piece; y: a part of it.
template <class T, bool vectorized>
__global__ void move_pieces(const T* from, T* to, Pieces pieces) {
  constexpr int n = vectorized ? kPack<T> : 1;
  const std::int64_t row = blockIdx.x;
  const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (column >= pieces.width) return;
  const T* const x = from + row * pieces.from_stride + column;
  T* const y = to + row * pieces.to_stride + column;
  if constexpr (vectorized) {
    store_bits(y, load_bits<uint4>(x));
  } else {
    *y = *x;
  }
}

template <class T, bool joins>
void launch_move_heads(Stream stream, const HeadSplit& split, const T* from, T* to) {
  using D = typename OnDevice<T>::Type;
  const auto whole = [&](std::int64_t width) { return width / split.parts % kPack<D> == 0; };
  const bool packs = whole(split.query) && whole(split.key) && whole(split.value);
  with_flag(packs && aligned(from, to), [&](auto vectorized) {
    constexpr std::int64_t n = vectorized.value ? kPack<D> : 1;
    const std::int64_t work = ceil_div(split.width(), n);
    const unsigned threads = threads_for(work, kHeadSplitThreads);
    launch<move_heads<D, vectorized.value, joins>>(
        stream, grid_of(split.rows, ceil_div(work, std::int64_t{threads})), threads, 0,
        on_device(from), on_device(to), split);
  });
}

}  // namespace

template <class T>
void split_heads(Stream stream, const HeadSplit& split, const T* x, T* parts) {
  launch_move_heads<T, false>(stream, split, x, parts);
}

template <class T>
void join_heads(Stream stream, const HeadSplit& split, const T* parts, T* x) {
  launch_move_heads<T, true>(stream, split, parts, x);
}

template <class T>
void copy_pieces(Stream stream, const Pieces& pieces, const T* from, T* to) {
  using D = typename OnDevice<T>::Type;
  const auto whole = [](std::int64_t numbers) { return numbers % kPack<D> == 0; };
  const bool packs = whole(pieces.width) && whole(pieces.from_stride) && whole(pieces.to_stride);
  with_flag(packs && aligned(from, to), [&](auto vectorized) {
    constexpr std::int64_t n = vectorized.value ? kPack<D> : 1;
    const std::int64_t work = ceil_div(pieces.width, n);
    const unsigned threads = threads_for(work, kHeadSplitThreads);
    launch<move_pieces<D, vectorized.value>>(
        stream, grid_of(pieces.rows, ceil_div(work, std::int64_t{threads})), threads, 0,
        on_device(from), on_device(to), pieces);
  });
}

#define ECHELON_HEAD_SPLIT(T)                                           \
  template void split_heads<T>(Stream, const HeadSplit&, const T*, T*); \
  template void join_heads<T>(Stream, const HeadSplit&, const T*, T*);  \
  template void copy_pieces<T>(Stream, const Pieces&, const T*, T*);
ECHELON_HEAD_SPLIT(float)
ECHELON_HEAD_SPLIT(Bfloat16)
#undef ECHELON_HEAD_SPLIT

}  // namespace echelon::cuda
