// Shared by attention's forward and backward. A block has four warps and works on tiles of 64
// positions, of which each warp has 16. Source: FlashAttention-2 (arXiv 2307.08691), algorithms 1
// and 2; here dQ has its own kernel, which avoids atomics.
#pragma once

#include <cmath>

#include "core/base/expects.hpp"
#include "runtime/cuda/kernels/tile.cuh"

namespace echelon::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kAttentionThreads = 128;
inline constexpr int kWarpRows = 16;
inline constexpr float kLog2OfE = 1.44269504F;

template <int width>
using AttentionTile = Tile<kTileRows, width>;

template <int width>
inline constexpr std::size_t kTileBytes = AttentionTile<width>::kCount * sizeof(__nv_bfloat16);

/// Two tiles (double buffering): one is processed while the other one is loaded.
template <int width>
class TwoTiles {
 public:
  __device__ explicit TwoTiles(SharedMemory& shared)
      : memory_(shared.allocate<__nv_bfloat16>(2 * AttentionTile<width>::kCount)) {}
  __device__ AttentionTile<width> of(int step) const {
    return AttentionTile<width>(memory_.part(step % 2 * AttentionTile<width>::kCount));
  }

 private:
  Shared<__nv_bfloat16> memory_;
};

template <int width>
__device__ __forceinline__ AttentionTile<width> allocate_tile(SharedMemory& shared) {
  return AttentionTile<width>(shared.allocate<__nv_bfloat16>(AttentionTile<width>::kCount));
}

/// Positions of one head of one sample: row i begins at `first + i · stride`; `count` of them.
template <class T>
struct HeadRows {
  T* first;
  std::int64_t stride;
  std::int64_t count;

  /// From row `begin` on; a multiple of the tile's rows below `count`.
  __device__ HeadRows from(std::int64_t begin) const {
    return {first + begin * stride, stride, count - begin};
  }
};

/// The queries and keys of a launch, and where a row's keys lie: [k heads | v heads] from a column
/// on.
struct KeyBlock {
  AttentionBlock block;
  std::int64_t stride;
  std::int64_t column;
};
/// Of a whole sequence, whose keys lie behind the queries in the same rows; of a block's.
inline KeyBlock own_keys(const AttentionShape& s) {
  return {{.keys = s.sequence, .causal = true, .begins = true},
          s.qkv_stride,
          std::int64_t{s.heads} * s.head_dim};
}
inline KeyBlock keys_of(const AttentionShape& s, const AttentionBlock& block) {
  return {block, std::int64_t{s.kv_heads} * (s.head_dim + s.value_dim()), 0};
}

/// Offsets of heads in the rows of qkv, keys, out and log_sum, as in cpu::attention_forward. Heads
/// of queries and keys have `width` numbers, those of values and of the result `value`.
template <int width, int value>
struct AttentionPlaces {
  AttentionShape shape;
  KeyBlock of_keys;
  int sample;

  template <class T>
  __device__ HeadRows<T> queries(T* qkv, int head) const {
    return {qkv + sample * shape.qkv_stride + std::int64_t{head} * width,
            shape.samples * shape.qkv_stride, shape.sequence};
  }
  /// The block's, or all of them.
  template <class T>
  __device__ HeadRows<T> keys(T* keys, int kv, std::int64_t count) const {
    return at(keys, std::int64_t{kv} * width, count);
  }
  template <class T>
  __device__ HeadRows<T> values(T* keys, int kv, std::int64_t count) const {
    return at(keys, std::int64_t{shape.kv_heads} * width + std::int64_t{kv} * value, count);
  }
  template <class T>
  __device__ HeadRows<T> of_out(T* out, int head) const {
    return {out + sample * shape.out_stride + std::int64_t{head} * value,
            shape.samples * shape.out_stride, shape.sequence};
  }
  /// Index into log_sum and other arrays with one number per query.
  __device__ std::int64_t query(int head, std::int64_t position) const {
    return (std::int64_t{sample} * shape.heads + head) * shape.sequence + position;
  }

 private:
  template <class T>
  __device__ HeadRows<T> at(T* keys, std::int64_t column, std::int64_t count) const {
    return {keys + sample * of_keys.stride + of_keys.column + column,
            shape.samples * of_keys.stride, count};
  }
};

/// Starts to load 64 rows, zeros behind the last one. With `vectorized` they arrive at a wait.
template <int width, bool vectorized>
__device__ __forceinline__ void fetch(const AttentionTile<width>& tile,
                                      const HeadRows<const __nv_bfloat16>& rows) {
  constexpr int kGroups = width / AttentionTile<width>::kGroup;
  for (int unit = static_cast<int>(threadIdx.x); unit < kTileRows * kGroups;
       unit += kAttentionThreads) {
    const int row = unit / kGroups;
    const int group = unit % kGroups;
    const bool there = row < rows.count;
    const __nv_bfloat16* from =
        rows.first + (there ? row : 0) * rows.stride + group * AttentionTile<width>::kGroup;
    if constexpr (vectorized) {
      tile.copy_in(row, group, from, there);
    } else {
      tile.move_in(row, group, from, there);
    }
  }
}

