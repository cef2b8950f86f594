// One read, one write: a thread moves 16 bytes of each operand.
#include <limits>
#include <numbers>

#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kGeluScale =
    static_cast<float>(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);  // 2·√(2/π)
constexpr float kGeluCube = 0.044715F;

struct Activated {
  float value;
  float slope;
};

/// x·s with s = 1/(1 + e^(−u)), and its slope s + x·s·(1 − s)·steep where u' = steep. Of a steep
/// and large u nothing may be left of 1 − s that is not a rounding error: both factors come from
/// e^(−|u|).
__device__ __forceinline__ Activated by_sigmoid(float x, float u, float steep) {
  const float e = power_of_two(-kLog2E * fabsf(u));
  const float larger = reciprocal(1 + e);
  const float smaller = e * larger;
  const float s = u >= 0 ? larger : smaller;
  return {x * s, s + x * (larger * smaller) * steep};
}

/// gelu(x) = x/2·(1 + tanh(u/2)) = x / (1 + e^(−u)), u = 2·√(2/π)·(x + 0.044715·x³).
/// Source: arXiv 1606.08415, section 2.
template <Activation kind>
__device__ __forceinline__ Activated activated(float x) {
  if constexpr (kind == Activation::gelu) {
    const float square = x * x;
    return by_sigmoid(x, kGeluScale * (x + kGeluCube * square * x),
                      kGeluScale * (1 + 3 * kGeluCube * square));
  } else if constexpr (kind == Activation::silu) {
    return by_sigmoid(x, x, 1);
  } else if constexpr (kind == Activation::relu) {
    return {x < 0 ? 0.0F : x, x > 0 ? 1.0F : x <= 0 ? 0.0F : x};
  } else {
    static_assert(kind == Activation::squared_relu);
    return {x < 0 ? 0.0F : x * x, x < 0 ? 0.0F : 2 * x};
  }
}

/// `run` with the kind as a constant.
template <class Run>
void with_kind(Activation kind, const Run& run) {
  using enum Activation;
  switch (kind) {
    case gelu: return run(std::integral_constant<Activation, gelu>{});
    case silu: return run(std::integral_constant<Activation, silu>{});
    case relu: return run(std::integral_constant<Activation, relu>{});
    case squared_relu: return run(std::integral_constant<Activation, squared_relu>{});
  }
}

template <Activation kind, class T, bool vectorized>
__global__ void activate(const T* x, T* y, std::int64_t count) {
  constexpr int n = kPack<T>;
  const std::int64_t i = thread_of_grid() * n;
  if (i >= count) return;
  Pack<n> v = load<n, vectorized>(x + i, count - i);
#pragma unroll
  for (int j = 0; j < n; ++j) v.at[j] = activated<kind>(v.at[j]).value;
  store<n, vectorized>(y + i, v, count - i);
}

template <Activation kind, class T, bool vectorized>
__global__ void activate_backward(const T* x, const T* dy, T* dx, T* y, std::int64_t count) {
  constexpr int n = kPack<T>;
  const std::int64_t i = thread_of_grid() * n;
  if (i >= count) return;
  Pack<n> v = load<n, vectorized>(x + i, count - i);
  Pack<n> d = load<n, vectorized>(dy + i, count - i);
#pragma unroll
  for (int j = 0; j < n; ++j) {
    const Activated a = activated<kind>(v.at[j]);
    d.at[j] *= a.slope;
    v.at[j] = a.value;
  }
  store<n, vectorized>(dx + i, d, count - i);
  if (y != nullptr) store<n, vectorized>(y + i, v, count - i);
}

/// Block x: a row; y: a part of its columns.
template <Activation kind, class T, bool vectorized>
__global__ void gate(const T* x, T* y, std::int64_t width) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  const Pack<n> g = load_in_row<n, vectorized>(x + 2 * row * width + i, width - i);
  Pack<n> u = load_in_row<n, vectorized>(x + (2 * row + 1) * width + i, width - i);
#pragma unroll
  for (int j = 0; j < n; ++j) u.at[j] *= activated<kind>(g.at[j]).value;
  store_in_row<n, vectorized>(y + row * width + i, u, width - i);
}

template <Activation kind, class T, bool vectorized>
__global__ void gate_backward(const T* x, const T* dy, T* dx, T* y, std::int64_t width) {
  constexpr int n = kPack<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * n;
  if (i >= width) return;
  Pack<n> g = load_in_row<n, vectorized>(x + 2 * row * width + i, width - i);
  Pack<n> u = load_in_row<n, vectorized>(x + (2 * row + 1) * width + i, width - i);
  Pack<n> d = load_in_row<n, vectorized>(dy + row * width + i, width - i);
#pragma unroll
  for (int j = 0; j < n; ++j) {
    const Activated a = activated<kind>(g.at[j]);
    const float product = u.at[j] * a.value;
    g.at[j] = d.at[j] * u.at[j] * a.slope;
    u.at[j] = d.at[j] * a.value;
    d.at[j] = product;
  }
  store_in_row<n, vectorized>(dx + 2 * row * width + i, g, width - i);
  store_in_row<n, vectorized>(dx + (2 * row + 1) * width + i, u, width - i);
  if (y != nullptr) store_in_row<n, vectorized>(y + row * width + i, d, width - i);
}

template <class T, bool vectorized>
__global__ void add_packs(T* x, const T* y, std::int64_t count) {
  constexpr int n = kPack<T>;
  const std::int64_t i = thread_of_grid() * n;
  if (i >= count) return;
  Pack<n> a = load<n, vectorized>(x + i, count - i);
  const Pack<n> b = load<n, vectorized>(y + i, count - i);
#pragma unroll
  for (int j = 0; j < n; ++j) a.at[j] += b.at[j];
  store<n, vectorized>(x + i, a, count - i);
}

