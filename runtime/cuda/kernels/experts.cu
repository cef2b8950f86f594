// Experts: the router and the rows that it sends.
#include "core/base/expects.hpp"
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float sigmoid(float z) { return 1 / (1 + expf(-z)); }

/// What a row chooses by: its logits, or their sigmoids, and the bias.
template <class T>
struct Scores {
  const T* logits;
  const T* bias;  ///< null: none
  bool by_sigmoid;
  __device__ __forceinline__ float operator[](int expert) const {
    const float z = to_float(logits[expert]);
    return (by_sigmoid ? sigmoid(z) : z) + (bias != nullptr ? to_float(bias[expert]) : 0.0F);
  }
};

/// What a group of `size` experts from `begin` on is compared by: its `best` largest scores; NaN
/// counts for nothing.
template <class T>
__device__ float score_of_group(const Scores<T>& scores, int begin, int size, int best) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (int e = begin; e < begin + size; ++e) {
    const float score = scores[e];
    if (score > first) {
      second = first;
      first = score;
    } else if (score > second) {
      second = score;
    }
  }
  return best > 1 && size > 1 ? first + second : first;
}

/// A bit for each group: those that a row chooses from.
template <class T>
__device__ std::uint64_t choose_groups(const Router& r, const Scores<T>& scores) {
  const int size = r.experts / r.groups;
  std::uint64_t chosen = 0;
  for (int j = 0; j < r.group_choices; ++j) {
    int best = -1;
    float largest = 0;
    for (int g = 0; g < r.groups; ++g) {
      if ((chosen >> g & 1) != 0) continue;
      const float score = score_of_group(scores, g * size, size, r.group_best);
      if (best >= 0 && !(score > largest)) continue;
      best = g;
      largest = score;
    }
    chosen |= std::uint64_t{1} << best;
  }
  return chosen;
}

/// A thread: the choices of a row, in falling order of their scores.
template <class T>
__global__ void choose(Router r, const T* logits, const T* bias, std::int32_t* chosen) {
  const std::int64_t row = thread_of_grid();
  if (row >= r.rows) return;
  const Scores<T> scores{logits + row * r.experts, bias, r.score == RouterScore::sigmoid};
  std::int32_t* const own = chosen + row * r.choices;
  const std::uint64_t groups = r.groups > 1 ? choose_groups(r, scores) : 1;
  const int size = r.experts / r.groups;
  for (int j = 0; j < r.choices; ++j) {
    int best = -1;
    float largest = 0;
    for (int e = 0; e < r.experts; ++e) {
      if ((groups >> (e / size) & 1) == 0) continue;
      const float value = scores[e];
      if (best >= 0 && !(value > largest)) continue;
      bool taken = false;
      for (int before = 0; before < j; ++before) taken = taken || own[before] == e;
      if (taken) continue;
      best = e;
      largest = value;
    }
    own[j] = best;
  }
}

/// Block x: expert x. Each thread has consecutive choices, of which it counts those of the expert
/// and of experts before it; then it knows the slots of its own.
__global__ void place(const std::int32_t* chosen, std::int32_t* slots, std::int32_t* rows,
                      std::int32_t* counts, std::int64_t all, int choices) {
  SharedMemory shared;
  const auto of_warps = shared.allocate<int>(kMaxWarps);
  const auto of_threads = shared.allocate<int>(kThreads);
  const int expert = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t part = ceil_div(all, kThreads);
  const std::int64_t begin = thread * part;
  const std::int64_t end = begin + part < all ? begin + part : all;
  int before = 0;
  int own = 0;
  for (std::int64_t c = begin; c < end; ++c) {
    before += chosen[c] < expert ? 1 : 0;
    own += chosen[c] == expert ? 1 : 0;
  }
  of_threads.write(thread, own);
  int slot = block_sum(before, of_warps);
  for (int other = 0; other < thread; ++other) slot += of_threads.read(other);
  for (std::int64_t c = begin; c < end; ++c) {
    if (chosen[c] != expert) continue;
    slots[c] = slot;
    rows[slot] = static_cast<std::int32_t>(c / choices);
    ++slot;
  }
  const int count = block_sum(own, of_warps);
  if (thread == 0) counts[expert] = count;
}

