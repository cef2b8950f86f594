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

/// Block: 64 queries of a head of a sample. The keys and values of the next tile are loaded while
/// this one is processed.
template <int width, int value, bool vectorized>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_core(AttentionShape shape, const __nv_bfloat16* qkv, __nv_bfloat16* out,
                   float* log_sum, float scale) {
  SharedMemory shared;
  const auto q = allocate_tile<width>(shared);
  const TwoTiles<width> k(shared);
  const TwoTiles<value> v(shared);
  // Blocks with many keys begin first.
  const int last = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const AttentionPlaces<width, value> at{shape, static_cast<int>(blockIdx.z)};
  const int kv = head / (shape.heads / shape.kv_heads);
  const std::int64_t first = std::int64_t{last} * kTileRows;
  const int warp_row = warp_index() * kWarpRows;
  const auto fetch_keys = [&](int tile) {
    fetch<width, vectorized>(k.of(tile), at.keys(qkv, kv).from(std::int64_t{tile} * kTileRows));
    fetch<value, vectorized>(v.of(tile), at.values(qkv, kv).from(std::int64_t{tile} * kTileRows));
    commit_copies();
  };
  fetch<width, vectorized>(q, at.of_qkv(qkv, head).from(first));
  fetch_keys(0);
  TwoRows softmax;
  Rows<value> sums;
  const float power = scale * kLog2OfE;
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
          if (column_of(c, i) > warp_row + row_of(i)) scores.sums[c].at[i] = kNoScore;
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

}  // namespace

void attention_forward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                       Bfloat16* out, float* log_sum) {
  const dim3 blocks = grid_of(ceil_div(shape.sequence, kTileRows), shape.heads, shape.samples);
  with_widths(shape, [&](auto width, auto value) {
    with_flag(aligned_rows(shape, qkv, out), [&](auto vectorized) {
      launch<attention_core<width.value, value.value, vectorized.value>>(
          stream, blocks, kAttentionThreads,
          3 * kTileBytes<width.value> + 2 * kTileBytes<value.value>, shape, on_device(qkv),
          on_device(out), log_sum, score_scale(shape));
    });
  });
}

}  // namespace echelon::cuda
