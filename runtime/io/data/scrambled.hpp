// A pseudorandom number from a number.
#pragma once

#include <cstdint>

namespace echelon {

/// The output function of splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators" (OOPSLA 2014), figure 17.
[[nodiscard]] constexpr std::uint64_t scrambled(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace echelon
