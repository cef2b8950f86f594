// Replaces the CUDA toolkit's header where kernels are compiled for the host. It declares only what
// the kernels need; any other use does not compile: no atomics, no static __shared__ arrays, no
// printf.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/runtime/cuda/emulation/block.hpp"
#include "tests/runtime/cuda/standins/cuda_runtime_api.h"
#include "tests/runtime/cuda/standins/launch.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct alignas(16) uint4 {
  unsigned x = 0, y = 0, z = 0, w = 0;
};
struct alignas(8) uint2 {
  unsigned x = 0, y = 0;
};

// ---- The host's side: cuda_runtime_api.h, and declarations that exist only in C++

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int bytes) {
  echelon::emulation::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
  return cudaSuccess;
}

/// Enqueues the grid on the stream, with copies of the arguments; the null stream runs it at once. A
/// fault is thrown where the device would report an error later or not at all.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  std::vector<const void*> pointers;
  const auto note = [&](const auto& value) {
    if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(value)>>) {
      pointers.push_back(value);
    }
  };
  std::apply([&](const auto&... each) { (note(each), ...); }, values);
  return echelon::standins::launch_kernel(*config, reinterpret_cast<const void*>(kernel), pointers,
                                          [kernel, values] { std::apply(kernel, values); });
}

// ---- Within a kernel

inline void __syncthreads(echelon::emulation::Place where = {__builtin_FILE(), __builtin_LINE()}) {
  echelon::emulation::sync_threads(where);
}
inline void __syncwarp(echelon::emulation::Place where = {__builtin_FILE(), __builtin_LINE()}) {
  echelon::emulation::sync_warp(where);
}

namespace echelon::emulation {

/// The value of lane `from` of the warp; all 32 lanes must call it.
template <class T>
T shuffle(unsigned mask, T value, int from, echelon::emulation::Place where) {
  static_assert(sizeof(T) <= kSlotBytes);
  Slot slot{};
  std::memcpy(slot.bytes, &value, sizeof value);
  const Slot* slots = gather_warp(mask, slot, nullptr, where);
  std::memcpy(&value, slots[from].bytes, sizeof value);
  return value;
}

}  // namespace echelon::emulation

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes,
                  echelon::emulation::Place where = {__builtin_FILE(), __builtin_LINE()}) {
  return echelon::emulation::shuffle(mask, value, echelon::emulation::lane() ^ lanes, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane,
              echelon::emulation::Place where = {__builtin_FILE(), __builtin_LINE()}) {
  return echelon::emulation::shuffle(mask, value, lane % 32, where);
}
inline unsigned __ballot_sync(unsigned mask, bool vote,
                              echelon::emulation::Place where = {__builtin_FILE(), __builtin_LINE()}) {
  echelon::emulation::Slot slot{};
  slot.bytes[0] = vote ? 1 : 0;
  const echelon::emulation::Slot* slots =
      echelon::emulation::gather_warp(mask, slot, nullptr, where);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= unsigned{slots[lane].bytes[0]} << lane;
  return votes;
}
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
