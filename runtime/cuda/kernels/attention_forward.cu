#include <type_traits>

#include "runtime/cuda/kernels/attention.cuh"

namespace echelon::cuda {
namespace {

constexpr float kNoScore = -INFINITY;

/// The softmax state of a lane's two rows so far: largest score, and this lane's part of
/// Σ exp(score − largest). Scores are before the scale, powers of two after it.
struct TwoRows {
  float largest[2] = {kNoScore, kNoScore};
  float sum[2] = {0, 0};
};

/// The largest, or the sum, over the four lanes that share a row.
__device__ __forceinline__ float largest_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ __forceinline__ float sum_of_row(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

/// Scores become exp(score − largest), and sums formed with a smaller largest are corrected.
template <int value>
__device__ __forceinline__ void take_in(TwoRows& softmax, Scores& scores, Rows<value>& out,
                                        float power) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = softmax.largest[half];
    for (const Accumulator& sums : scores.sums) {
      largest = fmaxf(largest, fmaxf(sums.at[2 * half], sums.at[2 * half + 1]));
    }
    largest = largest_of_row(largest);
    const float correction = exp2f((softmax.largest[half] - largest) * power);
    softmax.largest[half] = largest;
    float sum = 0;
    for (Accumulator& sums : scores.sums) {
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        sums.at[i] = exp2f((sums.at[i] - largest) * power);
        sum += sums.at[i];
      }
    }
    softmax.sum[half] = softmax.sum[half] * correction + sum;
    for (Accumulator& sums : out.sums) {
      sums.at[2 * half] *= correction;
      sums.at[2 * half + 1] *= correction;
    }
  }
}

/// The state after the keys before this block: of the lane's rows from `first` on.
template <bool vectorized, int width, int value>
__device__ __forceinline__ void resume(TwoRows& softmax, Rows<value>& out,
                                       const AttentionPlaces<width, value>& at, int head,
                                       std::int64_t first, const float* before,
                                       const float* log_sum, float scale) {
  const HeadRows<const float> rows = at.of_out(before, head).from(first);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row_of(2 * half);
    if (row >= rows.count) continue;
    softmax.largest[half] = log_sum[at.query(head, first + row)] / scale;
    softmax.sum[half] = lane_index() % 4 == 0 ? 1 : 0;
#pragma unroll
    for (int c = 0; c < value / 8; ++c) {
      const Pack<2> two = load<2, vectorized>(rows.first + row * rows.stride + column_of(c, 0), 2);
      out.sums[c].at[2 * half] = two.at[0];
      out.sums[c].at[2 * half + 1] = two.at[1];
    }
  }
}

/// Block: 64 queries of a head of a sample. The keys and values of the next tile are loaded while
/// this one is processed. Out: float where keys come block by block.
template <int width, int value, bool vectorized, class Out>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_core(AttentionShape shape, KeyBlock of_keys, const __nv_bfloat16* qkv,
                   const __nv_bfloat16* keys, Out* out, float* log_sum, float scale) {
  constexpr bool kWhole = !std::is_same_v<Out, float>;
  SharedMemory shared;
  const auto q = allocate_tile<width>(shared);
  const TwoTiles<width> k(shared);
  const TwoTiles<value> v(shared);
  const AttentionBlock& block = of_keys.block;
  const bool causal = kWhole || block.causal;
  // Blocks with many keys begin first.
  const int own = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const AttentionPlaces<width, value> at{shape, of_keys, static_cast<int>(blockIdx.z)};
  const int kv = head / (shape.heads / shape.kv_heads);
  const std::int64_t first = block.first_query + std::int64_t{own} * kTileRows;
  const int last = causal ? own : static_cast<int>((block.keys - 1) / kTileRows);
  const int warp_row = warp_index() * kWarpRows;
  const auto fetch_keys = [&](int tile) {
    const std::int64_t begin = std::int64_t{tile} * kTileRows;
    fetch<width, vectorized>(k.of(tile), at.keys(keys, kv, block.keys).from(begin));
    fetch<value, vectorized>(v.of(tile), at.values(keys, kv, block.keys).from(begin));
    commit_copies();
  };
  fetch<width, vectorized>(q, at.queries(qkv, head).from(first));
  fetch_keys(0);
  TwoRows softmax;
  Rows<value> sums;
  if constexpr (!kWhole) {
    if (!block.begins)
      resume<vectorized>(softmax, sums, at, head, first + warp_row, out, log_sum, scale);
  }
  const float power = scale * kLog2OfE;
  const int end =
      static_cast<int>(block.keys - std::int64_t{last} * kTileRows);  // of the last tile
  for (int tile = 0; tile <= last; ++tile) {
    wait_copies<0>();
    __syncthreads();  // this tile is there for all, and the one before is no longer needed
    if (tile < last) fetch_keys(tile + 1);
    Scores scores = multiply_rows<width>(q, warp_row, k.of(tile));
    if (tile == last) {
#pragma unroll
      for (int c = 0; c < kTileRows / 8; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int seen = causal ? warp_row + row_of(i) + 1 : end;
          if (column_of(c, i) >= seen) scores.sums[c].at[i] = kNoScore;
        }
      }
    }
    take_in(softmax, scores, sums, power);
    multiply_scores(sums, scores, v.of(tile));
  }
  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = sum_of_row(softmax.sum[half]);
    factors[half] = 1 / sum;
    const std::int64_t position = first + warp_row + row_of(2 * half);
    if (lane_index() % 4 == 0 && position < shape.sequence) {
      log_sum[at.query(head, position)] = softmax.largest[half] * scale + logf(sum);
    }
  }
  write_rows<vectorized>(sums, factors, warp_row, at.of_out(out, head).from(first));
}

template <class Out>
void launch_forward(Stream stream, const AttentionShape& shape, const KeyBlock& of_keys,
                    const Bfloat16* qkv, const Bfloat16* keys, Out* out, float* log_sum) {
  const std::int64_t queries = shape.sequence - of_keys.block.first_query;
  const dim3 blocks = grid_of(ceil_div(queries, kTileRows), shape.heads, shape.samples);
  with_widths(shape, [&](auto width, auto value) {
    with_flag(aligned_rows(shape, qkv, keys, out), [&](auto vectorized) {
      using D = typename OnDevice<Out>::Type;
      launch<attention_core<width.value, value.value, vectorized.value, D>>(
          stream, blocks, kAttentionThreads,
          3 * kTileBytes<width.value> + 2 * kTileBytes<value.value>, shape, of_keys, on_device(qkv),
          on_device(keys), on_device(out), log_sum, score_scale(shape));
    });
  });
}

}  // namespace

void attention_forward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                       Bfloat16* out, float* log_sum) {
  launch_forward(stream, shape, own_keys(shape), qkv, qkv, out, log_sum);
}

void attention_block_forward(Stream stream, const AttentionShape& shape,
                             const AttentionBlock& block, const Bfloat16* qkv, const Bfloat16* keys,
                             float* out, float* log_sum) {
  launch_forward(stream, shape, keys_of(shape, block), qkv, keys, out, log_sum);
}

}  // namespace echelon::cuda
