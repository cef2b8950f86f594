#include "runtime/cuda/kernels/attention.cuh"

namespace echelon::cuda {
namespace {

constexpr int kDotThreads = 256;

/// Warp: a query of a head. dots = Σ over the head of out · dout.
template <int width, int value, bool vectorized>
__global__ void dot_rows(AttentionShape shape, const __nv_bfloat16* out, const __nv_bfloat16* dout,
                         float* dots) {
  constexpr int n = value / 32;
  const std::int64_t query = thread_of_grid() / 32;
  const std::int64_t position = query % shape.sequence;
  const auto head = static_cast<int>(query / shape.sequence % shape.heads);
  const auto sample = static_cast<int>(query / shape.sequence / shape.heads);
  if (sample >= shape.samples) return;
  const AttentionPlaces<width, value> at{shape, {}, sample};
  const Pack<n> a =
      load<n, vectorized>(at.of_out(out, head).from(position).first + lane_index() * n, n);
  const Pack<n> b =
      load<n, vectorized>(at.of_out(dout, head).from(position).first + lane_index() * n, n);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < n; ++j) sum += a.at[j] * b.at[j];
  sum = warp_sum(sum);
  if (lane_index() == 0) dots[query] = sum;
}

/// Inputs of a query's gradients in addition to its row: log_sum in powers of two, and the dot
/// product. Those behind the last are 0.
struct QueryNumbers {
  float power;
  float dot;
};
template <int width, int value>
__device__ __forceinline__ QueryNumbers numbers_of(const AttentionPlaces<width, value>& at,
                                                   const float* log_sum, const float* dots,
                                                   int head, std::int64_t position) {
  if (position >= at.shape.sequence) return {0, 0};
  return {log_sum[at.query(head, position)] * kLog2OfE, dots[at.query(head, position)]};
}

/// Block: 64 queries of a head of a sample. dQ = scale · dS · K with dS = P ∘ (dO · Vᵀ − dots).
/// `whole`: of all keys, else added to those of other blocks.
template <int width, int value, bool vectorized, bool whole>
__global__ void __launch_bounds__(kAttentionThreads)
    query_gradient(AttentionShape shape, KeyBlock of_keys, const __nv_bfloat16* qkv,
                   const __nv_bfloat16* keys, const float* log_sum, const float* dots,
                   const __nv_bfloat16* dout, __nv_bfloat16* dqkv, float scale) {
  SharedMemory shared;
  const auto q = allocate_tile<width>(shared);
  const auto d_out = allocate_tile<value>(shared);
  const TwoTiles<width> k(shared);
  const TwoTiles<value> v(shared);
  const AttentionBlock& block = of_keys.block;
  const bool causal = whole || block.causal;
  const int own = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const AttentionPlaces<width, value> at{shape, of_keys, static_cast<int>(blockIdx.z)};
  const int kv = head / (shape.heads / shape.kv_heads);
  const std::int64_t first = block.first_query + std::int64_t{own} * kTileRows;
  const int last = causal ? own : static_cast<int>((block.keys - 1) / kTileRows);
  const int end =
      static_cast<int>(block.keys - std::int64_t{last} * kTileRows);  // of the last tile
  const int warp_row = warp_index() * kWarpRows;
  const auto fetch_keys = [&](int tile) {
    const std::int64_t begin = std::int64_t{tile} * kTileRows;
    fetch<width, vectorized>(k.of(tile), at.keys(keys, kv, block.keys).from(begin));
    fetch<value, vectorized>(v.of(tile), at.values(keys, kv, block.keys).from(begin));
    commit_copies();
  };
  fetch<width, vectorized>(q, at.queries(qkv, head).from(first));
  fetch<value, vectorized>(d_out, at.of_out(dout, head).from(first));
  fetch_keys(0);
  const QueryNumbers of_rows[2] = {
      numbers_of(at, log_sum, dots, head, first + warp_row + row_of(0)),
      numbers_of(at, log_sum, dots, head, first + warp_row + row_of(2))};
  Rows<width> gradient;
  const float power = scale * kLog2OfE;
  for (int tile = 0; tile <= last; ++tile) {
    wait_copies<0>();
    __syncthreads();  // this tile is there for all, and the one before is no longer needed
    if (tile < last) fetch_keys(tile + 1);
    Scores scores = multiply_rows<width>(q, warp_row, k.of(tile));
    const Scores slopes = multiply_rows<value>(d_out, warp_row, v.of(tile));
#pragma unroll
    for (int c = 0; c < kTileRows / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int seen = causal ? warp_row + row_of(i) + 1 : end;
        const bool hidden = tile == last && column_of(c, i) >= seen;
        const QueryNumbers& row = of_rows[i / 2];
        float& score = scores.sums[c].at[i];
        score = hidden ? 0.0F : exp2f(score * power - row.power) * (slopes.sums[c].at[i] - row.dot);
      }
    }
    multiply_scores(gradient, scores, k.of(tile));
  }
  write_rows<vectorized, !whole>(gradient, {scale, scale}, warp_row,
                                 at.queries(dqkv, head).from(first));
}

