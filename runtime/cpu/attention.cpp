// Attention in tiles with an online softmax: FlashAttention-2 (arXiv 2307.08691), algorithms 1
// and 2.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {
namespace {

// A tile of scores stays in the second-level cache. kKeys is a multiple of kQueries, so that no
// query of a tile is before all keys of a tile that its neighbours need.
constexpr std::int64_t kQueries = 64;
constexpr std::int64_t kKeys = 512;

/// rows[i] of `width` numbers each, `stride` apart, times `factor`, packed.
template <class T>
ECHELON_CLONES void gather(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t width,
                           Wide<T> factor, Wide<T>* packed) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; i += kLanes<Wide<T>>) {
      const std::int64_t left = width - i;
      store(packed + r * width + i, load(x + r * stride + i, left) * factor, left);
    }
  }
}

/// The inverse; row r times factors[r · step]. Or added to what is there.
template <bool adds, class T>
ECHELON_CLONES void scatter(const Wide<T>* packed, std::int64_t rows, std::int64_t width,
                            const Wide<T>* factors, std::int64_t step, T* x, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; i += kLanes<Wide<T>>) {
      const std::int64_t left = width - i;
      auto numbers = load(packed + r * width + i, left) * factors[r * step];
      if constexpr (adds) numbers += load(x + r * stride + i, left);
      store(x + r * stride + i, numbers, left);
    }
  }
}

template <class W>
ECHELON_CLONES void scale_row(W* x, W factor, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += kLanes<W>) {
    store(x + i, load(x + i, width - i) * factor, width - i);
  }
}

/// The softmax state of a row so far: largest score and Σ exp(score − largest).
template <class W>
struct Softmax {
  W largest = -std::numeric_limits<W>::infinity();
  W sum = 0;
};

/// Adds `seen` more scores, which become exp(score − largest); the rest of the row of `count`
/// becomes 0. Returns the correction factor of sums formed with the former largest.
template <class W>
ECHELON_CLONES W take_in(Softmax<W>& softmax, W* scores, std::int64_t seen, std::int64_t count) {
  constexpr W kNothing = -std::numeric_limits<W>::infinity();
  const W largest = largest_of(scores, seen, softmax.largest);
  Lanes<W> total{};
  for (std::int64_t i = 0; i < seen; i += kLanes<W>) {
    const Lanes<W> e = exp(load(scores + i, seen - i, kNothing) - largest);
    total += e;
    store(scores + i, e, seen - i);
  }
  std::fill(scores + seen, scores + count, W(0));
  // The first tile needs no correction, and later tiles often have no larger score.
  const W correction = softmax.largest == largest ? W(1) : std::exp(softmax.largest - largest);
  softmax.sum = softmax.sum * correction + sum<W>(total);
  softmax.largest = largest;
  return correction;
}

/// Scores become probabilities, and `slopes`, the gradient of the probabilities, becomes that of
/// the scores: p·(dp − delta).
template <class W>
ECHELON_CLONES void score_gradient(W* scores, W* slopes, W log_sum, W delta, std::int64_t seen,
                                   std::int64_t count) {
  for (std::int64_t i = 0; i < seen; i += kLanes<W>) {
    const std::int64_t left = seen - i;
    const Lanes<W> p = exp(load(scores + i, left) - log_sum);
    store(slopes + i, p * (load(slopes + i, left) - delta), left);
    store(scores + i, p, left);
  }
  std::fill(scores + seen, scores + count, W(0));
  std::fill(slopes + seen, slopes + count, W(0));
}

template <class T>
ECHELON_CLONES Wide<T> dot(const T* a, const T* b, std::int64_t width) {
  Lanes<Wide<T>> total{};
  for (std::int64_t i = 0; i < width; i += kLanes<Wide<T>>) {
    total += load(a + i, width - i) * load(b + i, width - i);
  }
  return sum<Wide<T>>(total);
}

/// Where the keys and values of a row lie: [k heads | v heads] from a column on.
struct KeyRows {
  std::int64_t stride;
  std::int64_t column;
};