/// What the weight of an expert is proportional to.
__device__ __forceinline__ float mass(const Router& r, float z, float max) {
  return r.score == RouterScore::sigmoid ? sigmoid(z) : expf(z - max);
}

/// What those are divided by: their sum over the experts that the weights are parts of, or 1.
template <class T>
__device__ __forceinline__ float divisor(const Router& r, const T* z, const std::int32_t* chosen,
                                         float max) {
  const bool by_sigmoid = r.score == RouterScore::sigmoid;
  if (by_sigmoid && !r.normalized) return 1;
  float sum = by_sigmoid ? static_cast<float>(kLeastSum) : 0.0F;
  if (r.normalized) {
    for (int j = 0; j < r.choices; ++j) sum += mass(r, to_float(z[chosen[j]]), max);
  } else {
    for (int e = 0; e < r.experts; ++e) sum += mass(r, to_float(z[e]), max);
  }
  return sum;
}

/// A thread: the weights of a row's choices.
template <class T>
__global__ void weigh(Router r, const T* logits, const std::int32_t* chosen,
                      const std::int32_t* slots, float* weights) {
  const std::int64_t row = thread_of_grid();
  if (row >= r.rows) return;
  const T* const z = logits + row * r.experts;
  const std::int32_t* const own = chosen + row * r.choices;
  const float max = to_float(z[own[0]]);
  const float unit = static_cast<float>(r.scaling) / divisor(r, z, own, max);
  for (int j = 0; j < r.choices; ++j)
    weights[slots[row * r.choices + j]] = mass(r, to_float(z[own[j]]), max) * unit;
}

/// A thread: the logits of a row; as runtime/cpu/experts.cpp, route_backward.
template <class T>
__global__ void unweigh(Router r, const T* logits, const std::int32_t* chosen,
                        const std::int32_t* slots, const float* weights, const float* dweights,
                        T* dlogits) {
  const std::int64_t row = thread_of_grid();
  if (row >= r.rows) return;
  const T* const z = logits + row * r.experts;
  T* const dz = dlogits + row * r.experts;
  const std::int32_t* const own = chosen + row * r.choices;
  const std::int32_t* const at = slots + row * r.choices;
  const bool by_sigmoid = r.score == RouterScore::sigmoid;
  float mean = 0;
  for (int j = 0; j < r.choices && (!by_sigmoid || r.normalized); ++j)
    mean += weights[at[j]] * dweights[at[j]];
  const float scaling = static_cast<float>(r.scaling);
  const float max = to_float(z[own[0]]);
  const float unit = 1 / divisor(r, z, own, max);
  const bool others = !r.normalized && !by_sigmoid;
  for (int e = 0; e < r.experts; ++e)
    dz[e] = from_float<T>(others ? -mass(r, to_float(z[e]), max) * unit * mean : 0.0F);
  for (int j = 0; j < r.choices; ++j) {
    const float of_score = mass(r, to_float(z[own[j]]), max);
    const float slope = (scaling * dweights[at[j]] - mean) * (by_sigmoid ? 1 - of_score : 1.0F);
    dz[own[j]] = from_float<T>(of_score * unit * slope);
  }
}

/// Block x: a row; y: a part of its columns.
template <class T, bool vectorized>
__global__ void take_rows(const T* x, const std::int32_t* rows, T* y, std::int64_t width) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  const auto v = load_in_row<n, vectorized>(x + std::int64_t{rows[row]} * width + i, width - i);
  store_in_row<n, vectorized>(y + row * width + i, v, width - i);
}

