// Seeded changes to an input: a bounded stand-in for libFuzzer where clang is not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace echelon::fuzz {

/// splitmix64: the same numbers on every machine.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// 0 .. count − 1; count ≥ 1.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }

 private:
  std::uint64_t state_;
};

/// `input` with one to eight changes: bytes flipped, put in, taken out or repeated, parts of
/// `other` put in, numbers and words replaced by ones that readers stumble over, the end cut off.
[[nodiscard]] std::string mutated(std::string input, std::string_view other, Numbers& numbers);

}  // namespace echelon::fuzz
