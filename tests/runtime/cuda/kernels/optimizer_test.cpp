#include "runtime/cuda/kernels/kernels.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"

namespace echelon {
namespace {

using device::Memory;

template <class T>
struct AdamState {
  explicit AdamState(std::int64_t count) : weights(static_cast<std::size_t>(count)) {
    Numbers numbers(111);
    gradient = operand<float>(numbers, count);
    master = operand<float>(numbers, count);
    m = operand<float>(numbers, count, -0.1, 0.1);
    v = operand<float>(numbers, count, 0, 0.1);
  }
  std::vector<float> gradient, master, m, v;
  std::vector<T> weights;
};

/// Three steps of each; the gradient's scale as known to the host and as found by the device.
template <class T>
void check_adam(AdamStep step, std::int64_t count, std::size_t shift, bool own_master) {
  CAPTURE(step.decoupled, count, shift, own_master, sizeof(T));
  AdamState<T> expected(count);
  Memory<float> gradient(expected.gradient, shift), master(expected.master, shift),
      m(expected.m, shift), v(expected.v, shift), scale(std::vector<float>{0.5F});
  Memory<T> weights(expected.weights, shift);
  for (step.step = 1; step.step <= 3; ++step.step) {
    step.gradient_scale = 0.75;
    T* const written = own_master ? weights.data() : reinterpret_cast<T*>(master.data());
    cuda::adam<T>(nullptr, step, scale.data(), gradient.data(), master.data(), m.data(), v.data(),
                  written, count);
    step.gradient_scale = 0.75 * 0.5;
    cpu::adam(step, expected.gradient.data(), expected.master.data(), expected.m.data(),
              expected.v.data(),
              own_master ? expected.weights.data() : reinterpret_cast<T*>(expected.master.data()),
              count);
  }
  CHECK(distance(master.content(), as<double>(expected.master)) < kClose<float>);
  CHECK(distance(m.content(), as<double>(expected.m)) < kClose<float>);
  CHECK(distance(v.content(), as<double>(expected.v)) < kClose<float>);
  if (own_master) {
    CHECK(distance(weights.content(), as<double>(expected.weights)) <= kBothRounded);
  }
}

TEST_CASE("CUDA Adam and AdamW agree with the CPU's at awkward sizes") {
  for (const bool decoupled : {true, false}) {
    const AdamStep step{.learning_rate = 0.01, .weight_decay = 0.1, .decoupled = decoupled};
    for (const std::int64_t count : {1, 3, 4, 1027}) {
      check_adam<Bfloat16>(step, count, 0, true);
      check_adam<float>(step, count, 0, false);
    }
    check_adam<float>(step, 9, 0, true);
    check_adam<Bfloat16>(step, 40, 1, true);
  }
}

TEST_CASE("NaN in a gradient reaches its own weight of CUDA Adam and no other") {
  AdamState<Bfloat16> state(8);
  state.gradient[2] = static_cast<float>(kNaN);
  Memory<float> gradient(state.gradient), master(state.master), m(state.m), v(state.v);
  Memory<Bfloat16> weights(state.weights);
  cuda::adam<Bfloat16>(nullptr, {.learning_rate = 0.1}, nullptr, gradient.data(), master.data(),
                       m.data(), v.data(), weights.data(), 8);
  CHECK(std::isnan(static_cast<float>(weights.content()[2])));
  CHECK(std::isnan(master.content()[2]));
  CHECK(std::isfinite(master.content()[3]));
}

double squares_on_cuda(const std::vector<float>& values, std::size_t shift) {
  const auto count = static_cast<std::int64_t>(values.size());
  Memory<float> x(values, shift);
  Memory<double> total(std::vector<double>{3}),
      workspace(static_cast<std::size_t>(cuda::sum_of_squares_workspace(count)));
  cuda::sum_of_squares(nullptr, x.data(), total.data(), workspace.data(), count);
  return total.content().front() - 3;
}

TEST_CASE("CUDA sums of squares agree with the CPU's and accumulate into their result") {
  for (const std::int64_t count : {1, 5, 1024, 5001, 1100000}) {
    for (const std::size_t shift : {0U, 1U}) {
      CAPTURE(count, shift);
      if (count > 10000 && shift > 0) continue;
      Numbers numbers(112);
      const auto x = operand<float>(numbers, count);
      const double expected = cpu::sum_of_squares(x.data(), count);
      CHECK(std::abs(squares_on_cuda(x, shift) - expected) < 1e-12 * (expected + 3));
    }
  }
  CHECK(squares_on_cuda({}, 0) == 0);
  CHECK(std::isnan(squares_on_cuda({1, static_cast<float>(kNaN)}, 0)));
}

TEST_CASE("gradients are clipped on CUDA as they are on the CPU") {
  const auto scale_of = [](double squares, double max_norm) {
    Memory<double> total(std::vector<double>{squares});
    Memory<float> scale(1);
    cuda::clip_scale(nullptr, total.data(), max_norm, scale.data());
    return scale.content().front();
  };
  CHECK(scale_of(16, 1) == static_cast<float>(1 / (4 + 1e-6)));
  CHECK(scale_of(0.25, 1) == 1);
  CHECK(scale_of(16, 0) == 1);  // no clipping
  CHECK(std::isnan(scale_of(kNaN, 1)));
  CHECK(std::isnan(scale_of(kInf, 1)));
  CHECK(std::isnan(scale_of(kInf, 0)));
}

TEST_CASE("CUDA Adam changes nothing if the gradients' scale is NaN") {
  AdamState<Bfloat16> state(8);
  Memory<float> gradient(state.gradient), master(state.master), m(state.m), v(state.v),
      scale(std::vector<float>{static_cast<float>(kNaN)});
  Memory<Bfloat16> weights(state.weights);
  cuda::adam<Bfloat16>(nullptr, {.learning_rate = 0.1}, scale.data(), gradient.data(),
                       master.data(), m.data(), v.data(), weights.data(), 8);
  CHECK(master.content() == state.master);
  CHECK(m.content() == state.m);
  CHECK(v.content() == state.v);
}

}  // namespace

std::vector<KernelRun> runs_of_optimizer() {
  return {{"sum of squares", [] {
             Numbers numbers(113);
             const auto x = operand<float>(numbers, 3000);
             return bits_of(std::vector<double>{squares_on_cuda(x, 0)});
           }}};
}

}  // namespace echelon