/// The same; `addend`: null, or of the same rows as y.
template <class T, bool vectorized>
__global__ void add_choices(const T* x, const std::int32_t* slots, int choices, const T* addend,
                            T* y, std::int64_t width) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  Pack<n> sum{};
  if (addend != nullptr) sum = load_in_row<n, vectorized>(addend + row * width + i, width - i);
  for (int j = 0; j < choices; ++j) {
    const std::int64_t slot = slots[row * choices + j];
    const auto v = load_in_row<n, vectorized>(x + slot * width + i, width - i);
#pragma unroll
    for (int at = 0; at < n; ++at) sum.at[at] += v.at[at];
  }
  store_in_row<n, vectorized>(y + row * width + i, sum, width - i);
}

/// The same: x ·= the row's weight.
template <class T, bool vectorized>
__global__ void weight(T* x, const float* weights, std::int64_t width) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  auto v = load_in_row<n, vectorized>(x + row * width + i, width - i);
#pragma unroll
  for (int at = 0; at < n; ++at) v.at[at] *= weights[row];
  store_in_row<n, vectorized>(x + row * width + i, v, width - i);
}

/// Block x: a row.
template <class T, bool vectorized>
__global__ void weight_back(T* x, T* dy, const float* weights, float* dweights,
                            std::int64_t width) {
  constexpr int n = kPack<T>;
  SharedMemory shared;
  const auto of_warps = shared.allocate<float>(kMaxWarps);
  const std::int64_t row = blockIdx.x;
  const float by = weights[row];
  float dot = 0;
  for (std::int64_t i = threadIdx.x * n; i < width; i += std::int64_t{blockDim.x} * n) {
    auto v = load_in_row<n, vectorized>(x + row * width + i, width - i);
    auto d = load_in_row<n, vectorized>(dy + row * width + i, width - i);
#pragma unroll
    for (int at = 0; at < n; ++at) {
      dot += v.at[at] * d.at[at];
      v.at[at] *= by;
      d.at[at] *= by;
    }
    store_in_row<n, vectorized>(x + row * width + i, v, width - i);
    store_in_row<n, vectorized>(dy + row * width + i, d, width - i);
  }
  const float sum = block_sum(dot, of_warps);
  if (threadIdx.x == 0) dweights[row] = sum;
}

/// A thread: a weight.
template <class T>
__global__ void gate(const T* logits, float* weights, std::int64_t count) {
  const std::int64_t i = thread_of_grid();
  if (i < count) weights[i] = sigmoid(to_float(logits[i]));
}

/// The same.
template <class T>
__global__ void gate_back(const float* weights, const float* dweights, T* dlogits,
                          std::int64_t count) {
  const std::int64_t i = thread_of_grid();
  if (i < count) dlogits[i] = from_float<T>(dweights[i] * weights[i] * (1 - weights[i]));
}

/// Blocks of rows, and of parts of their columns.
template <class D>
struct RowBlocks {
  RowBlocks(std::int64_t rows, std::int64_t width)
      : threads(threads_for(ceil_div(width, kPack<D>), kThreads)),
        grid(grid_of(rows, ceil_div(width, threads * kPack<D>))) {}
  unsigned threads;
  dim3 grid;
};

}  // namespace

template <class T>
void route(Stream stream, const Router& r, const T* logits, const T* bias, const Routing<T>& to) {
  using D = typename OnDevice<T>::Type;
  EXPECTS(r.groups >= 1 && r.groups <= kMaxRouterGroups, "a bit for each group");
  const dim3 blocks = grid_of(ceil_div(r.rows, kThreads));
  launch<choose<D>>(stream, blocks, kThreads, 0, r, on_device(logits), on_device(bias), to.experts);
  launch<place>(stream, grid_of(r.experts), kThreads, (kMaxWarps + kThreads) * sizeof(int),
                static_cast<const std::int32_t*>(to.experts), to.slots, to.rows, to.counts,
                r.rows * r.choices, r.choices);
  launch<weigh<D>>(stream, blocks, kThreads, 0, r, on_device(logits),
                   static_cast<const std::int32_t*>(to.experts),
                   static_cast<const std::int32_t*>(to.slots), to.weights);
}

