// Vectors of 64 bytes. Their width does not depend on the machine, so neither does the order of a
// sum: wider registers make a kernel faster without changing its bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "runtime/comm/element.hpp"

// ECHELON_CLONES before a function compiles it for AVX-512, AVX2 and the baseline; the program
// chooses when it starts. Loops of OpenMP do not inherit it: call such functions from them.
// Sanitizers are not yet initialized at that time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ECHELON_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ECHELON_CLONES
#endif
#define ECHELON_INLINE __attribute__((always_inline)) inline

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // all functions that take or return vectors are inlined
#endif

namespace echelon::cpu {

template <class W>
struct LanesOf {
  typedef W Vector __attribute__((vector_size(64)));
  static constexpr std::int64_t kCount = 64 / sizeof(W);
};
template <class W>
using Lanes = typename LanesOf<W>::Vector;
template <class W>
inline constexpr std::int64_t kLanes = LanesOf<W>::kCount;

using HalfWords = std::uint16_t __attribute__((vector_size(32)));
using Words = std::uint32_t __attribute__((vector_size(64)));

/// The stored form of a vector of Wide<T>.
template <class T>
struct StoredOf {
  using Vector = Lanes<T>;
};
template <>
struct StoredOf<Bfloat16> {
  using Vector = HalfWords;
};
template <class T>
using Stored = typename StoredOf<T>::Vector;

/// The vector at x, of which `left` numbers exist (any number of them); the rest is `filler`.
template <class T>
ECHELON_INLINE Lanes<Wide<T>> load(const T* x, std::int64_t left, Wide<T> filler = 0) {
  Stored<T> all;
  if (left >= kLanes<Wide<T>>) [[likely]] {  // copies of a constant size are one instruction
    std::memcpy(&all, x, sizeof all);
  } else {
    T some[kLanes<Wide<T>>];
    std::fill(std::copy_n(x, left, some), some + kLanes<Wide<T>>, T(filler));
    std::memcpy(&all, some, sizeof all);
  }
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return (Lanes<float>)(__builtin_convertvector(all, Words) << 16U);
  } else {
    return all;
  }
}

/// Rounds like Bfloat16's constructor: the upper half of each word is stored.
ECHELON_INLINE Words rounded_words(const Lanes<float>& wide) {
  const auto bits = (Words)wide;
  const Words rounded = bits + 0x7fffU + ((bits >> 16U) & 1U);
  return (bits & 0x7fffffffU) > 0x7f800000U ? (bits | 0x400000U) : rounded;
}

template <class T>
ECHELON_INLINE void store(T* x, const Lanes<Wide<T>>& wide, std::int64_t left) {
  Stored<T> all;
  if constexpr (std::is_same_v<T, Bfloat16>) {
    all = __builtin_convertvector(rounded_words(wide) >> 16U, HalfWords);
  } else {
    all = wide;
  }
  if (left >= kLanes<Wide<T>>) [[likely]] {
    void* to = x;
    std::memcpy(to, &all, sizeof all);
  } else {
    T some[kLanes<Wide<T>>];
    void* to = some;
    std::memcpy(to, &all, sizeof all);
    std::copy_n(some, left, x);
  }
}

/// The value read back after storing it as T.
template <class T>
ECHELON_INLINE Lanes<Wide<T>> rounded(const Lanes<Wide<T>>& wide) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return (Lanes<float>)(rounded_words(wide) & 0xffff0000U);
  } else {
    return wide;
  }
}

template <class W>
ECHELON_INLINE W sum(const Lanes<W>& x) {
  W half[kLanes<W>];
  std::memcpy(half, &x, sizeof half);
  for (std::int64_t width = kLanes<W> / 2; width > 0; width /= 2) {
    for (std::int64_t i = 0; i < width; ++i) half[i] += half[i + width];
  }
  return half[0];
}

/// b if either is NaN. (GCC 12 compares a != a element by element.)
template <class V>
ECHELON_INLINE V larger(const V& a, const V& b) {
  return a > b ? a : b;
}

