// Shared by all kernels: numbers and packs of them, reductions over warps and blocks, launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/cuda/kernels/launch_errors.hpp"
#include "runtime/cuda/kernels/shared.cuh"

namespace echelon::cuda {

// ---- Numbers. Arithmetic is in float; T is what is stored.

template <class T>
struct OnDevice {
  using Type = T;
};
template <>
struct OnDevice<Bfloat16> {
  using Type = __nv_bfloat16;
};
static_assert(sizeof(Bfloat16) == sizeof(__nv_bfloat16));

/// The same memory, as kernels name its type.
template <class T>
auto* on_device(T* x) {
  return reinterpret_cast<typename OnDevice<T>::Type*>(x);
}
template <class T>
const auto* on_device(const T* x) {
  return reinterpret_cast<const typename OnDevice<T>::Type*>(x);
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
    return __float2bfloat16_rn(x);
  }
}

/// log2 e: e^x = 2^(x·log2 e).
inline constexpr float kLog2E = 1.44269504F;

/// 2^x, by one instruction: numbers below the normal ones are taken, and given, as 0.
__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

/// 1/x to within a unit in the last place, by one instruction; 0 beyond 2^126.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDACC__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

__device__ __forceinline__ float sigmoid(float z) { return 1 / (1 + expf(-z)); }

/// T per 16-byte access of a thread.
template <class T>
inline constexpr int kPack = static_cast<int>(16 / sizeof(T));

/// n numbers in registers.
template <int n>
struct Pack {
  float at[n];
};

/// The first `left` of n numbers (all if there are more), the others are 0. With `vectorized`, x is
/// aligned to the size of n numbers, at most 16 bytes.
template <int n, bool vectorized, class T>
__device__ __forceinline__ Pack<n> load(const T* x, std::int64_t left) {
  Pack<n> pack;
  if (vectorized && left >= n) {
    constexpr int kBytes = static_cast<int>(n * sizeof(T));
    T values[n];
    if constexpr (kBytes % 16 == 0) {
      for (int i = 0; i < kBytes / 16; ++i) {
        const uint4 bits = load_bits<uint4>(reinterpret_cast<const char*>(x) + 16 * i);
        std::memcpy(reinterpret_cast<char*>(values) + 16 * i, &bits, 16);
      }
    } else if constexpr (kBytes == 8) {
      const uint2 bits = load_bits<uint2>(x);
      std::memcpy(values, &bits, 8);
    } else {
      static_assert(kBytes == 4);
      const auto bits = load_bits<std::uint32_t>(x);
      std::memcpy(values, &bits, 4);
    }
#pragma unroll
    for (int i = 0; i < n; ++i) pack.at[i] = to_float(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) pack.at[i] = i < left ? to_float(x[i]) : 0.0F;
  }
  return pack;
}

template <int n, bool vectorized, class T>
__device__ __forceinline__ void store(T* x, const Pack<n>& pack, std::int64_t left) {
  if (vectorized && left >= n) {
    constexpr int kBytes = static_cast<int>(n * sizeof(T));
    T values[n];
#pragma unroll
    for (int i = 0; i < n; ++i) values[i] = from_float<T>(pack.at[i]);
    if constexpr (kBytes % 16 == 0) {
      for (int i = 0; i < kBytes / 16; ++i) {
        uint4 bits;
        std::memcpy(&bits, reinterpret_cast<const char*>(values) + 16 * i, 16);
        store_bits(reinterpret_cast<char*>(x) + 16 * i, bits);
      }
    } else if constexpr (kBytes == 8) {
      uint2 bits;
      std::memcpy(&bits, values, 8);
      store_bits(x, bits);
    } else {
      static_assert(kBytes == 4);
      std::uint32_t bits = 0;
      std::memcpy(&bits, values, 4);
      store_bits(x, bits);
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if (i < left) x[i] = from_float<T>(pack.at[i]);
    }
  }
}

/// The same within rows, which with `vectorized` consist of whole packs: `left` is at least 1.
template <int n, bool vectorized, class T>
__device__ __forceinline__ Pack<n> load_in_row(const T* x, std::int64_t left) {
  return load<n, vectorized>(x, vectorized ? n : left);
}
template <int n, bool vectorized, class T>
__device__ __forceinline__ void store_in_row(T* x, const Pack<n>& pack, std::int64_t left) {
  store<n, vectorized>(x, pack, vectorized ? n : left);
}

/// A pack of a row in as many registers as it takes in memory.
template <class T>
struct Held {
  uint4 bits;

