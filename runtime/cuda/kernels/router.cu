// The router: which experts a row chooses, and by what weights.
#include <climits>

#include "core/base/expects.hpp"
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kThreads = 256;
/// Rows of a block, a warp each.
constexpr int kRows = kThreads / 32;

__device__ __forceinline__ bool is_nan(float x) { return x != x; }

/// The row of a warp.
__device__ __forceinline__ std::int64_t row_of_warp() {
  return std::int64_t{blockIdx.x} * kRows + warp_index();
}

/// The largest of what lanes offer, of equal ones that of the lowest index; INT_MAX is the index of
/// nothing. All lanes get the same.
struct Offer {
  float value = -INFINITY;
  int index = INT_MAX;
};
__device__ __forceinline__ bool precedes(const Offer& one, const Offer& other) {
  return one.value > other.value || (one.value == other.value && one.index < other.index);
}
__device__ __forceinline__ Offer best_of_warp(Offer best) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const Offer other{__shfl_xor_sync(0xffffffffU, best.value, lanes),
                      __shfl_xor_sync(0xffffffffU, best.index, lanes)};
    if (precedes(other, best)) best = other;
  }
  return best;
}

/// What a group is compared by: its `best` largest scores.
__device__ __forceinline__ float score_of_group(const Shared<float>& scores, int begin, int size,
                                                int best) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (int e = begin; e < begin + size; ++e) {
    const float score = scores.read(e);
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
__device__ __forceinline__ std::uint64_t choose_groups(const Router& r,
                                                       const Shared<float>& scores) {
  constexpr int kOfLane = kMaxRouterGroups / 32;
  const int size = r.experts / r.groups;
  Offer own[kOfLane];
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int g = lane_index() + 32 * i;
    if (g < r.groups) own[i] = {score_of_group(scores, g * size, size, r.group_best), g};
  }
  std::uint64_t chosen = 0;
  for (int j = 0; j < r.group_choices; ++j) {
    Offer best;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const bool left = own[i].index != INT_MAX && (chosen >> own[i].index & 1) == 0;
      if (left && precedes(own[i], best)) best = own[i];
    }
    chosen |= std::uint64_t{1} << best_of_warp(best).index;
  }
  return chosen;
}

