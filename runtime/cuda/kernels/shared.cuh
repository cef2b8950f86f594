// Shared memory of a block, as typed parts. Compiled by nvcc a part is a pointer; compiled for the
// host the emulation executes and checks every access (docs/cuda.md).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace echelon::cuda {

/// 16 bytes from global memory at a multiple of 16, or 8 at a multiple of 8.
template <class Bits>
__device__ __forceinline__ Bits load_bits(const void* from) {
#ifdef __CUDACC__
  return *static_cast<const Bits*>(from);
#else
  emulation::check_aligned(from, sizeof(Bits));
  Bits bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
#endif
}

template <class Bits>
__device__ __forceinline__ void store_bits(void* to, Bits bits) {
#ifdef __CUDACC__
  *static_cast<Bits*>(to) = bits;
#else
  emulation::check_aligned(to, sizeof(Bits));
  std::memcpy(to, &bits, sizeof bits);
#endif
}

/// Pack consecutive T.
template <class T>
class Shared {
 public:
#ifdef __CUDACC__
  __device__ explicit Shared(void* at) : at_(static_cast<T*>(at)) {}
  __device__ T read(std::int64_t i) const { return at_[i]; }
  __device__ void write(std::int64_t i, T value) const { at_[i] = value; }
  /// As many T from i on as Bits has bytes, at once; i · sizeof(T) is a multiple of these.
  template <class Bits>
  __device__ Bits read_bits(std::int64_t i) const {
    return *reinterpret_cast<const Bits*>(at_ + i);
  }
  template <class Bits>
  __device__ void write_bits(std::int64_t i, Bits bits) const {
    *reinterpret_cast<Bits*>(at_ + i) = bits;
  }
  __device__ Shared part(std::int64_t i) const { return Shared(at_ + i); }
  /// For instructions that take addresses in shared memory.
  __device__ unsigned address(std::int64_t i) const {
    return static_cast<unsigned>(__cvta_generic_to_shared(at_ + i));
  }

 private:
  T* at_;
#else
  explicit Shared(std::size_t at) : at_(at) {}
  T read(std::int64_t i) const { return read_bits<T>(i); }
  void write(std::int64_t i, T value) const { write_bits(i, value); }
  template <class Bits>
  Bits read_bits(std::int64_t i) const {
    Bits bits;
    emulation::read_shared(address(i), &bits, sizeof bits);
    return bits;
  }
  template <class Bits>
  void write_bits(std::int64_t i, Bits bits) const {
    emulation::write_shared(address(i), &bits, sizeof bits);
  }
  Shared part(std::int64_t i) const { return Shared(address(i)); }
  std::size_t address(std::int64_t i) const {
    return at_ + static_cast<std::size_t>(i) * sizeof(T);
  }

 private:
  std::size_t at_;
#endif
};

/// Allocates from the launch's shared memory, in the order of the calls. Parts are aligned to 16
/// bytes.
class SharedMemory {
 public:
  template <class T>
  __device__ Shared<T> allocate(std::int64_t count) {
    const std::size_t at = allocated_;
    allocated_ += (static_cast<std::size_t>(count) * sizeof(T) + 15) / 16 * 16;
#ifdef __CUDACC__
    extern __shared__ uint4 echelon_shared[];
    return Shared<T>(reinterpret_cast<char*>(echelon_shared) + at);
#else
    return Shared<T>(at);
#endif
  }

 private:
  std::size_t allocated_ = 0;
};

}  // namespace echelon::cuda