/// Offset of a head's part of the token at a position.
struct Places {
  const AttentionShape& shape;
  KeyRows keys;
  int sample;
  [[nodiscard]] std::int64_t row(std::int64_t position) const {
    return position * shape.samples + sample;
  }
  [[nodiscard]] std::int64_t query(std::int64_t position, int head) const {
    return row(position) * shape.qkv_stride + std::int64_t{head} * shape.head_dim;
  }
  [[nodiscard]] std::int64_t key(std::int64_t position, int kv) const {
    return row(position) * keys.stride + keys.column + std::int64_t{kv} * shape.head_dim;
  }
  [[nodiscard]] std::int64_t value(std::int64_t position, int kv) const {
    return key(position, shape.kv_heads) + std::int64_t{kv} * shape.value_dim();
  }
  [[nodiscard]] std::int64_t out(std::int64_t position, int head) const {
    return row(position) * shape.out_stride + std::int64_t{head} * shape.value_dim();
  }
  [[nodiscard]] std::int64_t sum(std::int64_t position, int head) const {
    return (std::int64_t{sample} * shape.heads + head) * shape.sequence + position;
  }
};

/// Of keys that lie behind the queries in the same rows; of a block's.
KeyRows own_keys(const AttentionShape& s) {
  return {s.qkv_stride, std::int64_t{s.heads} * s.head_dim};
}
KeyRows block_keys(const AttentionShape& s) {
  return {std::int64_t{s.kv_heads} * (s.head_dim + s.value_dim()), 0};
}
/// All queries and keys of a sequence.
AttentionBlock whole(const AttentionShape& s) {
  return {.keys = s.sequence, .causal = true, .begins = true};
}
/// Keys that a query sees, and that `queries` from `first` on see together.
std::int64_t seen_by(const AttentionBlock& block, std::int64_t query) {
  return block.causal ? query + 1 : block.keys;
}
std::int64_t seen_by(const AttentionBlock& block, std::int64_t first, std::int64_t queries) {
  return seen_by(block, first + queries - 1);
}

/// What multiplies products of queries and keys.
template <class W>
W score_scale(const AttentionShape& shape) {
  return static_cast<W>(shape.score_factor) / std::sqrt(static_cast<W>(shape.head_dim));
}

template <class W>
std::vector<W> numbers(std::int64_t rows, std::int64_t columns) {
  return std::vector<W>(static_cast<std::size_t>(rows * columns));
}

/// One tile of queries of one head; k and v: all positions of its kv head.
template <class T, class Out>
void attention_core(const Places& at, const AttentionBlock& block, const T* qkv, const Wide<T>* k,
                    const Wide<T>* v, int head, std::int64_t first, Out* out, Wide<T>* log_sum) {
  using W = Wide<T>;
  const AttentionShape& s = at.shape;
  const std::int64_t d = s.head_dim;
  const std::int64_t dv = s.value_dim();
  const std::int64_t queries = std::min(kQueries, s.sequence - first);
  auto q = numbers<W>(queries, d);
  auto o = numbers<W>(queries, dv);
  const std::int64_t seen = seen_by(block, first, queries);
  auto scores = numbers<W>(queries, std::min(kKeys, seen));
  std::vector<Softmax<W>> softmax(static_cast<std::size_t>(queries));
  gather(qkv + at.query(first, head), s.samples * s.qkv_stride, queries, d, score_scale<W>(s),
         q.data());
  if (!block.begins) {
    gather(out + at.out(first, head), s.samples * s.out_stride, queries, dv, W(1), o.data());
    for (std::int64_t r = 0; r < queries; ++r)
      softmax[static_cast<std::size_t>(r)] = {log_sum[at.sum(first + r, head)], 1};
  }
  for (std::int64_t j = 0; j < seen; j += kKeys) {
    const std::int64_t keys = std::min(kKeys, seen - j);
    gemm(Order::plain, Order::transposed, queries, keys, d, q.data(), d, k + j * d, d,
         scores.data(), keys, false);
    for (std::int64_t r = 0; r < queries; ++r) {
      const W correction = take_in(softmax[static_cast<std::size_t>(r)], scores.data() + r * keys,
                                   std::min(keys, seen_by(block, first + r) - j), keys);
      if (correction != 1) scale_row(o.data() + r * dv, correction, dv);
    }
    gemm(Order::plain, Order::plain, queries, dv, keys, scores.data(), keys, v + j * dv, dv,
         o.data(), dv, true);
  }
  for (std::int64_t r = 0; r < queries; ++r) {
    Softmax<W>& row = softmax[static_cast<std::size_t>(r)];
    log_sum[at.sum(first + r, head)] = row.largest + std::log(row.sum);
    row.sum = 1 / row.sum;
  }
  scatter<false>(o.data(), queries, dv, &softmax.front().sum,
                 static_cast<std::int64_t>(sizeof(Softmax<W>) / sizeof(W)),
                 out + at.out(first, head), s.samples * s.out_stride);
}