/// Block: 64 keys of a kv head of a sample. dV = Pᵀ · dO and dK = scale · dSᵀ · Q, summed over the
/// heads that share the kv head and the queries behind its keys, in order; zero for keys that are
/// not the block's. Over 60 lines because the fragments of dK and dV stay in registers across its
/// loops.
template <int width, int value, bool vectorized, bool whole>
__global__ void __launch_bounds__(kAttentionThreads)
    key_gradient(AttentionShape shape, KeyBlock of_keys, const __nv_bfloat16* qkv,
                 const __nv_bfloat16* keys, const float* log_sum, const float* dots,
                 const __nv_bfloat16* dout, __nv_bfloat16* dkeys, float scale) {
  SharedMemory shared;
  const auto k = allocate_tile<width>(shared);
  const auto v = allocate_tile<value>(shared);
  const TwoTiles<width> q(shared);
  const TwoTiles<value> d_out(shared);
  const auto of_columns = shared.allocate<QueryNumbers>(2 * kTileRows);
  const AttentionBlock& block = of_keys.block;
  const bool causal = whole || block.causal;
  const int own = static_cast<int>(blockIdx.x);
  const int kv = static_cast<int>(blockIdx.y);
  const AttentionPlaces<width, value> at{shape, of_keys, static_cast<int>(blockIdx.z)};
  const std::int64_t first = std::int64_t{own} * kTileRows;
  const int end = static_cast<int>(block.keys - first);  // of the keys that are seen
  const int warp_row = warp_index() * kWarpRows;
  const std::int64_t first_query = causal ? first : block.first_query;
  // Of queries of a head that see these keys.
  const int tiles = static_cast<int>(ceil_div(shape.sequence - first_query, kTileRows));
  const int group = shape.heads / shape.kv_heads;
  const int steps = end > 0 ? group * tiles : 0;
  const auto fetch_queries = [&](int step) {
    const int head = kv * group + step / tiles;
    const std::int64_t begin = first_query + std::int64_t{step % tiles} * kTileRows;
    fetch<width, vectorized>(q.of(step), at.queries(qkv, head).from(begin));
    fetch<value, vectorized>(d_out.of(step), at.of_out(dout, head).from(begin));
    commit_copies();
    const int i = static_cast<int>(threadIdx.x);
    if (i < kTileRows) {
      of_columns.write(step % 2 * kTileRows + i, numbers_of(at, log_sum, dots, head, begin + i));
    }
  };
  if (steps > 0) {
    fetch<width, vectorized>(k, at.keys(keys, kv, block.keys).from(first));
    fetch<value, vectorized>(v, at.values(keys, kv, block.keys).from(first));
    fetch_queries(0);
  }
  Rows<width> dk;
  Rows<value> dv;
  const float power = scale * kLog2OfE;
  for (int step = 0; step < steps; ++step) {
    wait_copies<0>();
    __syncthreads();  // this tile is there for all, and the one before is no longer needed
    if (step + 1 < steps) fetch_queries(step + 1);
    const Shared<QueryNumbers> columns = of_columns.part(step % 2 * kTileRows);
    // Rows are keys here, columns queries. Queries behind the last are zeros, as are their numbers:
    // they add nothing.
    const auto hidden = [&](int c, int i) {
      if (!causal) return warp_row + row_of(i) >= end;
      return step % tiles == 0 && warp_row + row_of(i) > column_of(c, i);
    };
    Scores scores = multiply_rows<width>(k, warp_row, q.of(step));
#pragma unroll
    for (int c = 0; c < kTileRows / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores.sums[c].at[i];
        score = hidden(c, i) ? 0.0F : exp2f(score * power - columns.read(column_of(c, i)).power);
      }
    }
    multiply_scores(dv, scores, d_out.of(step));
    const Scores slopes = multiply_rows<value>(v, warp_row, d_out.of(step));
#pragma unroll
    for (int c = 0; c < kTileRows / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores.sums[c].at[i];
        score = hidden(c, i) ? 0.0F
                             : score * (slopes.sums[c].at[i] - columns.read(column_of(c, i)).dot);
      }
    }
    multiply_scores(dk, scores, q.of(step));
  }
  write_rows<vectorized>(dk, {scale, scale}, warp_row,
                         at.keys(dkeys, kv, shape.sequence).from(first));
  write_rows<vectorized>(dv, {1, 1}, warp_row, at.values(dkeys, kv, shape.sequence).from(first));
}

}  // namespace

