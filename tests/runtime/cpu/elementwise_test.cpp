#include "runtime/model/rotary.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"

namespace echelon {
namespace {

const std::vector<Activation> kActivations = {Activation::gelu, Activation::silu, Activation::relu,
                                              Activation::squared_relu};

double plain_activation(Activation kind, double x) {
  switch (kind) {
    case Activation::gelu:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::relu: return x > 0 ? x : 0;
    case Activation::squared_relu: return x > 0 ? x * x : 0;
  }
  return kNaN;
}

template <class T>
std::vector<T> activation(Activation kind, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  cpu::activation_forward(kind, x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  return y;
}

template <class T>
std::vector<T> activation_back(Activation kind, const std::vector<T>& x, const std::vector<T>& dy) {
  std::vector<T> dx(x.size()), with_y(x.size()), y(x.size());
  const auto count = static_cast<std::int64_t>(x.size());
  cpu::activation_backward<T>(kind, x.data(), dy.data(), dx.data(), nullptr, count);
  cpu::activation_backward(kind, x.data(), dy.data(), with_y.data(), y.data(), count);
  CHECK(same_bits(with_y, dx));
  CHECK(same_bits(y, activation(kind, x)));
  return dx;
}

TEST_CASE("activations agree with their formulas and finite differences") {
  for (const Activation kind : kActivations) {
    for (const std::int64_t count : {1, 7, 37}) {
      CAPTURE(static_cast<int>(kind), count);
      Numbers numbers(31);
      const auto x = operand<double>(numbers, count, -6, 6);
      const auto dy = operand<double>(numbers, count);
      std::vector<double> expected;
      for (const double value : x) expected.push_back(plain_activation(kind, value));
      CHECK(distance(activation(kind, x), expected) < kClose<double>);
      const auto loss = [&](const auto& at) { return dot(activation(kind, at), dy); };
      CHECK(distance(activation_back(kind, x, dy), slopes(x, loss)) < kFiniteDifference);
    }
  }
}

template <class T>
void check_activation_precision(Activation kind, double range) {
  Numbers numbers(32);
  const auto x = operand<T>(numbers, 5000, -range, range);
  const auto dy = operand<T>(numbers, 5000);
  CAPTURE(static_cast<int>(kind), range);
  CHECK(distance(activation(kind, x), activation(kind, as<double>(x))) < kClose<T>);
  CHECK(distance(activation_back(kind, x, dy),
                 activation_back(kind, as<double>(x), as<double>(dy))) < kClose<T>);
}

TEST_CASE("activations in fp32 and bf16 round the fp64 result once, also far from zero") {
  for (const Activation kind : kActivations) {
    for (const double range : {1e-3, 1.0, 10.0, 300.0}) {
      check_activation_precision<float>(kind, range);
      check_activation_precision<Bfloat16>(kind, range);
    }
  }
}

TEST_CASE("NaN stays NaN in every activation, and infinity stays infinite") {
  for (const Activation kind : kActivations) {
    CAPTURE(static_cast<int>(kind));
    for (std::size_t place : {0U, 16U, 20U}) {  // first, second vector, the tail
      std::vector<float> x(21, 1);
      x[place] = static_cast<float>(kNaN);
      CHECK(std::isnan(activation(kind, x)[place]));
      CHECK(std::isnan(activation_back(kind, x, x)[place]));
      CHECK(std::isfinite(activation(kind, x)[1]));
      CHECK(std::isnan(static_cast<float>(activation(kind, as<Bfloat16>(x))[place])));
      x[place] = static_cast<float>(kInf);
      CHECK(std::isinf(activation(kind, x)[place]));
    }
  }
}

template <class T>
struct Gated {
  std::vector<T> y, dx;
};
template <class T>
Gated<T> gated(Activation kind, const std::vector<T>& x, const std::vector<T>& dy,
               std::int64_t rows, std::int64_t width) {
  Gated<T> out{std::vector<T>(dy.size()), std::vector<T>(x.size())};
  cpu::gated_forward(kind, x.data(), out.y.data(), rows, width);
  cpu::gated_backward<T>(kind, x.data(), dy.data(), out.dx.data(), nullptr, rows, width);
  Gated<T> again = out;
  cpu::gated_backward(kind, x.data(), dy.data(), again.dx.data(), again.y.data(), rows, width);
  CHECK((same_bits(again.dx, out.dx) && same_bits(again.y, out.y)));
  return out;
}

TEST_CASE("a gated unit is act(gate) times up, and its gradient agrees with finite differences") {
  for (const Activation kind : kActivations) {
    for (const std::int64_t width : {1, 5, 19}) {
      Numbers numbers(33);
      const auto x = operand<double>(numbers, 3 * 2 * width, -3, 3);
      const auto dy = operand<double>(numbers, 3 * width);
      std::vector<double> expected;
      for (std::int64_t i = 0; i < 3 * width; ++i) {
        const auto gate = static_cast<std::size_t>(i / width * 2 * width + i % width);
        expected.push_back(plain_activation(kind, x[gate]) *
                           x[gate + static_cast<std::size_t>(width)]);
      }
      const auto out = gated(kind, x, dy, 3, width);
      CHECK(distance(out.y, expected) < kClose<double>);
      const auto loss = [&](const auto& at) { return dot(gated(kind, at, dy, 3, width).y, dy); };
      CHECK(distance(out.dx, slopes(x, loss)) < kFiniteDifference);
    }
  }
}

template <class T>
void check_gated_precision(Activation kind) {
  Numbers numbers(34);
  const auto x = operand<T>(numbers, 9 * 2 * 1001, -4, 4);
  const auto dy = operand<T>(numbers, 9 * 1001);
  const auto exact = gated(kind, as<double>(x), as<double>(dy), 9, 1001);
  const auto out = gated(kind, x, dy, 9, 1001);
  CHECK(distance(out.y, exact.y) < kClose<T>);
  CHECK(distance(out.dx, exact.dx) < kClose<T>);
}

TEST_CASE("gated units in fp32 and bf16 round the fp64 result once") {
  for (const Activation kind : kActivations) {
    check_gated_precision<float>(kind);
    check_gated_precision<Bfloat16>(kind);
  }
}

template <class T>
void check_biases(std::int64_t rows, std::int64_t width) {
  Numbers numbers(35);
  const auto x = operand<T>(numbers, rows * width);
  const auto bias = operand<T>(numbers, width);
  auto sum = x;
  cpu::add_bias(sum.data(), bias.data(), rows, width);
  std::vector<Wide<T>> gradient(static_cast<std::size_t>(width), 5);
  cpu::bias_gradient(x.data(), gradient.data(), rows, width);
  auto expected_sum = as<double>(x);
  std::vector<double> expected_gradient(static_cast<std::size_t>(width), 5);
  for (std::size_t i = 0; i < expected_sum.size(); ++i) {
    expected_gradient[i % expected_gradient.size()] += expected_sum[i];
    expected_sum[i] += as<double>(bias)[i % bias.size()];
  }
  CAPTURE(rows, width);
  CHECK(distance(sum, expected_sum) < kClose<T>);
  CHECK(distance(gradient, expected_gradient) < kClose<Wide<T>>);
}

TEST_CASE("a bias is added to every row, and its gradient accumulates the sum over rows") {
  for (const std::int64_t rows : {1, 63, 130}) {
    for (const std::int64_t width : {1, 17, 48}) {
      check_biases<double>(rows, width);
      check_biases<float>(rows, width);
      check_biases<Bfloat16>(rows, width);
    }
  }
}

template <class T>
void check_add_and_cast() {
  Numbers numbers(36);
  for (const std::int64_t count : {1, 31, 20001}) {
    auto x = operand<T>(numbers, count);
    const auto y = operand<T>(numbers, count);
    std::vector<double> expected = as<double>(x);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += as<double>(y)[i];
    const auto before = x;
    cpu::add(x.data(), y.data(), count);
    CHECK(distance(x, expected) < kClose<T>);
    for (double& value : expected = as<double>(y)) value *= 0.3125;
    auto scaled = y;
    cpu::scale(scaled.data(), 0.3125, count);
    CHECK(distance(scaled, expected) < kClose<T>);
    std::vector<Bfloat16> low(before.size());
    std::vector<double> high(before.size());
    cpu::cast(before.data(), low.data(), count);
    cpu::cast(low.data(), high.data(), count);
    CHECK(same_bits(low, as<Bfloat16>(as<float>(before))));
    CHECK(same_bits(high, as<double>(low)));
  }
}

TEST_CASE("sums and casts are rounded once") {
  check_add_and_cast<float>();
  check_add_and_cast<Bfloat16>();
}

TEST_CASE("casts to bf16 round to nearest even, keep infinity and NaN") {
  const std::vector<float> x = {
      1.00390625F,  // 1 + 2⁻⁸, half way: to the even 1
      1.01171875F,  // 1 + 3·2⁻⁸: to the even 1 + 2⁻⁶
      1.00390637F,  static_cast<float>(kInf), static_cast<float>(-kInf), static_cast<float>(kNaN),
      3.4028235e38F};
  std::vector<Bfloat16> y(x.size());
  cpu::cast(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  CHECK(static_cast<float>(y[0]) == 1.0F);
  CHECK(static_cast<float>(y[1]) == 1.015625F);
  CHECK(static_cast<float>(y[2]) == 1.0078125F);
  CHECK(static_cast<float>(y[3]) == static_cast<float>(kInf));
  CHECK(static_cast<float>(y[4]) == static_cast<float>(-kInf));
  CHECK(std::isnan(static_cast<float>(y[5])));
  CHECK(std::isinf(static_cast<float>(y[6])));
}

TEST_CASE("rotary embedding turns pairs of numbers by position / theta^(2i/d), and back") {
  constexpr int kSamples = 2, kHeads = 3, kDim = 10;
  constexpr std::int64_t kRows = 7, kStride = kHeads * kDim + 4, kFirst = 5;
  const RotaryFrequencies angles = rotary_frequencies({}, kDim);
  Numbers numbers(37);
  const auto x = operand<double>(numbers, kRows * kStride);
  auto expected = x;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kDim / 2; ++i) {
        const double angle =
            static_cast<double>(kFirst + r / kSamples) / std::pow(1e4, 2.0 * i / kDim);
        const auto low = static_cast<std::size_t>(r * kStride + h * kDim + i);
        const auto high = low + kDim / 2;
        expected[low] = x[low] * std::cos(angle) - x[high] * std::sin(angle);
        expected[high] = x[high] * std::cos(angle) + x[low] * std::sin(angle);
      }
    }
  }
  auto turned = x;
  cpu::rotate(turned.data(), kRows, kStride, kSamples, kHeads, kDim, kFirst, angles, 1);
  CHECK(distance(turned, expected) < kClose<double>);
  auto low = as<float>(x);
  cpu::rotate(low.data(), kRows, kStride, kSamples, kHeads, kDim, kFirst, angles, 1);
  CHECK(distance(low, expected) < kClose<float>);
  auto lowest = as<Bfloat16>(as<float>(x));
  auto exact = as<double>(lowest);
  cpu::rotate(lowest.data(), kRows, kStride, kSamples, kHeads, kDim, kFirst, angles, 1);
  cpu::rotate(exact.data(), kRows, kStride, kSamples, kHeads, kDim, kFirst, angles, 1);
  CHECK(distance(lowest, exact) < kClose<Bfloat16>);
  cpu::rotate(turned.data(), kRows, kStride, kSamples, kHeads, kDim, kFirst, angles, -1);
  CHECK(distance(turned, x) < kClose<double>);
}

TEST_CASE("of a head that is rotated in part the rest stays as it is") {
  constexpr int kDim = 10, kHeads = 2, kPart = 6;
  const RotaryFrequencies whole = rotary_frequencies({}, kPart);
  const RotaryFrequencies part = rotary_frequencies({.rotated_part = 0.6}, kDim);
  CHECK((part == whole));
  Numbers numbers(38);
  const auto x = operand<double>(numbers, 3 * kHeads * kDim);
  auto turned = x;
  cpu::rotate(turned.data(), 3, kHeads * kDim, 1, kHeads, kDim, 4, part, 1);
  for (std::size_t head = 0; head < 3 * kHeads; ++head) {
    const auto begin = static_cast<std::ptrdiff_t>(head * kDim);
    std::vector<double> first(x.begin() + begin, x.begin() + begin + kPart);
    cpu::rotate(first.data(), 1, kPart, 1, 1, kPart, 4 + static_cast<int>(head) / kHeads, whole, 1);
    const std::vector<double> now(turned.begin() + begin, turned.begin() + begin + kDim);
    CHECK(std::equal(first.begin(), first.end(), now.begin()));
    CHECK(std::equal(now.begin() + kPart, now.end(), x.begin() + begin + kPart));
  }
}

TEST_CASE("heads of rows are split among parts, and joined again") {
  constexpr std::int64_t kRows = 5;
  constexpr int kDim = 3;
  struct Case {
    int parts, heads, kv_heads;
  };
  for (const Case& c : {Case{2, 4, 2}, Case{4, 4, 4}, Case{3, 6, 0}, Case{1, 2, 1}}) {
    CAPTURE(c.parts, c.heads, c.kv_heads);
    const HeadSplit split{kRows, c.parts, c.heads * kDim, c.kv_heads * kDim, c.kv_heads * kDim};
    Numbers numbers(39);
    const auto x = operand<float>(numbers, kRows * split.width());
    std::vector<float> expected;  // by part, row, kind of heads, head
    for (int part = 0; part < c.parts; ++part) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        int before = 0;
        for (const int heads : {c.heads, c.kv_heads, c.kv_heads}) {
          for (int head = 0; head < heads / c.parts; ++head) {
            const std::int64_t from =
                row * split.width() + (before + part * heads / c.parts + head) * kDim;
            for (int i = 0; i < kDim; ++i)
              expected.push_back(x[static_cast<std::size_t>(from + i)]);
          }
          before += heads;
        }
      }
    }
    std::vector<float> parts(x.size());
    cpu::split_heads(split, x.data(), parts.data());
    CHECK(same_bits(parts, expected));
    std::vector<float> back(x.size());
    cpu::join_heads(split, parts.data(), back.data());
    CHECK(same_bits(back, x));
  }
}

TEST_CASE("element-wise kernels give the same bits for any number of threads") {
  Numbers numbers(38);
  const auto x = operand<float>(numbers, 300 * 2 * 70, -3, 3);
  const auto dy = operand<float>(numbers, 300 * 70);
  const RotaryFrequencies angles = rotary_frequencies({}, 70);
  const auto run = [&] {
    auto all = gated(Activation::gelu, x, dy, 300, 70).dx;
    const auto y = activation(Activation::silu, x);
    std::vector<float> bias(70);
    cpu::bias_gradient(dy.data(), bias.data(), 300, 70);
    auto turned = x;
    cpu::rotate(turned.data(), 300, 140, 2, 2, 70, 0, angles, 1);
    all.insert(all.end(), y.begin(), y.end());
    all.insert(all.end(), bias.begin(), bias.end());
    all.insert(all.end(), turned.begin(), turned.end());
    return all;
  };
  const auto one = with_threads(1, run);
  CHECK(same_bits(one, with_threads(2, run)));
  CHECK(same_bits(one, with_threads(3, run)));
}

}  // namespace
}  // namespace echelon