/// One kv head and the heads that share it. `adds`: to the gradients of queries that are there.
template <bool adds, class T>
void attention_core_backward(const Places& at, const AttentionBlock& block, const T* qkv,
                             const T* key_rows, const T* out, const Wide<T>* log_sum, const T* dout,
                             int kv, T* dqkv, T* dkeys) {
  using W = Wide<T>;
  const AttentionShape& s = at.shape;
  const std::int64_t d = s.head_dim;
  const std::int64_t dv = s.value_dim();
  const std::int64_t stride = s.samples * s.qkv_stride;
  const std::int64_t key_stride = s.samples * at.keys.stride;
  const W scale = score_scale<W>(s);
  const W one = 1;
  auto k = numbers<W>(block.keys, d);
  auto v = numbers<W>(block.keys, dv);
  auto d_k = numbers<W>(s.sequence, d);
  auto d_v = numbers<W>(s.sequence, dv);
  auto q = numbers<W>(kQueries, d);
  auto dq = numbers<W>(kQueries, d);
  auto d_out = numbers<W>(kQueries, dv);
  auto scores = numbers<W>(kQueries, std::min(kKeys, block.keys));
  auto slopes = scores;
  gather(key_rows + at.key(0, kv), key_stride, block.keys, d, one, k.data());
  gather(key_rows + at.value(0, kv), key_stride, block.keys, dv, one, v.data());
  const int group = s.heads / s.kv_heads;
  for (int head = kv * group; head < (kv + 1) * group; ++head) {
    for (std::int64_t first = block.first_query; first < s.sequence; first += kQueries) {
      const std::int64_t queries = std::min(kQueries, s.sequence - first);
      const std::int64_t seen = seen_by(block, first, queries);
      gather(qkv + at.query(first, head), stride, queries, d, scale, q.data());
      gather(dout + at.out(first, head), s.samples * s.out_stride, queries, dv, one, d_out.data());
      for (std::int64_t j = 0; j < seen; j += kKeys) {
        const std::int64_t keys = std::min(kKeys, seen - j);
        gemm(Order::plain, Order::transposed, queries, keys, d, q.data(), d, k.data() + j * d, d,
             scores.data(), keys, false);
        gemm(Order::plain, Order::transposed, queries, keys, dv, d_out.data(), dv,
             v.data() + j * dv, dv, slopes.data(), keys, false);
        for (std::int64_t r = 0; r < queries; ++r) {
          const std::int64_t place = at.out(first + r, head);
          score_gradient(scores.data() + r * keys, slopes.data() + r * keys,
                         log_sum[at.sum(first + r, head)], dot(out + place, dout + place, dv),
                         std::min(keys, seen_by(block, first + r) - j), keys);
        }
        gemm(Order::transposed, Order::plain, keys, dv, queries, scores.data(), keys, d_out.data(),
             dv, d_v.data() + j * dv, dv, true);
        gemm(Order::transposed, Order::plain, keys, d, queries, slopes.data(), keys, q.data(), d,
             d_k.data() + j * d, d, true);
        gemm(Order::plain, Order::plain, queries, d, keys, slopes.data(), keys, k.data() + j * d, d,
             dq.data(), d, j > 0);
      }
      scatter<adds>(dq.data(), queries, d, &scale, 0, dqkv + at.query(first, head), stride);
    }
  }
  scatter<false>(d_k.data(), s.sequence, d, &one, 0, dkeys + at.key(0, kv), key_stride);
  scatter<false>(d_v.data(), s.sequence, dv, &one, 0, dkeys + at.value(0, kv), key_stride);
}

