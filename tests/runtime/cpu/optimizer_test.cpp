#include "tests/runtime/cpu/kernel_numbers.hpp"

namespace echelon {
namespace {

template <class T>
struct AdamState {
  std::vector<T> weights;
  std::vector<Wide<T>> master, m, v;
};

/// Algorithm 1 of Adam and 2 of AdamW as printed, with m̂ and v̂; in double.
void plain_adam(const AdamStep& s, const std::vector<double>& gradient, AdamState<double>& state) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    double& w = state.master[i];
    double g = gradient[i] * s.gradient_scale;
    if (!s.decoupled) g += s.weight_decay * w;
    state.m[i] = s.beta1 * state.m[i] + (1 - s.beta1) * g;
    state.v[i] = s.beta2 * state.v[i] + (1 - s.beta2) * g * g;
    const double m_hat = state.m[i] / (1 - std::pow(s.beta1, s.step));
    const double v_hat = state.v[i] / (1 - std::pow(s.beta2, s.step));
    if (s.decoupled) w -= s.learning_rate * s.weight_decay * w;
    w -= s.learning_rate * m_hat / (std::sqrt(v_hat) + s.eps);
  }
}

template <class T>
void check_adam(bool decoupled, std::int64_t count) {
  Numbers numbers(71);
  AdamState<T> state;
  state.master = operand<Wide<T>>(numbers, count);
  state.m.resize(state.master.size());
  state.v.resize(state.master.size());
  state.weights.resize(state.master.size());
  AdamState<double> expected{
      {}, as<double>(state.master), as<double>(state.m), as<double>(state.v)};
  AdamStep step{.learning_rate = 0.01,
                .beta1 = 0.9,
                .beta2 = 0.95,
                .eps = 1e-8,
                .weight_decay = 0.1,
                .decoupled = decoupled,
                .gradient_scale = 0.5};
  for (step.step = 1; step.step <= 3; ++step.step) {
    const auto gradient = operand<Wide<T>>(numbers, count);
    cpu::adam(step, gradient.data(), state.master.data(), state.m.data(), state.v.data(),
              state.weights.data(), count);
    plain_adam(step, as<double>(gradient), expected);
  }
  CAPTURE(decoupled, count);
  CHECK(distance(state.master, expected.master) < kClose<Wide<T>>);
  CHECK(distance(state.m, expected.m) < kClose<Wide<T>>);
  CHECK(distance(state.v, expected.v) < kClose<Wide<T>>);
  CHECK(same_bits(state.weights, as<T>(state.master)));
}

TEST_CASE("Adam and AdamW update weights and moments as in their papers") {
  for (const bool decoupled : {true, false}) {
    for (const std::int64_t count : {1, 37, 20001}) {
      check_adam<double>(decoupled, count);
      check_adam<float>(decoupled, count);
      check_adam<Bfloat16>(decoupled, count);
    }
  }
}

TEST_CASE("weights that are their own master copy are updated once") {
  std::vector<float> weights(40, 1);
  std::vector<float> m(40), v(40);
  const std::vector<float> gradient(40, 2);
  cpu::adam({.learning_rate = 0.125}, gradient.data(), weights.data(), m.data(), v.data(),
            weights.data(), 40);
  CHECK(distance(weights, std::vector<double>(40, 1 - 0.125)) < 1e-6);
}

TEST_CASE("Adam gives the same bits for any number of threads, and NaN only where it was") {
  Numbers numbers(72);
  auto gradient = operand<float>(numbers, 50001);
  gradient[33333] = static_cast<float>(kNaN);
  const auto run = [&] {
    std::vector<float> weights(50001, 1), m(50001), v(50001);
    cpu::adam({.learning_rate = 0.1}, gradient.data(), weights.data(), m.data(), v.data(),
              weights.data(), 50001);
    return weights;
  };
  const auto one = with_threads(1, run);
  CHECK(same_bits(one, with_threads(2, run)));
  CHECK(std::count_if(one.begin(), one.end(), [](float x) { return std::isnan(x); }) == 1);
  CHECK(std::isnan(one[33333]));
}

template <class W>
void check_sum_of_squares(std::int64_t count) {
  Numbers numbers(73);
  const auto x = operand<W>(numbers, count, -3, 3);
  const double expected = dot(as<double>(x), as<double>(x));
  const auto run = [&] { return cpu::sum_of_squares(x.data(), count); };
  const double one = with_threads(1, run);
  CHECK(std::abs(one - expected) <= 1e-13 * expected);
  CHECK(one == with_threads(2, run));
  CHECK(one == with_threads(3, run));
}

TEST_CASE("a sum of squares equals that in fp64, in one order for any number of threads") {
  for (const std::int64_t count : {0, 1, 63, 40001}) {
    check_sum_of_squares<double>(count);
    check_sum_of_squares<float>(count);
  }
  const std::vector<float> poisoned = {1, static_cast<float>(kNaN), 2};
  CHECK(std::isnan(cpu::sum_of_squares(poisoned.data(), 3)));
}

}  // namespace
}  // namespace echelon