/// The largest of x, which may be empty, and `least`. NaN is ignored: its exponential is NaN.
template <class T>
ECHELON_INLINE Wide<T> largest_of(const T* x, std::int64_t count, Wide<T> floor) {
  using W = Wide<T>;
  constexpr std::int64_t n = kLanes<W>;
  Lanes<W> all = Lanes<W>{} + floor;
  Lanes<W> other = all;
  std::int64_t i = 0;
  for (; i + 2 * n <= count; i += 2 * n) {
    all = larger(load(x + i, n), all);
    other = larger(load(x + i + n, n), other);
  }
  for (; i < count; i += n) all = larger(load(x + i, count - i, floor), all);
  all = larger(all, other);
  W half[n];
  std::memcpy(half, &all, sizeof half);
  for (std::int64_t width = n / 2; width > 0; width /= 2) {
    for (std::int64_t lane = 0; lane < width; ++lane) {
      half[lane] = larger<W>(half[lane], half[lane + width]);
    }
  }
  return half[0];
}

/// e^x within 2 units in the last place; 0 below −87, where floats lose digits. NaN stays NaN.
/// x = n·ln 2 + r, e^r by the polynomial of Cephes' expf (netlib.org/cephes, single/expf.c).
ECHELON_INLINE Lanes<float> exp(const Lanes<float>& argument) {
  using V = Lanes<float>;
  V x = argument < -87.4F ? V{} - 87.4F : argument;
  x = x > 89.0F ? V{} + 89.0F : x;
  constexpr float kRound = 12582912.0F;  // 1.5·2²³: the sum's last bits are the nearest integer
  const V shifted = x * 1.44269504088896341F + kRound;
  const V n = shifted - kRound;
  const V r = x - n * 0.693359375F - n * -2.12194440e-4F;
  V p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  // 2ⁿ⁻¹: n = 128 must not overflow here, and n = −126 gives zero.
  const Words power = ((Words)shifted - std::bit_cast<std::uint32_t>(kRound) + 126U) << 23U;
  return p * (V)power * 2.0F;
}
ECHELON_INLINE Lanes<double> exp(const Lanes<double>& x) {
  Lanes<double> y = x;
  for (std::int64_t i = 0; i < kLanes<double>; ++i) y[i] = std::exp(x[i]);
  return y;
}

/// Calls part(begin, end) for [0, count) in parts of `grain`, on the threads OpenMP allows.
template <class Part>
void in_parts(std::int64_t count, std::int64_t grain, const Part& part) {
  const std::int64_t parts = (count + grain - 1) / grain;
#pragma omp parallel for schedule(static) if (parts > 1)
  for (std::int64_t i = 0; i < parts; ++i) part(i * grain, std::min(count, (i + 1) * grain));
}
inline constexpr std::int64_t kGrain = 1 << 13;  ///< numbers a thread takes at a time
/// The same in rows.
[[nodiscard]] inline std::int64_t grain_of_rows(std::int64_t width) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, width));
}

/// Sums over all rows, added up per block of rows, whichever thread has the block: the same bits
/// for any number of threads.
template <class W>
class RowSums {
 public:
  static constexpr std::int64_t kRows = 64;  ///< of a block
  RowSums(std::int64_t rows, std::int64_t width)
      : width_(width), sums_(static_cast<std::size_t>((rows + kRows - 1) / kRows * width)) {}
  /// Sums of the block that begins with this row: `width` numbers, initially zero.
  W* part(std::int64_t row) { return sums_.data() + row / kRows * width_; }
  void add_to(W* total) const;

 private:
  std::int64_t width_;
  std::vector<W> sums_;
};

/// total += the sum of `rows` rows, of which `columns` numbers each are added.
template <class T>
ECHELON_CLONES void add_rows(const T* x, std::int64_t rows, std::int64_t stride,
                             std::int64_t columns, Wide<T>* total) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < columns; i += kLanes<Wide<T>>) {
      const std::int64_t left = columns - i;
      store(total + i, load(total + i, left) + load(x + r * stride + i, left), left);
    }
  }
}

template <class W>
void RowSums<W>::add_to(W* total) const {
  if (width_ == 0) return;
  const std::int64_t parts = static_cast<std::int64_t>(sums_.size()) / width_;
  in_parts(width_, 256, [&](std::int64_t begin, std::int64_t end) {
    add_rows(sums_.data() + begin, parts, width_, end - begin, total + begin);
  });
}

}  // namespace echelon::cpu
