#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "runtime/cpu/kernels.hpp"

namespace echelon::cpu {

template <class T>
void adam(const AdamStep& step, const Wide<T>* gradient, Wide<T>* master, Wide<T>* m, Wide<T>* v,
          T* weights, std::int64_t count) {
  using W = Wide<T>;
  const auto t = static_cast<double>(step.step);
  const auto rate = static_cast<W>(step.learning_rate / (1 - std::pow(step.beta1, t)));
  const auto root = static_cast<W>(1 / std::sqrt(1 - std::pow(step.beta2, t)));
  const auto beta1 = static_cast<W>(step.beta1);
  const auto beta2 = static_cast<W>(step.beta2);
  const auto rest1 = static_cast<W>(1 - step.beta1);
  const auto rest2 = static_cast<W>(1 - step.beta2);
  const auto scale = static_cast<W>(step.gradient_scale);
  const auto eps = static_cast<W>(step.eps);
  const auto coupled = static_cast<W>(step.decoupled ? 0 : step.weight_decay);
  const auto keep = static_cast<W>(step.decoupled ? 1 - step.learning_rate * step.weight_decay : 1);
  const bool copies = static_cast<const void*>(weights) != master;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    const W g = gradient[i] * scale + coupled * master[i];
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    master[i] = keep * master[i] - rate * m[i] / (std::sqrt(v[i]) * root + eps);
    if (copies) weights[i] = T(master[i]);
  }
}

template <class W>
double sum_of_squares(const W* x, std::int64_t count) {
  constexpr std::int64_t kBlock = 1 << 14;  // one partial sum each, whoever forms it
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < blocks; ++block) {
    double sum = 0;
    for (std::int64_t i = block * kBlock; i < std::min(count, (block + 1) * kBlock); ++i) {
      const double value = static_cast<double>(x[i]);
      sum += value * value;
    }
    sums[static_cast<std::size_t>(block)] = sum;
  }
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
