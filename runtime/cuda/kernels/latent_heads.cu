// Heads of multi-head latent attention (LatentShape), put together and taken apart: one read and
// one write, with the rotation. Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1.
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kLatentHeadThreads = 256;

/// Packs of n numbers that each part of a head takes.
struct HeadPacks {
  int nope, rope, value;
  [[nodiscard]] __host__ __device__ static HeadPacks of(const LatentShape& s, int n) {
    return {(s.nope + n - 1) / n, (s.rope + n - 1) / n, (s.value + n - 1) / n};
  }
};

/// Neighbours are turned, from number `at` of the rotary part on. A row of the table is [cosines |
/// sines].
template <int n>
__device__ __forceinline__ void turn_pairs(Pack<n>& x, const float* angles, int rope, int at,
                                           float direction) {
  const int half = rope / 2;
#pragma unroll
  for (int j = 0; j < n; j += 2) {
    const int pair = (at + j) / 2;
    if (pair >= half) break;
    const float cosine = angles[pair];
    const float sine = direction * angles[half + pair];
    const float low = x.at[j];
    x.at[j] = low * cosine - x.at[j + 1] * sine;
    x.at[j + 1] = x.at[j + 1] * cosine + low * sine;
  }
}

/// A row of [q heads | k heads | v heads], and those that it is made of.
template <class Heads, class Projected>
struct LatentRow {
  Heads* queries;
  Heads* keys;
  Heads* values;
  Projected* q;
  Projected* kv;
  Projected* rotary;
  const float* angles;

  __device__ LatentRow(const LatentShape& s, std::int64_t row, const float* table, Heads* qkv,
                       Projected* of_q, Projected* of_kv, Projected* latents) {
    const std::int64_t query = std::int64_t{s.heads} * (s.nope + s.rope);
    const std::int64_t stride = s.q_rank + s.kv_rank + s.rope;
    queries = qkv + row * (2 * query + std::int64_t{s.heads} * s.value);
    keys = queries + query;
    values = keys + query;
    q = of_q + row * query;
    kv = of_kv + row * s.heads * (s.nope + s.value);
    rotary = latents + (row + 1) * stride - s.rope;
    angles = table + (s.first_position + row / s.samples) * s.rope;
  }
};

/// Block x: a row; a thread moves packs of n numbers.
template <class T, bool vectorized>
__global__ void join_row(LatentShape s, const float* table, const T* q, const T* kv,
                         const T* latents, T* qkv) {
  constexpr int n = vectorized ? kPack<T> : 2;
  const HeadPacks packs = HeadPacks::of(s, n);
  const LatentRow<T, const T> row(s, blockIdx.x, table, qkv, q, kv, latents);
  const int d = s.nope + s.rope;
  const int of_head = packs.nope + packs.rope;
  const int both = 2 * s.heads * of_head;
  for (int work = static_cast<int>(threadIdx.x); work < both + s.heads * packs.value;
       work += static_cast<int>(blockDim.x)) {
    if (work >= both) {
      const int head = (work - both) / packs.value;
      const int i = (work - both) % packs.value * n;
      const T* const from = row.kv + head * (s.nope + s.value) + s.nope + i;
      const Pack<n> x = load_in_row<n, vectorized>(from, s.value - i);
      store_in_row<n, vectorized>(row.values + head * s.value + i, x, s.value - i);
      continue;
    }
    const bool key = work >= both / 2;
    const int head = (key ? work - both / 2 : work) / of_head;
    const int pack = (key ? work - both / 2 : work) % of_head;
    const bool rotated = pack >= packs.nope;
    const int i = rotated ? (pack - packs.nope) * n : pack * n;  // of the part
    const int left = (rotated ? s.rope : s.nope) - i;
    const int at = head * d + (rotated ? s.nope : 0) + i;
    const T* const from = !key      ? row.q + at
                          : rotated ? row.rotary + i
                                    : row.kv + head * (s.nope + s.value) + i;
    Pack<n> x = load_in_row<n, vectorized>(from, left);
    if (rotated) turn_pairs(x, row.angles, s.rope, i, 1);
    store_in_row<n, vectorized>((key ? row.keys : row.queries) + at, x, left);
  }
}

