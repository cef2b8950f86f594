// Strong quantities. A plain double is a dimensionless ratio; everything else has a type from here.
#pragma once

#include <cmath>
#include <compare>

namespace echelon {

/// A quantity measured in `Unit`. Arithmetic keeps the dimension; a number leaves it only through
/// `in(unit)`, so the call site names the unit: `memory.in(1_GiB)`, `latency.in(1_us)`.
template <class Unit>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double base) : base_(base) {}

  [[nodiscard]] constexpr double in(Quantity unit) const { return base_ / unit.base_; }
  [[nodiscard]] bool is_finite() const { return std::isfinite(base_); }

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return Quantity{-base_}; }
  constexpr Quantity& operator+=(Quantity other) {
    base_ += other.base_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    base_ -= other.base_;
    return *this;
  }
  constexpr Quantity& operator*=(double ratio) {
    base_ *= ratio;
    return *this;
  }
  constexpr Quantity& operator/=(double ratio) {
    base_ /= ratio;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, double r) { return a *= r; }
  friend constexpr Quantity operator*(double r, Quantity a) { return a *= r; }
  friend constexpr Quantity operator/(Quantity a, double r) { return a /= r; }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.base_ / b.base_; }

 private:
  double base_ = 0;
};

using Bytes = Quantity<struct ByteUnit>;
using Flops = Quantity<struct FlopUnit>;
using Seconds = Quantity<struct SecondUnit>;
using BytesPerSecond = Quantity<struct BytePerSecondUnit>;
using FlopsPerSecond = Quantity<struct FlopPerSecondUnit>;
using Dollars = Quantity<struct DollarUnit>;
using Joules = Quantity<struct JouleUnit>;

inline constexpr Bytes kByte{1.0};
inline constexpr Flops kFlop{1.0};
inline constexpr Seconds kSecond{1.0};
inline constexpr BytesPerSecond kBytePerSecond{1.0};
inline constexpr FlopsPerSecond kFlopPerSecond{1.0};
inline constexpr Dollars kDollar{1.0};
inline constexpr Joules kKilowattHour{3.6e6};

constexpr Seconds operator/(Bytes payload, BytesPerSecond rate) {
  return Seconds{payload.in(kByte) / rate.in(kBytePerSecond)};
}
constexpr Seconds operator/(Flops work, FlopsPerSecond rate) {
  return Seconds{work.in(kFlop) / rate.in(kFlopPerSecond)};
}
constexpr BytesPerSecond operator/(Bytes payload, Seconds time) {
  return BytesPerSecond{payload.in(kByte) / time.in(kSecond)};
}
constexpr FlopsPerSecond operator/(Flops work, Seconds time) {
  return FlopsPerSecond{work.in(kFlop) / time.in(kSecond)};
}
constexpr Bytes operator*(BytesPerSecond rate, Seconds time) {
  return Bytes{rate.in(kBytePerSecond)*time.in(kSecond)};
}

/// Decimal (GB, Gbps) and binary (GiB) units are different things; both are spelled out.
inline namespace literals {
constexpr Bytes operator""_B(unsigned long long v) { return Bytes{static_cast<double>(v)}; }
constexpr Bytes operator""_KiB(unsigned long long v) {
  return Bytes{static_cast<double>(v) * 0x1p10};
}
constexpr Bytes operator""_MiB(unsigned long long v) {
  return Bytes{static_cast<double>(v) * 0x1p20};
}
constexpr Bytes operator""_GiB(unsigned long long v) {
  return Bytes{static_cast<double>(v) * 0x1p30};
}
constexpr Bytes operator""_MB(unsigned long long v) { return Bytes{static_cast<double>(v) * 1e6}; }
constexpr Bytes operator""_GB(unsigned long long v) { return Bytes{static_cast<double>(v) * 1e9}; }
constexpr Bytes operator""_TB(unsigned long long v) { return Bytes{static_cast<double>(v) * 1e12}; }
constexpr Seconds operator""_s(unsigned long long v) { return Seconds{static_cast<double>(v)}; }
constexpr Seconds operator""_ms(unsigned long long v) {
  return Seconds{static_cast<double>(v) * 1e-3};
}
constexpr Seconds operator""_us(unsigned long long v) {
  return Seconds{static_cast<double>(v) * 1e-6};
}
constexpr Seconds operator""_us(long double v) { return Seconds{static_cast<double>(v) * 1e-6}; }
constexpr BytesPerSecond operator""_GBps(unsigned long long v) {
  return BytesPerSecond{static_cast<double>(v) * 1e9};
}
constexpr BytesPerSecond operator""_GBps(long double v) {
  return BytesPerSecond{static_cast<double>(v) * 1e9};
}
constexpr BytesPerSecond operator""_Gbps(unsigned long long v) {
  return BytesPerSecond{static_cast<double>(v) * 1e9 / 8};
}
constexpr Flops operator""_GFLOP(unsigned long long v) {
  return Flops{static_cast<double>(v) * 1e9};
}
constexpr Flops operator""_TFLOP(unsigned long long v) {
  return Flops{static_cast<double>(v) * 1e12};
}
constexpr FlopsPerSecond operator""_TFLOPS(unsigned long long v) {
  return FlopsPerSecond{static_cast<double>(v) * 1e12};
}
constexpr FlopsPerSecond operator""_TFLOPS(long double v) {
  return FlopsPerSecond{static_cast<double>(v) * 1e12};
}
}  // namespace literals

}  // namespace echelon