/// The gradients of keys and values take most.
std::int64_t attention_shared_memory(const AttentionShape& shape) {
  const std::int64_t tiles = 3 * std::int64_t{kTileRows} * (shape.head_dim + shape.value_dim());
  return tiles * std::int64_t{sizeof(__nv_bfloat16)} +
         2 * std::int64_t{kTileRows} * std::int64_t{sizeof(QueryNumbers)};
}

std::int64_t attention_backward_workspace(const AttentionShape& shape) {
  return shape.sequence * shape.samples * shape.heads;
}

namespace {

/// The pointers of a backward.
struct BackwardOperands {
  const Bfloat16 *qkv, *keys, *out;
  const float* log_sum;
  const Bfloat16* dout;
  Bfloat16 *dqkv, *dkeys;
};

template <bool whole>
void launch_backward(Stream stream, const AttentionShape& shape, const KeyBlock& of_keys,
                     const BackwardOperands& o, float* workspace) {
  const std::int64_t tiles = ceil_div(shape.sequence, kTileRows);
  const std::int64_t query_tiles = ceil_div(shape.sequence - of_keys.block.first_query, kTileRows);
  const float scale = score_scale(shape);
  const std::int64_t queries = attention_backward_workspace(shape);
  with_widths(shape, [&](auto width, auto value) {
    const bool packs = aligned_rows(shape, o.qkv, o.keys, o.out, o.dout, o.dqkv, o.dkeys);
    with_flag(packs, [&](auto vectorized) {
      constexpr int d = width.value;
      constexpr int dv = value.value;
      constexpr bool p = vectorized.value;
      constexpr std::size_t tile_bytes = 3 * (kTileBytes<d> + kTileBytes<dv>);
      launch<dot_rows<d, dv, p>>(stream, grid_of(ceil_div(queries * 32, kDotThreads)), kDotThreads,
                                 0, shape, on_device(o.out), on_device(o.dout), workspace);
      launch<query_gradient<d, dv, p, whole>>(
          stream, grid_of(query_tiles, shape.heads, shape.samples), kAttentionThreads, tile_bytes,
          shape, of_keys, on_device(o.qkv), on_device(o.keys), o.log_sum, workspace,
          on_device(o.dout), on_device(o.dqkv), scale);
      launch<key_gradient<d, dv, p, whole>>(
          stream, grid_of(tiles, shape.kv_heads, shape.samples), kAttentionThreads,
          tile_bytes + 2 * kTileRows * sizeof(QueryNumbers), shape, of_keys, on_device(o.qkv),
          on_device(o.keys), o.log_sum, workspace, on_device(o.dout), on_device(o.dkeys), scale);
    });
  });
}

}  // namespace

void attention_backward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                        const Bfloat16* out, const float* log_sum, const Bfloat16* dout,
                        Bfloat16* dqkv, float* workspace) {
  launch_backward<true>(stream, shape, own_keys(shape), {qkv, qkv, out, log_sum, dout, dqkv, dqkv},
                        workspace);
}

void attention_block_backward(Stream stream, const AttentionShape& shape,
                              const AttentionBlock& block, const Bfloat16* qkv,
                              const Bfloat16* keys, const Bfloat16* out, const float* log_sum,
                              const Bfloat16* dout, Bfloat16* dqkv, Bfloat16* dkeys,
                              float* workspace) {
  launch_backward<false>(stream, shape, keys_of(shape, block),
                         {qkv, keys, out, log_sum, dout, dqkv, dkeys}, workspace);
}

}  // namespace echelon::cuda