  __device__ __forceinline__ Pack<kPack<T>> numbers() const {
    T values[kPack<T>];
    std::memcpy(values, &bits, 16);
    Pack<kPack<T>> pack;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) pack.at[i] = to_float(values[i]);
    return pack;
  }
};
template <bool vectorized, class T>
__device__ __forceinline__ Held<T> hold(const T* x, std::int64_t left) {
  Held<T> held;
  if constexpr (vectorized) {
    held.bits = load_bits<uint4>(x);
  } else {
    T values[kPack<T>];
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) values[i] = i < left ? x[i] : from_float<T>(0);
    std::memcpy(&held.bits, values, 16);
  }
  return held;
}

/// The same in shared memory, where whole groups always fit and are aligned to 16 bytes.
template <int n, class T>
__device__ __forceinline__ Pack<n> load(const Shared<T>& x, std::int64_t at) {
  T values[n];
  static_assert(sizeof values % 16 == 0);
  constexpr int kUnits = static_cast<int>(sizeof values / 16);
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const uint4 bits = x.template read_bits<uint4>(at + i * kPack<T>);
    std::memcpy(reinterpret_cast<char*>(values) + 16 * i, &bits, 16);
  }
  Pack<n> pack;
#pragma unroll
  for (int i = 0; i < n; ++i) pack.at[i] = to_float(values[i]);
  return pack;
}

template <int n, class T>
__device__ __forceinline__ void store(const Shared<T>& x, std::int64_t at, const Pack<n>& pack) {
  T values[n];
  static_assert(sizeof values % 16 == 0);
  constexpr int kUnits = static_cast<int>(sizeof values / 16);
#pragma unroll
  for (int i = 0; i < n; ++i) values[i] = from_float<T>(pack.at[i]);
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    uint4 bits;
    std::memcpy(&bits, reinterpret_cast<const char*>(values) + 16 * i, 16);
    x.write_bits(at + i * kPack<T>, bits);
  }
}

// ---- Threads

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x / 32); }
/// Of all threads of a grid of one dimension.
__device__ __forceinline__ std::int64_t thread_of_grid() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffU, x, lanes);
  return x;
}

/// Ignores NaN.
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, lanes));
  }
  return x;
}

/// Shared floats for reductions over a one-dimensional block: one per warp, 32 at most.
inline constexpr int kMaxWarps = 32;

/// The sum over the block, in an order that depends on its size alone; the same for all threads.
template <class T>
__device__ __forceinline__ T block_sum(T x, const Shared<T>& of_warps) {
  x = warp_sum(x);
  if (lane_index() == 0) of_warps.write(warp_index(), x);
  __syncthreads();
  T sum = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x / 32); ++warp) sum += of_warps.read(warp);
  __syncthreads();
  return sum;
}

// ---- Launches

__host__ __device__ constexpr std::int64_t ceil_div(std::int64_t count, std::int64_t part) {
  return (count + part - 1) / part;
}

/// Threads of a block with `work` items: whole warps, at most `max_norm`.
constexpr unsigned threads_for(std::int64_t work, std::int64_t max_threads) {
  const std::int64_t whole = ceil_div(work, 32) * 32;
  return static_cast<unsigned>(whole < 32 ? 32 : whole > max_threads ? max_threads : whole);
}

inline dim3 grid_of(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

/// A variant of a kernel: `run` with std::true_type or std::false_type.
template <class Run>
void with_flag(bool flag, const Run& run) {
  if (flag) {
    run(std::true_type{});
  } else {
    run(std::false_type{});
  }
}

/// For load_kernels(): what any launch names.
inline std::vector<const void*>& all_kernels() {
  static std::vector<const void*> all;
  return all;
}
inline bool register_kernel(const void* kernel) {
  all_kernels().push_back(kernel);
  return true;
}
template <auto kernel>
inline const bool kRegistered = register_kernel(reinterpret_cast<const void*>(kernel));

/// A failed launch leaves its error for take_launch_error(). A grid without blocks is not launched.
template <auto kernel, class... Arguments>
void launch(Stream stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            Arguments... arguments) {
  [[maybe_unused]] const bool* const registered = &kRegistered<kernel>;  // before main
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
#ifndef __CUDACC__
  emulation::name_kernel(reinterpret_cast<const void*>(kernel), __PRETTY_FUNCTION__);
#endif
  constexpr std::size_t kUnasked = 48 * 1024;
  if (shared_bytes > kUnasked) {
    note_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  note_launch(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace echelon::cuda
