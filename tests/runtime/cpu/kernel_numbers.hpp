// Shared by the tests of kernels: seeded operands, distances, finite differences, threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/cpu/kernels.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

namespace echelon {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
std::vector<T> operand(Numbers& numbers, std::int64_t count, double low = -1, double high = 1) {
  std::vector<T> x(static_cast<std::size_t>(count));
  for (T& value : x) value = T(static_cast<Wide<T>>(numbers.between(low, high)));
  return x;
}

template <class To, class From>
std::vector<To> as(const std::vector<From>& x) {
  std::vector<To> y;
  y.reserve(x.size());
  for (const From value : x) y.push_back(To(static_cast<Wide<To>>(Wide<From>(value))));
  return y;
}

/// Largest difference, in parts of the largest number expected.
template <class T>
double distance(const std::vector<T>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  double max_difference = 0;
  double largest = 1e-300;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(static_cast<double>(Wide<T>(actual[i])) - expected[i]);
    max_difference = difference <= max_difference ? max_difference : difference;  // NaN counts
    largest = std::max(largest, std::abs(expected[i]));
  }
  return max_difference / largest;
}

/// Of numbers stored as T after sums of some hundred terms: a few units in the last place.
template <class T>
inline constexpr double kClose = 1e-13;
template <>
inline constexpr double kClose<float> = 4e-6;
template <>
inline constexpr double kClose<Bfloat16> = 0x1p-8;  // one rounding: half a unit of 2⁻⁷

/// Of numbers that both sides round to bf16, from floats that differ in the last places: they may
/// be neighbours.
inline constexpr double kBothRounded = 0x1p-7;

/// dloss/dx, central; the error is of the order 1e-10 where derivatives are of the order 1.
template <class Loss>
std::vector<double> slopes(std::vector<double> x, const Loss& loss) {
  constexpr double kStep = 1e-5;
  std::vector<double> slope;
  for (double& value : x) {
    const double at = value;
    value = at + kStep;
    const double above = loss(x);
    value = at - kStep;
    slope.push_back((above - loss(x)) / (2 * kStep));
    value = at;
  }
  return slope;
}
inline constexpr double kFiniteDifference = 1e-8;

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The result of `run` with the given number of threads.
template <class Run>
auto with_threads(int threads, const Run& run) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  auto result = run();
  omp_set_num_threads(before);
  return result;
}

/// Bit for bit; unlike ==, NaN equals itself.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::equal(reinterpret_cast<const char*>(a.data()),
                                            reinterpret_cast<const char*>(a.data() + a.size()),
                                            reinterpret_cast<const char*>(b.data()));
}

/// `gap`: numbers of each row that are not attention's.
inline AttentionShape attention_shape(std::int64_t sequence, int samples, int heads, int kv_heads,
                                      int head_dim, std::int64_t gap = 0) {
  return {sequence,
          samples,
          heads,
          kv_heads,
          head_dim,
          std::int64_t{heads + 2 * kv_heads} * head_dim + gap,
          std::int64_t{heads} * head_dim + gap};
}

/// With values of another width, and scores that are scaled, as latent attention has them.
inline AttentionShape latent_attention_shape(std::int64_t sequence, int samples, int heads,
                                             int head_dim, int v_head_dim, std::int64_t gap = 0) {
  AttentionShape shape = attention_shape(sequence, samples, heads, heads, head_dim, gap);
  shape.qkv_stride = std::int64_t{heads} * (2 * head_dim + v_head_dim) + gap;
  shape.out_stride = std::int64_t{heads} * v_head_dim + gap;
  shape.v_head_dim = v_head_dim;
  shape.score_factor = 1.25;
  return shape;
}

}  // namespace echelon
