#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/model/rotary.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"

namespace echelon {
namespace {

using device::Memory;
constexpr Activation kKinds[] = {Activation::gelu, Activation::silu, Activation::relu,
                                 Activation::squared_relu};

/// Both round once to T, from floats that differ in the last places.
template <class T>
inline constexpr double kRoundedAlike = sizeof(T) == 2 ? kBothRounded : 2e-6;

/// From exact numbers.
template <class T>
inline constexpr double kRoundedOnce = sizeof(T) == 2 ? kClose<T> + 2e-6 : 2e-6;

template <class T>
std::vector<T> spread(std::int64_t count, std::uint64_t seed) {
  Numbers numbers(seed);
  return operand<T>(numbers, count, -6, 6);
}

template <class T>
void check_activation(Activation kind, std::int64_t count, std::size_t shift) {
  CAPTURE(static_cast<int>(kind), count, shift, sizeof(T));
  const auto x = spread<T>(count, 81);
  const auto dy = spread<T>(count, 82);
  // In double: in float, the CPU's slopes lose digits where they are steep.
  const auto exact = as<double>(x);
  std::vector<double> y(x.size()), dx(x.size());
  cpu::activation_forward(kind, exact.data(), y.data(), count);
  double* const none = nullptr;
  cpu::activation_backward(kind, exact.data(), as<double>(dy).data(), dx.data(), none, count);
  Memory<T> in(x, shift), slope(dy, shift), out(std::vector<T>(x.size()), shift),
      again(std::vector<T>(x.size()), shift);
  cuda::activation_forward<T>(nullptr, kind, in.data(), out.data(), count);
  CHECK(distance(out.content(), y) <= kRoundedOnce<T>);
  cuda::activation_backward<T>(nullptr, kind, in.data(), slope.data(), out.data(), nullptr, count);
  CHECK(distance(out.content(), dx) <= kRoundedOnce<T>);
  const std::vector<T> backward = out.content();
  cuda::activation_backward<T>(nullptr, kind, in.data(), slope.data(), out.data(), again.data(),
                               count);
  CHECK(same_bits(out.content(), backward));
  CHECK(distance(again.content(), y) <= kRoundedOnce<T>);
}

template <class T>
void check_gate(Activation kind, std::int64_t rows, std::int64_t width, std::size_t shift) {
  CAPTURE(static_cast<int>(kind), rows, width, shift, sizeof(T));
  const auto x = spread<T>(2 * rows * width, 83);
  const auto dy = spread<T>(rows * width, 84);
  const auto exact = as<double>(x);
  std::vector<double> y(dy.size()), dx(x.size());
  cpu::gated_forward(kind, exact.data(), y.data(), rows, width);
  double* const none = nullptr;
  cpu::gated_backward(kind, exact.data(), as<double>(dy).data(), dx.data(), none, rows, width);
  Memory<T> in(x, shift), slope(dy, shift), out(std::vector<T>(y.size()), shift),
      back(std::vector<T>(x.size()), shift), again(std::vector<T>(y.size()), shift);
  cuda::gated_forward<T>(nullptr, kind, in.data(), out.data(), rows, width);
  cuda::gated_backward<T>(nullptr, kind, in.data(), slope.data(), back.data(), again.data(), rows,
                          width);
  CHECK(distance(again.content(), y) <= kRoundedOnce<T>);
  const std::vector<T> backward = back.content();
  cuda::gated_backward<T>(nullptr, kind, in.data(), slope.data(), back.data(), nullptr, rows,
                          width);
  CHECK(same_bits(back.content(), backward));
  CHECK(distance(out.content(), y) <= kRoundedOnce<T>);
  CHECK(distance(back.content(), dx) <= kRoundedOnce<T>);
}

TEST_CASE("CUDA activations agree with the CPU's at awkward sizes") {
  for (const Activation kind : kKinds) {
    for (const std::int64_t count : {1, 7, 1000, 2051}) {
      check_activation<float>(kind, count, 0);
      check_activation<Bfloat16>(kind, count, 0);
    }
    check_activation<Bfloat16>(kind, 37, 3);
    for (const std::int64_t width : {1, 13, 64, 2056}) {
      check_gate<float>(kind, 3, width, 0);
      check_gate<Bfloat16>(kind, 3, width, 0);
    }
    check_gate<Bfloat16>(kind, 2, 16, 1);
  }
}

TEST_CASE("CUDA activations propagate NaN like the CPU's") {
  for (const Activation kind : kKinds) {
    for (const double special : {kNaN, kInf, -kInf, -200.0, 200.0}) {
      CAPTURE(static_cast<int>(kind), special);
      const std::vector<float> x = {static_cast<float>(special), 1};
      const std::vector<float> dy = {2, 3};
      std::vector<float> y(2), dx(2);
      cpu::activation_forward(kind, x.data(), y.data(), 2);
      cpu::activation_backward<float>(kind, x.data(), dy.data(), dx.data(), nullptr, 2);
      Memory<float> in(x), slope(dy), out(2), back(2);
      cuda::activation_forward<float>(nullptr, kind, in.data(), out.data(), 2);
      cuda::activation_backward<float>(nullptr, kind, in.data(), slope.data(), back.data(), nullptr,
                                       2);
      constexpr float kTwoUnits = 3.1e-5F;  // in the last place of 200
      const auto same_rounding = [](float a, float b) {
        return std::isnan(a) ? std::isnan(b) : std::abs(a - b) <= kTwoUnits || a == b;
      };
      CHECK(same_rounding(y[0], out.content()[0]));
      CHECK(same_rounding(dx[0], back.content()[0]));
      CHECK(std::isfinite(out.content()[1]));
    }
  }
}

template <class T>
void check_bias(std::int64_t rows, std::int64_t width, std::size_t shift) {
  CAPTURE(rows, width, shift, sizeof(T));
  auto x = spread<T>(rows * width, 85);
  const auto bias = spread<T>(width, 86);
  Memory<T> sum(x, shift), added(bias, shift), dy(x, shift);
  Memory<float> gradient(std::vector<float>(bias.size(), 2)),
      workspace(static_cast<std::size_t>(cuda::bias_gradient_workspace(rows, width)));
  std::vector<float> expected(bias.size(), 2);
  cpu::bias_gradient(x.data(), expected.data(), rows, width);
  cuda::bias_gradient<T>(nullptr, dy.data(), gradient.data(), workspace.data(), rows, width);
  CHECK(distance(gradient.content(), as<double>(expected)) < kClose<float>);
  cpu::add_bias(x.data(), bias.data(), rows, width);
  cuda::add_bias<T>(nullptr, sum.data(), added.data(), rows, width);
  CHECK(same_bits(sum.content(), x));
}

template <class T>
void check_positions(std::int64_t positions, int samples, std::int64_t width, std::size_t shift) {
  CAPTURE(positions, samples, width, shift, sizeof(T));
  auto x = spread<T>(positions * samples * width, 87);
  const auto learned = spread<T>(positions * width, 88);
  Memory<T> sum(x, shift), added(learned, shift), dy(x, shift);
  Memory<float> gradient(std::vector<float>(learned.size(), 2), shift);
  std::vector<float> expected(learned.size(), 2);
  for (std::int64_t p = 0; p < positions; ++p) {
    cpu::bias_gradient(x.data() + p * samples * width, expected.data() + p * width, samples, width);
  }
  cuda::position_gradient<T>(nullptr, dy.data(), gradient.data(), positions * samples, samples,
                             width);
  CHECK(distance(gradient.content(), as<double>(expected)) < kClose<float>);
  for (std::int64_t r = 0; r < positions * samples; ++r) {
    cpu::add(x.data() + r * width, learned.data() + r / samples * width, width);
  }
  cuda::add_positions<T>(nullptr, sum.data(), added.data(), positions * samples, samples, width);
  CHECK(same_bits(sum.content(), x));
}

template <class T>
void check_biases() {
  for (const std::int64_t width : {1, 9, 64, 300}) {
    check_bias<T>(1, width, 0);
    check_bias<T>(37, width, 0);
    check_positions<T>(5, 3, width, 0);
  }
  check_bias<T>(1100, 24, 0);  // more rows than one step of all parts
  check_bias<T>(20, 64, 1);
  check_positions<T>(2, 2, 64, 1);
}

TEST_CASE("CUDA biases and learned positions agree with the CPU's at awkward sizes") {
  check_biases<float>();
  check_biases<Bfloat16>();
}

template <class T>
void check_rotation(std::int64_t positions, int samples, int heads, int head_dim,
                    std::int64_t row_stride, std::size_t shift, const RotaryEmbedding& rope = {}) {
  CAPTURE(positions, samples, heads, head_dim, row_stride, shift, sizeof(T));
  constexpr std::int64_t kFirst = 4000;
  const std::int64_t rows = positions * samples;
  const auto before = spread<T>(rows * row_stride, 89);
  const RotaryFrequencies frequencies = rotary_frequencies(rope, head_dim);
  const int pairs = static_cast<int>(frequencies.angles.size());
  Memory<float> table(static_cast<std::size_t>(positions * 2 * pairs));
  cuda::rotation_table(nullptr, table.data(), positions, kFirst, frequencies);
  for (const int direction : {1, -1}) {
    auto x = before;
    cpu::rotate(x.data(), rows, row_stride, samples, heads, head_dim, kFirst, frequencies,
                direction);
    Memory<T> on_device(before, shift);
    cuda::rotate<T>(nullptr, on_device.data(), table.data(), rows, row_stride, samples, heads,
                    head_dim, pairs, direction);
    CHECK(distance(on_device.content(), as<double>(x)) <= kRoundedAlike<T>);
  }
}

TEST_CASE("CUDA rotations agree with the CPU's at far positions and awkward sizes") {
  check_rotation<float>(3, 2, 5, 64, 5 * 64 + 32, 0);
  check_rotation<Bfloat16>(3, 2, 5, 64, 5 * 64 + 32, 0);
  check_rotation<Bfloat16>(2, 1, 40, 128, 40 * 128, 0);
  check_rotation<Bfloat16>(2, 3, 3, 10, 31, 0);
  check_rotation<float>(1, 1, 1, 2, 2, 0);
  check_rotation<Bfloat16>(2, 1, 2, 16, 32, 1);
}

TEST_CASE("CUDA rotations of a part of each head agree with the CPU's") {
  check_rotation<float>(3, 2, 5, 64, 5 * 64 + 32, 0, {.rotated_part = 0.5});
  check_rotation<Bfloat16>(3, 2, 5, 128, 5 * 128, 0, {.rotated_part = 0.5});
  check_rotation<Bfloat16>(2, 1, 3, 80, 3 * 80, 0, {.rotated_part = 0.4});
  check_rotation<Bfloat16>(2, 3, 3, 10, 31, 0, {.rotated_part = 0.6});
  check_rotation<Bfloat16>(2, 1, 2, 36, 72, 0, {.rotated_part = 32.0 / 36});
}

TEST_CASE("CUDA rotations of other bases and scalings agree with the CPU's") {
  for (const RopeScaling scaling :
       {RopeScaling::none, RopeScaling::linear, RopeScaling::llama3, RopeScaling::yarn}) {
    RotaryEmbedding rope{.theta = 500'000, .scaling = scaling, .factor = 8};
    rope.original_positions = 8192;
    if (scaling == RopeScaling::yarn) rope.attention_factor = 1.25;
    check_rotation<float>(3, 2, 5, 128, 5 * 128, 0, rope);
    check_rotation<Bfloat16>(3, 2, 5, 128, 5 * 128, 0, rope);
  }
}

template <class T>
void check_head_split(const HeadSplit& split, std::size_t shift) {
  CAPTURE(split.rows, split.parts, split.query, split.key, split.value, shift, sizeof(T));
  const auto x = spread<T>(split.rows * split.width(), 94);
  std::vector<T> expected(x.size());
  cpu::split_heads(split, x.data(), expected.data());
  Memory<T> whole(x, shift), parts(std::vector<T>(x.size()), shift),
      back(std::vector<T>(x.size()), shift);
  cuda::split_heads<T>(nullptr, split, whole.data(), parts.data());
  CHECK(same_bits(parts.content(), expected));
  cuda::join_heads<T>(nullptr, split, parts.data(), back.data());
  CHECK(same_bits(back.content(), x));
}

TEST_CASE("CUDA splits and joins heads as the CPU does, at awkward sizes") {
  check_head_split<Bfloat16>({5, 2, 8 * 64, 2 * 64, 2 * 64}, 0);
  check_head_split<float>({3, 4, 4 * 128, 4 * 128, 4 * 64}, 0);
  check_head_split<Bfloat16>({4, 4, 64 * 64, 0, 0}, 0);  // more columns than a block has threads
  check_head_split<Bfloat16>({7, 3, 6 * 10, 3 * 10, 3 * 10}, 0);
  check_head_split<Bfloat16>({2, 2, 2 * 64, 2 * 64, 2 * 64}, 1);
  check_head_split<float>({1, 1, 3, 0, 0}, 0);
}

TEST_CASE("CUDA sums, products with a factor and casts give the CPU's bits") {
  for (const std::int64_t count : {1, 7, 8, 2049}) {
    for (const std::size_t shift : {0U, 1U}) {
      const auto wide = spread<float>(count, 90);
      const auto other = spread<float>(count, 91);
      auto from_float = as<Bfloat16>(wide);
      const auto from_float_other = as<Bfloat16>(other);
      Memory<float> x(wide, shift), y(other, shift), back(wide.size());
      Memory<Bfloat16> cast(wide.size()), small(from_float, shift),
          small_other(from_float_other, shift);
      cuda::cast<Bfloat16, float>(nullptr, x.data(), cast.data(), count);
      CHECK(same_bits(cast.content(), from_float));
      cuda::cast<float, Bfloat16>(nullptr, cast.data(), back.data(), count);
      CHECK(same_bits(back.content(), as<float>(from_float)));
      auto sum = wide;
      cpu::add(sum.data(), other.data(), count);
      cuda::add<float>(nullptr, x.data(), y.data(), count);
      CHECK(same_bits(x.content(), sum));
      cpu::add(from_float.data(), from_float_other.data(), count);
      cuda::add<Bfloat16>(nullptr, small.data(), small_other.data(), count);
      CHECK(same_bits(small.content(), from_float));
      cpu::scale(sum.data(), 0.4, count);
      cuda::scale<float>(nullptr, x.data(), 0.4, count);
      CHECK(same_bits(x.content(), sum));
      cpu::scale(from_float.data(), 0.4, count);
      cuda::scale<Bfloat16>(nullptr, small.data(), 0.4, count);
      CHECK(same_bits(small.content(), from_float));
    }
  }
}

}  // namespace

std::vector<KernelRun> runs_of_elementwise() {
  return {
      {"bias gradient",
       [] {
         Memory<Bfloat16> dy(spread<Bfloat16>(50 * 72, 92));
         Memory<float> gradient(72);
         Memory<float> workspace(static_cast<std::size_t>(cuda::bias_gradient_workspace(50, 72)));
         cuda::bias_gradient<Bfloat16>(nullptr, dy.data(), gradient.data(), workspace.data(), 50,
                                       72);
         return bits_of(gradient.content());
       }},
      {"split heads",
       [] {
         Memory<Bfloat16> x(spread<Bfloat16>(6 * 256, 95)), parts(std::vector<Bfloat16>(6 * 256));
         cuda::split_heads<Bfloat16>(nullptr, {6, 2, 128, 64, 64}, x.data(), parts.data());
         return bits_of(parts.content());
       }},
      {"rotation", [] {
         Memory<Bfloat16> x(spread<Bfloat16>(6 * 128, 93));
         Memory<float> table(3 * 64);
         cuda::rotation_table(nullptr, table.data(), 3, 5, rotary_frequencies({}, 64));
         cuda::rotate<Bfloat16>(nullptr, x.data(), table.data(), 6, 128, 2, 2, 64, 32, 1);
         return bits_of(table.content(), x.content());
       }}};
}

}  // namespace echelon