/// The gradients of the same. The rotary key's is summed over the heads before it is turned back.
template <class T, bool vectorized>
__global__ void split_row(LatentShape s, const float* table, const T* dqkv, T* dq, T* dkv,
                          T* dlatents) {
  constexpr int n = vectorized ? kPack<T> : 2;
  const HeadPacks packs = HeadPacks::of(s, n);
  const LatentRow<const T, T> row(s, blockIdx.x, table, dqkv, dq, dkv, dlatents);
  const int d = s.nope + s.rope;
  const int of_query = packs.nope + packs.rope;
  const int of_kv = packs.nope + packs.value;
  const int queries = s.heads * of_query;
  const int projected = queries + s.heads * of_kv;
  for (int work = static_cast<int>(threadIdx.x); work < projected + packs.rope;
       work += static_cast<int>(blockDim.x)) {
    if (work >= projected) {
      const int i = (work - projected) * n;
      Pack<n> sum{};
      for (int head = 0; head < s.heads; ++head) {
        const Pack<n> x = load_in_row<n, vectorized>(row.keys + head * d + s.nope + i, s.rope - i);
#pragma unroll
        for (int j = 0; j < n; ++j) sum.at[j] += x.at[j];
      }
      turn_pairs(sum, row.angles, s.rope, i, -1);
      store_in_row<n, vectorized>(row.rotary + i, sum, s.rope - i);
      continue;
    }
    const bool query = work < queries;
    const int head = query ? work / of_query : (work - queries) / of_kv;
    const int pack = query ? work % of_query : (work - queries) % of_kv;
    const bool behind = pack >= packs.nope;  // the rotary part, or the value
    const int i = behind ? (pack - packs.nope) * n : pack * n;
    const int left = (!behind ? s.nope : query ? s.rope : s.value) - i;
    const int at = (behind ? s.nope : 0) + i;
    const T* const from = query    ? row.queries + head * d + at
                          : behind ? row.values + head * s.value + i
                                   : row.keys + head * d + i;
    Pack<n> x = load_in_row<n, vectorized>(from, left);
    if (query && behind) turn_pairs(x, row.angles, s.rope, i, -1);
    T* const to = query ? row.q + head * d + at : row.kv + head * (s.nope + s.value) + at;
    store_in_row<n, vectorized>(to, x, left);
  }
}

/// Whether every part of every head begins where 16 bytes do.
template <class D, class... Pointers>
bool heads_in_packs(const LatentShape& s, const Pointers*... pointers) {
  constexpr int n = kPack<D>;
  return s.nope % n == 0 && s.rope % n == 0 && s.value % n == 0 &&
         (s.q_rank + s.kv_rank) % n == 0 && aligned(pointers...);
}

unsigned threads_of_row(const LatentShape& s, int n) {
  const HeadPacks packs = HeadPacks::of(s, n);
  const std::int64_t of_head = 2 * packs.nope + 2 * packs.rope + packs.value;
  return threads_for(s.heads * of_head, kLatentHeadThreads);
}

}  // namespace

template <class T>
void join_latent_heads(Stream stream, const LatentShape& s, const float* table, const T* q,
                       const T* kv, const T* latents, T* qkv) {
  using D = typename OnDevice<T>::Type;
  with_flag(heads_in_packs<D>(s, q, kv, latents, qkv), [&](auto vectorized) {
    launch<join_row<D, vectorized.value>>(
        stream, grid_of(s.rows), threads_of_row(s, vectorized.value ? kPack<D> : 2), 0, s, table,
        on_device(q), on_device(kv), on_device(latents), on_device(qkv));
  });
}

template <class T>
void split_latent_heads(Stream stream, const LatentShape& s, const float* table, const T* dqkv,
                        T* dq, T* dkv, T* dlatents) {
  using D = typename OnDevice<T>::Type;
  with_flag(heads_in_packs<D>(s, dqkv, dq, dkv, dlatents), [&](auto vectorized) {
    launch<split_row<D, vectorized.value>>(
        stream, grid_of(s.rows), threads_of_row(s, vectorized.value ? kPack<D> : 2), 0, s, table,
        on_device(dqkv), on_device(dq), on_device(dkv), on_device(dlatents));
  });
}

#define ECHELON_LATENT_HEADS(T)                                                                    \
  template void join_latent_heads<T>(Stream, const LatentShape&, const float*, const T*, const T*, \
                                     const T*, T*);                                                \
  template void split_latent_heads<T>(Stream, const LatentShape&, const float*, const T*, T*, T*,  \
                                      T*);
ECHELON_LATENT_HEADS(float)
ECHELON_LATENT_HEADS(Bfloat16)
#undef ECHELON_LATENT_HEADS

}  // namespace echelon::cuda
