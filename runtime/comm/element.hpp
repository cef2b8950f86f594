// Number formats of the runtime and their accumulator types.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace echelon {

/// The upper half of a float; rounds to nearest, ties to even. NaN stays NaN.
struct Bfloat16 {
  std::uint16_t bits = 0;
  Bfloat16() = default;
  explicit Bfloat16(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    const bool nan = (all & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = all + 0x7fffU + ((all >> 16U) & 1U);
    bits = static_cast<std::uint16_t>((nan ? (all | 0x400000U) : rounded) >> 16U);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
};

enum class Element : std::uint8_t { f32, f64, bf16, i32 };
[[nodiscard]] constexpr std::int64_t bytes_of(Element element) {
  return element == Element::f64 ? 8 : element == Element::bf16 ? 2 : 4;
}
[[nodiscard]] constexpr std::string_view name_of(Element element) {
  switch (element) {
    case Element::f32: return "f32";
    case Element::f64: return "f64";
    case Element::bf16: return "bf16";
    case Element::i32: return "i32";
  }
  return "?";
}

/// Traits of a number type: its Element, and the type of sums, gradients, master weights and
/// moments (fp32 for bf16).
template <class T>
struct Number;
template <>
struct Number<float> {
  static constexpr Element kElement = Element::f32;
  using Wide = float;
};
template <>
struct Number<double> {
  static constexpr Element kElement = Element::f64;
  using Wide = double;
};
template <>
struct Number<Bfloat16> {
  static constexpr Element kElement = Element::bf16;
  using Wide = float;
};
template <class T>
using Wide = typename Number<T>::Wide;

}  // namespace echelon