/// Of 16 rows and 64 columns; sums[c] has the columns from 8·c on.
struct Scores {
  Accumulator sums[kTileRows / 8];
};

/// left[rows from first_row on] · rightᵀ
template <int width>
__device__ __forceinline__ Scores multiply_rows(const AttentionTile<width>& left, int first_row,
                                                const AttentionTile<width>& right) {
  Scores scores;
#pragma unroll
  for (int k = 0; k < width; k += 16) {
    std::uint32_t a[4];
    left.load_a(a, first_row, k);
#pragma unroll
    for (int column = 0; column < kTileRows; column += 16) {
      std::uint32_t b[4];
      right.load_b(b, column, k);
      mma(scores.sums[column / 8], a, b[0], b[1]);
      mma(scores.sums[column / 8 + 1], a, b[2], b[3]);
    }
  }
  return scores;
}

/// Of 16 rows and `width` columns, as Scores.
template <int width>
struct Rows {
  Accumulator sums[width / 8];
};

/// rows += scores, rounded to bf16, · right. A lane's elements of a product are those it needs of a
/// left operand.
template <int width>
__device__ __forceinline__ void multiply_scores(Rows<width>& rows, const Scores& scores,
                                                const AttentionTile<width>& right) {
#pragma unroll
  for (int k = 0; k < kTileRows; k += 16) {
    const Accumulator& low = scores.sums[k / 8];
    const Accumulator& high = scores.sums[k / 8 + 1];
    const std::uint32_t a[4] = {packed(low.at[0], low.at[1]), packed(low.at[2], low.at[3]),
                                packed(high.at[0], high.at[1]), packed(high.at[2], high.at[3])};
#pragma unroll
    for (int column = 0; column < width; column += 16) {
      std::uint32_t b[4];
      right.load_b_transposed(b, k, column);
      mma(rows.sums[column / 8], a, b[0], b[1]);
      mma(rows.sums[column / 8 + 1], a, b[2], b[3]);
    }
  }
}

/// Position of number i of sums[c]: row_of(i) of the warp's 16, column_of(c, i).
__device__ __forceinline__ int row_of(int i) { return lane_index() / 4 + (i < 2 ? 0 : 8); }
__device__ __forceinline__ int column_of(int c, int i) {
  return 8 * c + 2 * (lane_index() % 4) + i % 2;
}

/// Writes the existing ones of 16 rows from `first` on, times factors of their lane's two rows, or
/// adds them to what is there.
template <bool vectorized, bool adds = false, int width, class T>
__device__ __forceinline__ void write_rows(const Rows<width>& rows, const float (&factors)[2],
                                           int first, const HeadRows<T>& to) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + row_of(2 * half);
    if (row >= to.count) continue;
#pragma unroll
    for (int c = 0; c < width / 8; ++c) {
      const float* const sums = rows.sums[c].at + 2 * half;
      T* const place = to.first + row * to.stride + column_of(c, 0);
      Pack<2> two{{sums[0] * factors[half], sums[1] * factors[half]}};
      if constexpr (adds) {
        const Pack<2> there = load<2, vectorized>(place, 2);
        two.at[0] += there.at[0];
        two.at[1] += there.at[1];
      }
      store<2, vectorized>(place, two, 2);
    }
  }
}

/// Runs with std::integral_constants of the widths of a head, of queries and keys and of values.
template <class Run>
void with_widths(const AttentionShape& shape, const Run& run) {
  using std::integral_constant;
  EXPECTS(attention_takes(shape.head_dim, shape.value_dim()),
          "heads that attention has kernels for");
  if (shape.head_dim == 64) {
    run(integral_constant<int, 64>{}, integral_constant<int, 64>{});
  } else if (shape.head_dim == 128) {
    run(integral_constant<int, 128>{}, integral_constant<int, 128>{});
  } else {
    run(integral_constant<int, 192>{}, integral_constant<int, 128>{});
  }
}

/// What multiplies products of queries and keys.
inline float score_scale(const AttentionShape& shape) {
  return static_cast<float>(shape.score_factor / std::sqrt(static_cast<double>(shape.head_dim)));
}

/// Whether rows can be accessed 16 bytes at a time. Keys of their own have whole rows of heads.
template <class... Pointers>
bool aligned_rows(const AttentionShape& s, const Pointers*... pointers) {
  return aligned(pointers...) && s.qkv_stride % 8 == 0 && s.out_stride % 8 == 0;
}

}  // namespace echelon::cuda
