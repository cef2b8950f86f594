#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {
namespace {

template <bool copies, class T>
ECHELON_CLONES void adam_range(const AdamFactors<Wide<T>>& factors, const Wide<T>* gradient,
                               Wide<T>* master, Wide<T>* m, Wide<T>* v, T* weights,
                               std::int64_t count) {
  using W = Wide<T>;
  const AdamFactors<W> f = factors;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const W g = gradient[i] * f.scale + f.added * master[i];
    const W mean = f.beta1 * m[i] + f.rest1 * g;
    const W square = f.beta2 * v[i] + f.rest2 * g * g;
    const W weight = f.kept * master[i] - f.rate * mean / (std::sqrt(square) * f.root + f.eps);
    m[i] = mean;
    v[i] = square;
    master[i] = weight;
    if constexpr (copies) weights[i] = T(weight);
  }
}

template <class W>
using Eight [[gnu::vector_size(8 * sizeof(W))]] = W;

template <class W>
ECHELON_CLONES double squares_of(const W* x, std::int64_t count) {
  constexpr std::int64_t n = kLanes<double>;
  Lanes<double> total[4] = {};
  const std::int64_t whole = count / (4 * n) * (4 * n);
  for (std::int64_t i = 0; i < whole; i += 4 * n) {
    for (std::int64_t part = 0; part < 4; ++part) {
      Eight<W> some;
      std::memcpy(&some, x + i + part * n, sizeof some);
      const auto value = __builtin_convertvector(some, Lanes<double>);
      total[part] += value * value;
    }
  }
  double rest = 0;
  for (std::int64_t i = whole; i < count; ++i) {
    const auto value = static_cast<double>(x[i]);
    rest += value * value;
  }
  return sum<double>((total[0] + total[1]) + (total[2] + total[3])) + rest;
}

}  // namespace

template <class T>
void adam(const AdamStep& step, const Wide<T>* gradient, Wide<T>* master, Wide<T>* m, Wide<T>* v,
          T* weights, std::int64_t count) {
  const AdamFactors<Wide<T>> factors(step);
  const bool copies = static_cast<const void*>(weights) != master;
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const auto update = copies ? adam_range<true, T> : adam_range<false, T>;
    update(factors, gradient + begin, master + begin, m + begin, v + begin, weights + begin,
           end - begin);
  });
}

template <class W>
double sum_of_squares(const W* x, std::int64_t count) {
  const std::int64_t parts = (count + kGrain - 1) / kGrain;
  std::vector<double> sums(static_cast<std::size_t>(parts));
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    sums[static_cast<std::size_t>(begin / kGrain)] = squares_of(x + begin, end - begin);
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

#define ECHELON_ADAM(T)                                                                    \
  template void adam<T>(const AdamStep&, const Wide<T>*, Wide<T>*, Wide<T>*, Wide<T>*, T*, \
                        std::int64_t);
ECHELON_ADAM(double)
ECHELON_ADAM(float)
ECHELON_ADAM(Bfloat16)
#undef ECHELON_ADAM
template double sum_of_squares<double>(const double*, std::int64_t);
template double sum_of_squares<float>(const float*, std::int64_t);

}  // namespace echelon::cpu