template <class T, class Out>
void forward_of(const AttentionShape& s, const AttentionBlock& block, const KeyRows& rows,
                const T* qkv, const T* keys, Out* out, Wide<T>* log_sum) {
  using W = Wide<T>;
  const std::int64_t head = block.keys * s.head_dim;
  const std::int64_t value = block.keys * s.value_dim();
  auto k = numbers<W>(s.kv_heads, head);
  auto v = numbers<W>(s.kv_heads, value);
  const std::int64_t tiles = (s.sequence - block.first_query + kQueries - 1) / kQueries;
  for (int sample = 0; sample < s.samples; ++sample) {
    const Places at{s, rows, sample};
#pragma omp parallel
    {
#pragma omp for schedule(static)
      for (int kv = 0; kv < s.kv_heads; ++kv) {
        const std::int64_t stride = s.samples * rows.stride;
        gather(keys + at.key(0, kv), stride, block.keys, s.head_dim, W(1), k.data() + kv * head);
        gather(keys + at.value(0, kv), stride, block.keys, s.value_dim(), W(1),
               v.data() + kv * value);
      }
      // Later tiles have more keys: dealt out one by one they are spread evenly.
#pragma omp for schedule(static, 1)
      for (std::int64_t task = 0; task < tiles * s.heads; ++task) {
        const int h = static_cast<int>(task / tiles);
        const std::int64_t kv = h / (s.heads / s.kv_heads);
        attention_core(at, block, qkv, k.data() + kv * head, v.data() + kv * value, h,
                       block.first_query + task % tiles * kQueries, out, log_sum);
      }
    }
  }
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& s, const T* qkv, T* out, Wide<T>* log_sum) {
  forward_of(s, whole(s), own_keys(s), qkv, qkv, out, log_sum);
}

template <class T>
void attention_backward(const AttentionShape& s, const T* qkv, const T* out, const Wide<T>* log_sum,
                        const T* dout, T* dqkv) {
  const std::int64_t tasks = std::int64_t{s.samples} * s.kv_heads;
  in_parts(tasks, 1, [&](std::int64_t task, std::int64_t) {
    const Places at{s, own_keys(s), static_cast<int>(task / s.kv_heads)};
    attention_core_backward<false>(at, whole(s), qkv, qkv, out, log_sum, dout,
                                   static_cast<int>(task % s.kv_heads), dqkv, dqkv);
  });
}

template <class T>
void attention_block_forward(const AttentionShape& s, const AttentionBlock& block, const T* qkv,
                             const T* keys, Wide<T>* out, Wide<T>* log_sum) {
  forward_of(s, block, block_keys(s), qkv, keys, out, log_sum);
}

template <class T>
void attention_block_backward(const AttentionShape& s, const AttentionBlock& block, const T* qkv,
                              const T* keys, const T* out, const Wide<T>* log_sum, const T* dout,
                              T* dqkv, T* dkeys) {
  const std::int64_t tasks = std::int64_t{s.samples} * s.kv_heads;
  in_parts(tasks, 1, [&](std::int64_t task, std::int64_t) {
    const Places at{s, block_keys(s), static_cast<int>(task / s.kv_heads)};
    attention_core_backward<true>(at, block, qkv, keys, out, log_sum, dout,
                                  static_cast<int>(task % s.kv_heads), dqkv, dkeys);
  });
}

#define ECHELON_ATTENTION(T)                                                                       \
  template void attention_forward<T>(const AttentionShape&, const T*, T*, Wide<T>*);               \
  template void attention_backward<T>(const AttentionShape&, const T*, const T*, const Wide<T>*,   \
                                      const T*, T*);                                               \
  template void attention_block_forward<T>(const AttentionShape&, const AttentionBlock&, const T*, \
                                           const T*, Wide<T>*, Wide<T>*);                          \
  template void attention_block_backward<T>(const AttentionShape&, const AttentionBlock&,          \
                                            const T*, const T*, const T*, const Wide<T>*,          \
                                            const T*, T*, T*);
ECHELON_ATTENTION(double)
ECHELON_ATTENTION(float)
ECHELON_ATTENTION(Bfloat16)
#undef ECHELON_ATTENTION

}  // namespace echelon::cpu
