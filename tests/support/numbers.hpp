// Seeded numbers that are the same on every machine: std's distributions are not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace echelon {

/// splitmix64.
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
  /// 0 .. most.
  int upto(int most) { return static_cast<int>(next() % (static_cast<std::uint64_t>(most) + 1)); }
  bool coin() { return next() % 2 == 0; }
  /// In [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double between(double low, double high) { return low + (high - low) * unit(); }

 private:
  std::uint64_t state_;
};

}  // namespace echelon
