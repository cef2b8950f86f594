// Products of user-supplied numbers: they may exceed 64 bits and must not wrap around.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>

namespace echelon {

/// The product of non-negative numbers, or nothing if it exceeds 64 bits.
[[nodiscard]] constexpr std::optional<std::int64_t> checked_product(
    std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  bool fits = true;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    fits = fits && !__builtin_mul_overflow(product, factor, &product);
  }
  return fits ? std::optional(product) : std::nullopt;
}

/// The same, or the largest 64-bit number on overflow: for comparisons that only need "too many".
[[nodiscard]] constexpr std::int64_t saturated_product(
    std::initializer_list<std::int64_t> factors) {
  return checked_product(factors).value_or(std::numeric_limits<std::int64_t>::max());
}

}  // namespace echelon