template <class T>
void route_backward(Stream stream, const Router& r, const T* logits, const Routing<T>& routing,
                    const float* dweights, T* dlogits) {
  using D = typename OnDevice<T>::Type;
  launch<unweigh<D>>(stream, grid_of(ceil_div(r.rows, kThreads)), kThreads, 0, r, on_device(logits),
                     static_cast<const std::int32_t*>(routing.experts),
                     static_cast<const std::int32_t*>(routing.slots),
                     static_cast<const float*>(routing.weights), dweights, on_device(dlogits));
}

template <class T>
void gather_rows(Stream stream, const T* x, const std::int32_t* rows, std::int64_t count,
                 std::int64_t width, T* y) {
  using D = typename OnDevice<T>::Type;
  const RowBlocks<D> blocks(count, width);
  with_flag(aligned(x, y) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<take_rows<D, vectorized.value>>(stream, blocks.grid, blocks.threads, 0, on_device(x),
                                           rows, on_device(y), width);
  });
}

template <class T>
void combine_rows(Stream stream, const T* x, const std::int32_t* slots, std::int64_t rows,
                  int choices, std::int64_t width, const T* addend, T* y) {
  using D = typename OnDevice<T>::Type;
  const RowBlocks<D> blocks(rows, width);
  with_flag(aligned(x, addend, y) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<add_choices<D, vectorized.value>>(stream, blocks.grid, blocks.threads, 0, on_device(x),
                                             slots, choices, on_device(addend), on_device(y),
                                             width);
  });
}

template <class T>
void weight_rows(Stream stream, T* x, const float* weights, std::int64_t rows, std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  const RowBlocks<D> blocks(rows, width);
  with_flag(aligned(x) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<weight<D, vectorized.value>>(stream, blocks.grid, blocks.threads, 0, on_device(x),
                                        weights, width);
  });
}

template <class T>
void weight_rows_backward(Stream stream, T* x, T* dy, const float* weights, float* dweights,
                          std::int64_t rows, std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  const unsigned threads = threads_for(ceil_div(width, kPack<D>), kThreads);
  with_flag(aligned(x, dy) && width % kPack<D> == 0, [&](auto vectorized) {
    launch<weight_back<D, vectorized.value>>(stream, grid_of(rows), threads,
                                             kMaxWarps * sizeof(float), on_device(x), on_device(dy),
                                             weights, dweights, width);
  });
}

template <class T>
void gate_forward(Stream stream, const T* logits, float* weights, std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  launch<gate<D>>(stream, grid_of(ceil_div(count, kThreads)), kThreads, 0, on_device(logits),
                  weights, count);
}

template <class T>
void gate_backward(Stream stream, const float* weights, const float* dweights, T* dlogits,
                   std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  launch<gate_back<D>>(stream, grid_of(ceil_div(count, kThreads)), kThreads, 0, weights, dweights,
                       on_device(dlogits), count);
}

#define ECHELON_EXPERTS(T)                                                                        \
  template void route<T>(Stream, const Router&, const T*, const T*, const Routing<T>&);           \
  template void route_backward<T>(Stream, const Router&, const T*, const Routing<T>&,             \
                                  const float*, T*);                                              \
  template void gather_rows<T>(Stream, const T*, const std::int32_t*, std::int64_t, std::int64_t, \
                               T*);                                                               \
  template void combine_rows<T>(Stream, const T*, const std::int32_t*, std::int64_t, int,         \
                                std::int64_t, const T*, T*);                                      \
  template void weight_rows<T>(Stream, T*, const float*, std::int64_t, std::int64_t);             \
  template void weight_rows_backward<T>(Stream, T*, T*, const float*, float*, std::int64_t,       \
                                        std::int64_t);                                            \
  template void gate_forward<T>(Stream, const T*, float*, std::int64_t);                          \
  template void gate_backward<T>(Stream, const float*, const float*, T*, std::int64_t);
ECHELON_EXPERTS(float)
ECHELON_EXPERTS(Bfloat16)
#undef ECHELON_EXPERTS

}  // namespace echelon::cuda
