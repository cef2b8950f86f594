// Sums, maxima and copies over the memory of several ranks that share a GPU: one read of each
// member's part, one write to each that gets the result.
#include "core/base/expects.hpp"
#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

constexpr int kReduceThreads = 256;

/// Addresses of the members' parts and of the results.
struct Parts {
  const void* in[kMaxMembers];
  void* out[kMaxMembers];
  int ins = 0;
  int outs = 0;
};

/// The accumulator type of an element.
template <class T>
struct SumOf {
  using Type = float;  // float, bfloat16
};
template <>
struct SumOf<double> {
  using Type = double;
};
template <>
struct SumOf<std::int32_t> {
  using Type = std::uint32_t;  // modulo 2^32
};

template <class W, class T>
__device__ __forceinline__ W taken(T x) {
  if constexpr (sizeof(T) == 2) {
    return to_float(x);
  } else {
    return static_cast<W>(x);
  }
}
template <class T, class W>
__device__ __forceinline__ T given(W x) {
  if constexpr (sizeof(T) == 2) {
    return from_float<T>(x);
  } else {
    return static_cast<T>(x);
  }
}

/// A maximum with NaN is NaN.
template <class T, bool largest, class W>
__device__ __forceinline__ W joined(W a, W b) {
  if constexpr (!largest) {
    return a + b;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<std::int32_t>(b) > static_cast<std::int32_t>(a) ? b : a;
  } else {
    return b > a || b != b ? b : a;
  }
}

/// 16 bytes of one member, or the remaining `left` elements.
template <class T, int n, bool vectorized>
__device__ __forceinline__ void read_values(const T* x, std::int64_t left, T (&values)[n]) {
  if (vectorized && left >= n) {
    const uint4 bits = load_bits<uint4>(x);
    std::memcpy(values, &bits, 16);
    return;
  }
#pragma unroll
  for (int i = 0; i < n; ++i) {
    if (i < left) values[i] = x[i];
  }
}

template <class T, int n, bool vectorized>
__device__ __forceinline__ void write_values(T* x, std::int64_t left, const T (&values)[n]) {
  if (vectorized && left >= n) {
    uint4 bits;
    std::memcpy(&bits, values, 16);
    return store_bits(x, bits);
  }
#pragma unroll
  for (int i = 0; i < n; ++i) {
    if (i < left) x[i] = values[i];
  }
}

/// A thread reads its elements of all members before it writes them: outs may be ins.
template <class T, bool largest, bool vectorized>
__global__ void reduce_parts(Parts parts, std::int64_t count) {
  using W = typename SumOf<T>::Type;
  constexpr int n = kPack<T>;
  const std::int64_t at = thread_of_grid() * n;
  if (at >= count) return;
  T values[n] = {};
  W sum[n];
  read_values<T, n, vectorized>(static_cast<const T*>(parts.in[0]) + at, count - at, values);
#pragma unroll
  for (int i = 0; i < n; ++i) sum[i] = taken<W>(values[i]);
#pragma unroll 4
  for (int member = 1; member < parts.ins; ++member) {
    read_values<T, n, vectorized>(static_cast<const T*>(parts.in[member]) + at, count - at, values);
#pragma unroll
    for (int i = 0; i < n; ++i) sum[i] = joined<T, largest>(sum[i], taken<W>(values[i]));
  }
#pragma unroll
  for (int i = 0; i < n; ++i) values[i] = given<T>(sum[i]);
  for (int k = 0; k < parts.outs; ++k) {
    write_values<T, n, vectorized>(static_cast<T*>(parts.out[k]) + at, count - at, values);
  }
}

template <bool vectorized>
__global__ void copy_part(Parts parts, std::int64_t bytes) {
  constexpr int n = 16;
  const std::int64_t at = thread_of_grid() * n;
  if (at >= bytes) return;
  unsigned char values[n] = {};
  read_values<unsigned char, n, vectorized>(static_cast<const unsigned char*>(parts.in[0]) + at,
                                            bytes - at, values);
  for (int k = 0; k < parts.outs; ++k) {
    write_values<unsigned char, n, vectorized>(static_cast<unsigned char*>(parts.out[k]) + at,
                                               bytes - at, values);
  }
}

Parts parts_at(std::span<const void* const> in, std::int64_t in_bytes, std::span<void* const> out,
               std::int64_t out_bytes) {
  EXPECTS(!in.empty() && in.size() <= kMaxMembers && out.size() <= kMaxMembers,
          "a reduction has members, as many as fit a launch");
  Parts parts{};
  for (const void* each : in) {
    parts.in[parts.ins++] = static_cast<const char*>(each) + in_bytes;
  }
  for (void* each : out) parts.out[parts.outs++] = static_cast<char*>(each) + out_bytes;
  return parts;
}

bool all_aligned(const Parts& parts) {
  bool all = true;
  for (int i = 0; i < parts.ins; ++i) all = all && aligned(parts.in[i]);
  for (int i = 0; i < parts.outs; ++i) all = all && aligned(parts.out[i]);
  return all;
}

template <class T>
void reduce_as(Stream stream, const Parts& parts, std::int64_t count, Reduction how) {
  const dim3 grid = grid_of(ceil_div(ceil_div(count, kPack<T>), kReduceThreads));
  with_flag(how == Reduction::max, [&](auto largest) {
    with_flag(all_aligned(parts), [&](auto vectorized) {
      launch<reduce_parts<T, decltype(largest)::value, decltype(vectorized)::value>>(
          stream, grid, dim3(kReduceThreads), 0, parts, count);
    });
  });
}

}  // namespace

void reduce_in_order(Stream stream, std::span<const void* const> in, std::int64_t in_at,
                     std::span<void* const> out, std::int64_t out_at, std::int64_t count,
                     Element element, Reduction how) {
  const std::int64_t width = bytes_of(element);
  const Parts parts = parts_at(in, in_at * width, out, out_at * width);
  switch (element) {
    case Element::f32: return reduce_as<float>(stream, parts, count, how);
    case Element::f64: return reduce_as<double>(stream, parts, count, how);
    case Element::bf16: return reduce_as<__nv_bfloat16>(stream, parts, count, how);
    case Element::i32: return reduce_as<std::int32_t>(stream, parts, count, how);
  }
}

void copy_to_all(Stream stream, const void* from, std::span<void* const> to, std::int64_t bytes) {
  const Parts parts = parts_at(std::span(&from, 1), 0, to, 0);
  if (parts.outs == 0) return;
  const dim3 grid = grid_of(ceil_div(ceil_div(bytes, 16), kReduceThreads));
  with_flag(all_aligned(parts), [&](auto vectorized) {
    launch<copy_part<decltype(vectorized)::value>>(stream, grid, dim3(kReduceThreads), 0, parts,
                                                   bytes);
  });
}

}  // namespace echelon::cuda
