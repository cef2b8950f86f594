// RMS norms (arXiv 1910.07467) of the latents of multi-head latent attention, which lie side by
// side in a row: [q latent | kv latent | rotary key]. A warp normalizes a latent; the sums over
// rows for the weights' gradients read both operands again.
#include <algorithm>

#include "runtime/cuda/kernels/columns.cuh"

namespace echelon::cuda {
namespace {

constexpr int kLatentWarps = 4;  ///< of a block
/// Parts of the rows that are summed apart, at most (bias.cu).
constexpr std::int64_t kLatentParts = 128;

std::int64_t latent_parts(std::int64_t rows) {
  return std::min(kLatentParts, ceil_div(rows, std::int64_t{kRowsOfBlock}));
}

/// Operands of one latent of all rows; `x` and `dx` begin at its first column, `stride` apart.
template <class T>
struct OfLatent {
  const T* x;
  const T* weight;
  std::int64_t width;
  T* y;         ///< [rows, width]; of the backward null
  const T* dy;  ///< [rows, width]
  T* dx;
  float* rstd;   ///< [rows]
  float* parts;  ///< [parts, width]
};

/// The first for 0, else the second: by member, because the address of a kernel's argument would
/// have each thread copy it to local memory.
template <class T>
__device__ __forceinline__ OfLatent<T> one_of(unsigned which, const OfLatent<T>& first,
                                              const OfLatent<T>& second) {
  const bool takes = which == 0;
  return {takes ? first.x : second.x,         takes ? first.weight : second.weight,
          takes ? first.width : second.width, takes ? first.y : second.y,
          takes ? first.dy : second.dy,       takes ? first.dx : second.dx,
          takes ? first.rstd : second.rstd,   takes ? first.parts : second.parts};
}

/// Block y: a latent.
template <class T, bool vectorized>
__global__ void normalize_some_latents(OfLatent<T> first, OfLatent<T> second, std::int64_t rows,
                                       std::int64_t stride, float eps) {
  constexpr int n = kPack<T>;
  const OfLatent<T> of = one_of(blockIdx.y, first, second);
  const std::int64_t row = std::int64_t{blockIdx.x} * kLatentWarps + warp_index();
  if (row >= rows) return;
  const T* const x = of.x + row * stride;
  float squares = 0;
  for (std::int64_t i = lane_index() * n; i < of.width; i += 32 * n) {
    const Pack<n> values = load_in_row<n, vectorized>(x + i, of.width - i);
#pragma unroll
    for (int j = 0; j < n; ++j) squares += values.at[j] * values.at[j];
  }
  const float rstd = 1 / sqrtf(warp_sum(squares) / static_cast<float>(of.width) + eps);
  for (std::int64_t i = lane_index() * n; i < of.width; i += 32 * n) {
    Pack<n> values = load_in_row<n, vectorized>(x + i, of.width - i);
    const Pack<n> w = load_in_row<n, vectorized>(of.weight + i, of.width - i);
#pragma unroll
    for (int j = 0; j < n; ++j) values.at[j] *= rstd * w.at[j];
    store_in_row<n, vectorized>(of.y + row * of.width + i, values, of.width - i);
  }
}

/// With x̂ = x·rstd and g = dy·weight: dx = rstd·(g − x̂·mean(g·x̂)); rstd is kept.
template <class T, bool vectorized>
__global__ void normalize_some_latents_back(OfLatent<T> first, OfLatent<T> second,
                                            std::int64_t rows, std::int64_t stride, float eps) {
  constexpr int n = kPack<T>;
  const OfLatent<T> of = one_of(blockIdx.y, first, second);
  const std::int64_t row = std::int64_t{blockIdx.x} * kLatentWarps + warp_index();
  if (row >= rows) return;
  const T* const x = of.x + row * stride;
  const T* const dy = of.dy + row * of.width;
  float squares = 0;
  float dot = 0;
  for (std::int64_t i = lane_index() * n; i < of.width; i += 32 * n) {
    const Pack<n> values = load_in_row<n, vectorized>(x + i, of.width - i);
    const Pack<n> slopes = load_in_row<n, vectorized>(dy + i, of.width - i);
    const Pack<n> w = load_in_row<n, vectorized>(of.weight + i, of.width - i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      squares += values.at[j] * values.at[j];
      dot += slopes.at[j] * w.at[j] * values.at[j];
    }
  }
  const auto count = static_cast<float>(of.width);
  const float rstd = 1 / sqrtf(warp_sum(squares) / count + eps);
  const float mean_dot = warp_sum(dot) * rstd / count;
  if (lane_index() == 0) of.rstd[row] = rstd;
  for (std::int64_t i = lane_index() * n; i < of.width; i += 32 * n) {
    const Pack<n> values = load_in_row<n, vectorized>(x + i, of.width - i);
    Pack<n> slopes = load_in_row<n, vectorized>(dy + i, of.width - i);
    const Pack<n> w = load_in_row<n, vectorized>(of.weight + i, of.width - i);
#pragma unroll
    for (int j = 0; j < n; ++j)
      slopes.at[j] = (slopes.at[j] * w.at[j] - values.at[j] * rstd * mean_dot) * rstd;
    store_in_row<n, vectorized>(of.dx + row * stride + i, slopes, of.width - i);
  }
}

/// Block x: columns; y: a part of the rows; z: a latent. parts[y, c] = Σ of dy·x̂ over the part.
template <class T, bool vectorized>
__global__ void sum_latent_part(OfLatent<T> first, OfLatent<T> second, std::int64_t rows,
                                std::int64_t stride, std::int64_t part) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto memory = shared.allocate<float>(kColumnsOfBlock * kRowsOfBlock * n);
  const OfLatent<T> of = one_of(blockIdx.z, first, second);
  const std::int64_t i = (std::int64_t{blockIdx.x} * kColumnsOfBlock + threadIdx.x) * n;
  const std::int64_t begin = blockIdx.y * part;
  const std::int64_t end = begin + part < rows ? begin + part : rows;
  Pack<n> sums{};
  if (i < of.width) {
    for (std::int64_t r = begin + threadIdx.y; r < end; r += kRowsOfBlock) {
      const Pack<n> values = load_in_row<n, vectorized>(of.x + r * stride + i, of.width - i);
      const Pack<n> slopes = load_in_row<n, vectorized>(of.dy + r * of.width + i, of.width - i);
      const float rstd = of.rstd[r];
#pragma unroll
      for (int j = 0; j < n; ++j) sums.at[j] += slopes.at[j] * values.at[j] * rstd;
    }
  }
  sum_of_rows(sums, memory);
  if (threadIdx.y != 0 || i >= of.width) return;
  store_in_row<n, vectorized>(of.parts + blockIdx.y * of.width + i, sums, of.width - i);
}

/// The latents there are: the one of keys and values last.
template <class D>
struct BothLatents {
  OfLatent<D> first, second;
  unsigned count;
};

template <class D>
BothLatents<D> latents_of(const LatentShape& s, const OfLatent<D>& q, const OfLatent<D>& kv) {
  return {s.q_rank > 0 ? q : kv, kv, s.q_rank > 0 ? 2U : 1U};
}

/// Whether rows and latents begin where 16 bytes do.
template <class D, class... Pointers>
bool latents_in_packs(const LatentShape& s, const Pointers*... pointers) {
  return s.q_rank % kPack<D> == 0 && s.kv_rank % kPack<D> == 0 && s.latents() % kPack<D> == 0 &&
         aligned(pointers...);
}

}  // namespace