/// A warp: the choices of a row, in falling order of their scores: the logits, or their sigmoids,
/// and the bias. NaN is the largest, so that it is seen.
template <class T>
__global__ void choose(Router r, const T* logits, const T* bias, std::int32_t* chosen) {
  SharedMemory shared;
  const auto of_rows = shared.allocate<float>(std::int64_t{kRows} * r.experts);
  const std::int64_t row = row_of_warp();
  if (row >= r.rows) return;
  const auto scores = of_rows.part(std::int64_t{warp_index()} * r.experts);
  const bool by_sigmoid = r.score == RouterScore::sigmoid;
  for (int e = lane_index(); e < r.experts; e += 32) {
    const float z = to_float(logits[row * r.experts + e]);
    const float score =
        (by_sigmoid ? sigmoid(z) : z) + (bias != nullptr ? to_float(bias[e]) : 0.0F);
    scores.write(e, is_nan(score) ? INFINITY : score);
  }
  __syncwarp();
  const std::uint64_t groups = r.groups > 1 ? choose_groups(r, scores) : 1;
  const int size = r.experts / r.groups;
  __syncwarp();
  for (int j = 0; j < r.choices; ++j) {
    Offer best;
    for (int e = lane_index(); e < r.experts; e += 32) {
      const Offer each{scores.read(e), e};
      const bool out = is_nan(each.value) || (groups >> (e / size) & 1) == 0;
      if (!out && precedes(each, best)) best = each;
    }
    best = best_of_warp(best);
    if (best.index % 32 != lane_index()) continue;
    chosen[row * r.choices + j] = best.index;
    scores.write(best.index, NAN);  // taken
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

/// What those are divided by: their sum over the experts that the weights are parts of, or 1. The
/// same in all lanes.
template <class T>
__device__ __forceinline__ float divisor(const Router& r, const T* z, const std::int32_t* chosen,
                                         float max) {
  const bool by_sigmoid = r.score == RouterScore::sigmoid;
  if (by_sigmoid && !r.normalized) return 1;
  float sum = 0;
  if (r.normalized) {
    for (int j = lane_index(); j < r.choices; j += 32) sum += mass(r, to_float(z[chosen[j]]), max);
  } else {
    for (int e = lane_index(); e < r.experts; e += 32) sum += mass(r, to_float(z[e]), max);
  }
  return (by_sigmoid ? static_cast<float>(kLeastSum) : 0.0F) + warp_sum(sum);
}

/// A warp: the weights of a row's choices.
template <class T>
__global__ void weigh(Router r, const T* logits, const std::int32_t* chosen,
                      const std::int32_t* slots, float* weights) {
  const std::int64_t row = row_of_warp();
  if (row >= r.rows) return;
  const T* const z = logits + row * r.experts;
  const std::int32_t* const own = chosen + row * r.choices;
  const float max = to_float(z[own[0]]);
  const float unit = static_cast<float>(r.scaling) / divisor(r, z, own, max);
  for (int j = lane_index(); j < r.choices; j += 32)
    weights[slots[row * r.choices + j]] = mass(r, to_float(z[own[j]]), max) * unit;
}

/// A warp: the logits of a row; as runtime/cpu/experts.cpp, route_backward.
template <class T>
__global__ void unweigh(Router r, const T* logits, const std::int32_t* chosen,
                        const std::int32_t* slots, const float* weights, const float* dweights,
                        T* dlogits) {
  const std::int64_t row = row_of_warp();
  if (row >= r.rows) return;
  const T* const z = logits + row * r.experts;
  T* const dz = dlogits + row * r.experts;
  const std::int32_t* const own = chosen + row * r.choices;
  const std::int32_t* const at = slots + row * r.choices;
  const bool by_sigmoid = r.score == RouterScore::sigmoid;
  float mean = 0;
  for (int j = lane_index(); j < r.choices && (!by_sigmoid || r.normalized); j += 32)
    mean += weights[at[j]] * dweights[at[j]];
  mean = warp_sum(mean);
  const float scaling = static_cast<float>(r.scaling);
  const float max = to_float(z[own[0]]);
  const float unit = 1 / divisor(r, z, own, max);
  const bool others = !r.normalized && !by_sigmoid;
  for (int e = lane_index(); e < r.experts; e += 32)
    dz[e] = from_float<T>(others ? -mass(r, to_float(z[e]), max) * unit * mean : 0.0F);
  __syncwarp();  // chosen ones are written again
  for (int j = lane_index(); j < r.choices; j += 32) {
    const float of_score = mass(r, to_float(z[own[j]]), max);
    const float slope = (scaling * dweights[at[j]] - mean) * (by_sigmoid ? 1 - of_score : 1.0F);
    dz[own[j]] = from_float<T>(of_score * unit * slope);
  }
}

}  // namespace

template <class T>
void route(Stream stream, const Router& r, const T* logits, const T* bias, const Routing<T>& to) {
  using D = typename OnDevice<T>::Type;
  EXPECTS(r.groups >= 1 && r.groups <= kMaxRouterGroups, "a bit for each group");
  const dim3 blocks = grid_of(ceil_div(r.rows, kRows));
  launch<choose<D>>(stream, blocks, kThreads, kRows * r.experts * sizeof(float), r,
                    on_device(logits), on_device(bias), to.experts);
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
  launch<unweigh<D>>(stream, grid_of(ceil_div(r.rows, kRows)), kThreads, 0, r, on_device(logits),
                     static_cast<const std::int32_t*>(routing.experts),
                     static_cast<const std::int32_t*>(routing.slots),
                     static_cast<const float*>(routing.weights), dweights, on_device(dlogits));
}

#define ECHELON_ROUTER(T)                                                               \
  template void route<T>(Stream, const Router&, const T*, const T*, const Routing<T>&); \
  template void route_backward<T>(Stream, const Router&, const T*, const Routing<T>&,   \
                                  const float*, T*);
ECHELON_ROUTER(float)
ECHELON_ROUTER(Bfloat16)
#undef ECHELON_ROUTER

}  // namespace echelon::cuda
