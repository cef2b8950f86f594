#include "runtime/comm/ordered_reduction.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

/// Elements summed at a time: accumulators and one member's part stay in a first-level cache.
constexpr std::int64_t kReduceBlock = 2048;

struct Plus {
  template <class W>
  W operator()(W a, W b) const {
    return a + b;
  }
};
struct Larger {
  template <class W>
  W operator()(W a, W b) const {
    return b > a || b != b ? b : a;
  }
};

template <class T, class W, class How>
void reduce_block(std::span<const void* const> in, std::int64_t in_at, W* sum, std::int64_t count,
                  How how) {
  const auto part = [&](std::size_t member) { return static_cast<const T*>(in[member]) + in_at; };
  const T* first = part(0);
  if (in.size() == 1) {
    for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<W>(first[i]);
    return;
  }
  const T* second = part(1);
  for (std::int64_t i = 0; i < count; ++i) {
    sum[i] = how(static_cast<W>(first[i]), static_cast<W>(second[i]));
  }
  for (std::size_t member = 2; member < in.size(); ++member) {
    const T* next = part(member);
    for (std::int64_t i = 0; i < count; ++i) sum[i] = how(sum[i], static_cast<W>(next[i]));
  }
}

template <class T, class W, class How>
void reduce_all(std::span<const void* const> in, std::int64_t in_at, std::span<void* const> out,
                std::int64_t out_at, std::int64_t count, How how) {
  std::array<W, kReduceBlock> sum;
  std::array<T, kReduceBlock> rounded;
  for (std::int64_t at = 0; at < count; at += kReduceBlock) {
    const std::int64_t here = std::min(kReduceBlock, count - at);
    reduce_block<T>(in, in_at + at, sum.data(), here, how);
    const void* result = sum.data();
    if constexpr (!std::is_same_v<T, W>) {
      for (std::int64_t i = 0; i < here; ++i) {
        rounded[static_cast<std::size_t>(i)] = static_cast<T>(sum[static_cast<std::size_t>(i)]);
      }
      result = rounded.data();
    }
    for (void* to : out) {
      std::memcpy(static_cast<T*>(to) + out_at + at, result,
                  static_cast<std::size_t>(here) * sizeof(T));
    }
  }
}

template <class How>
void reduce_as(std::span<const void* const> in, std::int64_t in_at, std::span<void* const> out,
               std::int64_t out_at, std::int64_t count, Element element, How how) {
  switch (element) {
    case Element::f32: return reduce_all<float, float>(in, in_at, out, out_at, count, how);
    case Element::f64: return reduce_all<double, double>(in, in_at, out, out_at, count, how);
    case Element::bf16:
      return reduce_all<Bfloat16, Wide<Bfloat16>>(in, in_at, out, out_at, count, how);
    case Element::i32:
      return reduce_all<std::int32_t, std::int64_t>(in, in_at, out, out_at, count, how);
  }
}

}  // namespace

void reduce_in_order(std::span<const void* const> in, std::int64_t in_at,
                     std::span<void* const> out, std::int64_t out_at, std::int64_t count,
                     Element element, Reduction how) {
  EXPECTS(!in.empty(), "a reduction has members");
  how == Reduction::sum ? reduce_as(in, in_at, out, out_at, count, element, Plus())
                        : reduce_as(in, in_at, out, out_at, count, element, Larger());
}

}  // namespace echelon