template <class T, bool vectorized>
__global__ void scale_packs(T* x, float factor, std::int64_t count) {
  constexpr int n = kPack<T>;
  const std::int64_t i = thread_of_grid() * n;
  if (i >= count) return;
  Pack<n> v = load<n, vectorized>(x + i, count - i);
#pragma unroll
  for (int j = 0; j < n; ++j) v.at[j] *= factor;
  store<n, vectorized>(x + i, v, count - i);
}

template <class To, class From, bool vectorized>
__global__ void cast_packs(const From* from, To* to, std::int64_t count) {
  constexpr int n = 8;
  const std::int64_t i = thread_of_grid() * n;
  if (i >= count) return;
  store<n, vectorized>(to + i, load<n, vectorized>(from + i, count - i), count - i);
}

dim3 blocks_for(std::int64_t count, int each) {
  return grid_of(ceil_div(count, std::int64_t{kThreads} * each));
}

/// The blocks of a matrix whose rows are distributed individually.
struct RowBlocks {
  RowBlocks(std::int64_t rows, std::int64_t width, int each)
      : threads(threads_for(ceil_div(width, each), kThreads)),
        blocks(grid_of(rows, ceil_div(width, std::int64_t{threads} * each))) {}
  unsigned threads;
  dim3 blocks;
};

}  // namespace

template <class T>
void activation_forward(Stream stream, Activation kind, const T* x, T* y, std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  const dim3 blocks = blocks_for(count, kPack<D>);
  with_kind(kind, [&](auto constant) {
    with_flag(aligned(x, y), [&](auto vectorized) {
      launch<activate<constant.value, D, vectorized.value>>(stream, blocks, kThreads, 0,
                                                            on_device(x), on_device(y), count);
    });
  });
}

template <class T>
void activation_backward(Stream stream, Activation kind, const T* x, const T* dy, T* dx, T* y,
                         std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  const dim3 blocks = blocks_for(count, kPack<D>);
  with_kind(kind, [&](auto constant) {
    with_flag(aligned(x, dy, dx, y), [&](auto vectorized) {
      launch<activate_backward<constant.value, D, vectorized.value>>(
          stream, blocks, kThreads, 0, on_device(x), on_device(dy), on_device(dx), on_device(y),
          count);
    });
  });
}

template <class T>
void gated_forward(Stream stream, Activation kind, const T* x, T* y, std::int64_t rows,
                   std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  const RowBlocks at(rows, width, kPack<D>);
  with_kind(kind, [&](auto constant) {
    with_flag(aligned(x, y) && width % kPack<D> == 0, [&](auto vectorized) {
      launch<gate<constant.value, D, vectorized.value>>(stream, at.blocks, at.threads, 0,
                                                        on_device(x), on_device(y), width);
    });
  });
}

template <class T>
void gated_backward(Stream stream, Activation kind, const T* x, const T* dy, T* dx, T* y,
                    std::int64_t rows, std::int64_t width) {
  using D = typename OnDevice<T>::Type;
  const RowBlocks at(rows, width, kPack<D>);
  with_kind(kind, [&](auto constant) {
    with_flag(aligned(x, dy, dx, y) && width % kPack<D> == 0, [&](auto vectorized) {
      launch<gate_backward<constant.value, D, vectorized.value>>(
          stream, at.blocks, at.threads, 0, on_device(x), on_device(dy), on_device(dx),
          on_device(y), width);
    });
  });
}

template <class T>
void scale(Stream stream, T* x, double factor, std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  const dim3 blocks = blocks_for(count, kPack<D>);
  with_flag(aligned(x), [&](auto vectorized) {
    launch<scale_packs<D, vectorized.value>>(stream, blocks, kThreads, 0, on_device(x),
                                             static_cast<float>(factor), count);
  });
}

template <class T>
void add(Stream stream, T* x, const T* y, std::int64_t count) {
  using D = typename OnDevice<T>::Type;
  const dim3 blocks = blocks_for(count, kPack<D>);
  with_flag(aligned(x, y), [&](auto vectorized) {
    launch<add_packs<D, vectorized.value>>(stream, blocks, kThreads, 0, on_device(x), on_device(y),
                                           count);
  });
}

template <class To, class From>
void cast(Stream stream, const From* from, To* to, std::int64_t count) {
  using D = typename OnDevice<To>::Type;
  using F = typename OnDevice<From>::Type;
  const dim3 blocks = blocks_for(count, 8);
  with_flag(aligned(from, to), [&](auto vectorized) {
    launch<cast_packs<D, F, vectorized.value>>(stream, blocks, kThreads, 0, on_device(from),
                                               on_device(to), count);
  });
}

#define ECHELON_ELEMENTWISE(T)                                                                  \
  template void activation_forward<T>(Stream, Activation, const T*, T*, std::int64_t);          \
  template void activation_backward<T>(Stream, Activation, const T*, const T*, T*, T*,          \
                                       std::int64_t);                                           \
  template void gated_forward<T>(Stream, Activation, const T*, T*, std::int64_t, std::int64_t); \
  template void gated_backward<T>(Stream, Activation, const T*, const T*, T*, T*, std::int64_t, \
                                  std::int64_t);                                                \
  template void scale<T>(Stream, T*, double, std::int64_t);                                     \
  template void add<T>(Stream, T*, const T*, std::int64_t);
ECHELON_ELEMENTWISE(float)
ECHELON_ELEMENTWISE(Bfloat16)
#undef ECHELON_ELEMENTWISE
template void cast<float, Bfloat16>(Stream, const Bfloat16*, float*, std::int64_t);
template void cast<Bfloat16, float>(Stream, const float*, Bfloat16*, std::int64_t);

}  // namespace echelon::cuda
