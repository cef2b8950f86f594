// BumpAllocator: consecutive pieces of a block of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace echelon {

/// Each piece begins at a multiple of this (a cache line, and what AVX-512 and cuBLASLt want).
inline constexpr std::int64_t kAlignment = 64;
[[nodiscard]] constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The code that lays out a block also measures it, when there is no block yet.
class BumpAllocator {
 public:
  /// Null: measures only; pieces are null, too.
  explicit BumpAllocator(std::byte* block) : block_(block) {}
  template <class E>
  [[nodiscard]] E* allocate(std::int64_t count) {
    std::byte* const piece = block_ == nullptr ? nullptr : block_ + used_;
    used_ += aligned(count * static_cast<std::int64_t>(sizeof(E)));
    return reinterpret_cast<E*>(piece);
  }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  std::byte* block_;
  std::int64_t used_ = 0;
};

}  // namespace echelon
