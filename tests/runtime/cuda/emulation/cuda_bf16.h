// Replaces the CUDA toolkit's header where kernels are compiled for the host.
#pragma once

#include "runtime/comm/element.hpp"

/// Rounds to nearest, ties to even, as Bfloat16 does.
struct __nv_bfloat16 {
  std::uint16_t bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {echelon::Bfloat16(x).bits}; }
inline float __bfloat162float(__nv_bfloat16 x) {
  echelon::Bfloat16 value;
  value.bits = x.bits;
  return static_cast<float>(value);
}