template <class T>
void normalize_latents(Stream stream, const LatentShape& s, const LatentNorms<T>& norms,
                       const T* latents, T* q, T* kv) {
  using D = typename OnDevice<T>::Type;
  const auto of = [&](std::int64_t first, const T* weight, std::int64_t width, T* y) {
    return OfLatent<D>{on_device(latents + first),
                       on_device(weight),
                       width,
                       on_device(y),
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};
  };
  const BothLatents<D> both = latents_of(s, of(0, norms.q_weight, s.q_rank, q),
                                         of(s.q_rank, norms.kv_weight, s.kv_rank, kv));
  const bool packs = latents_in_packs<D>(s, latents, norms.q_weight, norms.kv_weight, q, kv);
  with_flag(packs, [&](auto vectorized) {
    launch<normalize_some_latents<D, vectorized.value>>(
        stream, grid_of(ceil_div(s.rows, kLatentWarps), both.count), 32 * kLatentWarps, 0,
        both.first, both.second, s.rows, s.latents(), static_cast<float>(norms.eps));
  });
}

std::int64_t latent_norms_workspace(const LatentShape& s) {
  return 2 * s.rows + latent_parts(s.rows) * (s.q_rank + s.kv_rank);
}

template <class T>
void normalize_latents_backward(Stream stream, const LatentShape& s, const LatentNorms<T>& norms,
                                const T* latents, const T* q, const T* kv, T* dlatents,
                                float* dq_weight, float* dkv_weight, float* workspace) {
  using D = typename OnDevice<T>::Type;
  const std::int64_t parts = latent_parts(s.rows);
  const std::int64_t part = ceil_div(s.rows, parts);
  float* const q_parts = workspace + 2 * s.rows;
  float* const kv_parts = q_parts + parts * s.q_rank;
  const auto of = [&](std::int64_t first, const T* weight, std::int64_t width, const T* dy,
                      float* rstd, float* sums) {
    return OfLatent<D>{on_device(latents + first),
                       on_device(weight),
                       width,
                       nullptr,
                       on_device(dy),
                       on_device(dlatents + first),
                       rstd,
                       sums};
  };
  const BothLatents<D> both =
      latents_of(s, of(0, norms.q_weight, s.q_rank, q, workspace, q_parts),
                 of(s.q_rank, norms.kv_weight, s.kv_rank, kv, workspace + s.rows, kv_parts));
  constexpr int n = kPack<D>;
  const std::int64_t widest = std::max(s.q_rank, s.kv_rank);
  const bool packs = latents_in_packs<D>(s, latents, norms.q_weight, norms.kv_weight, q, kv,
                                         dlatents, q_parts, kv_parts);
  with_flag(packs, [&](auto vectorized) {
    launch<normalize_some_latents_back<D, vectorized.value>>(
        stream, grid_of(ceil_div(s.rows, kLatentWarps), both.count), 32 * kLatentWarps, 0,
        both.first, both.second, s.rows, s.latents(), static_cast<float>(norms.eps));
    launch<sum_latent_part<D, vectorized.value>>(
        stream, grid_of(ceil_div(widest, std::int64_t{kColumnsOfBlock} * n), parts, both.count),
        dim3(kColumnsOfBlock, kRowsOfBlock), kColumnsOfBlock * kRowsOfBlock * n * sizeof(float),
        both.first, both.second, s.rows, s.latents(), part);
  });
  if (s.q_rank > 0) launch_add_parts(stream, q_parts, parts, s.q_rank, dq_weight);
  launch_add_parts(stream, kv_parts, parts, s.kv_rank, dkv_weight);
}

#define ECHELON_LATENT_NORMS(T)                                                                   \
  template void normalize_latents<T>(Stream, const LatentShape&, const LatentNorms<T>&, const T*, \
                                     T*, T*);                                                     \
  template void normalize_latents_backward<T>(Stream, const LatentShape&, const LatentNorms<T>&,  \
                                              const T*, const T*, const T*, T*, float*, float*,   \
                                              float*);
ECHELON_LATENT_NORMS(float)
ECHELON_LATENT_NORMS(Bfloat16)
#undef ECHELON_LATENT_NORMS

}  // namespace echelon::cuda
