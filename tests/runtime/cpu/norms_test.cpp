#include "tests/runtime/cpu/kernel_numbers.hpp"

namespace echelon {
namespace {

constexpr double kEps = 1e-5;

/// The results of a norm's forward and backward, in double.
template <class T>
struct NormResult {
  std::vector<T> y, dx;
  std::vector<Wide<T>> mean, rstd, dweight, dbias;
};

template <class T>
struct NormInput {
  NormInput(std::int64_t rows_, std::int64_t width_, std::uint64_t seed)
      : rows(rows_), width(width_) {
    Numbers numbers(seed);
    x = operand<T>(numbers, rows * width, -2, 3);
    weight = operand<T>(numbers, width, 0.5, 1.5);
    bias = operand<T>(numbers, width);
    dy = operand<T>(numbers, rows * width);
  }
  template <class Other>
  explicit NormInput(const NormInput<Other>& o)
      : rows(o.rows),
        width(o.width),
        x(as<T>(o.x)),
        weight(as<T>(o.weight)),
        bias(as<T>(o.bias)),
        dy(as<T>(o.dy)) {}
  std::int64_t rows, width;
  std::vector<T> x, weight, bias, dy;
};

template <class T>
NormResult<T> norm(const NormInput<T>& in, bool centred, const T* residual_gradient = nullptr) {
  using W = Wide<T>;
  const auto rows = static_cast<std::size_t>(in.rows);
  const auto width = static_cast<std::size_t>(in.width);
  NormResult<T> out{std::vector<T>(in.x.size()), std::vector<T>(in.x.size()), std::vector<W>(rows),
                    std::vector<W>(rows),
                    // Gradients of parameters are added to.
                    std::vector<W>(width, W(2)), std::vector<W>(width, W(3))};
  if (centred) {
    cpu::layer_norm_forward(in.x.data(), {}, in.weight.data(), in.bias.data(), out.y.data(),
                            out.mean.data(), out.rstd.data(), in.rows, in.width, kEps);
    cpu::layer_norm_backward(in.dy.data(), in.x.data(), in.weight.data(), out.mean.data(),
                             out.rstd.data(), residual_gradient, out.dx.data(), out.dweight.data(),
                             out.dbias.data(), in.rows, in.width);
  } else {
    cpu::rms_norm_forward(in.x.data(), {}, in.weight.data(), out.y.data(), out.rstd.data(), in.rows,
                          in.width, kEps);
    cpu::rms_norm_backward(in.dy.data(), in.x.data(), in.weight.data(), out.rstd.data(),
                           residual_gradient, out.dx.data(), out.dweight.data(), in.rows, in.width);
  }
  return out;
}

/// y = (x − mean) / √(variance + eps) · weight + bias, by plain loops.
std::vector<double> plain_norm(const NormInput<double>& in, bool centred) {
  std::vector<double> y(in.x.size());
  const auto width = static_cast<std::size_t>(in.width);
  for (std::size_t row = 0; row < y.size(); row += width) {
    double mean = 0;
    double variance = 0;
    for (std::size_t i = 0; i < width && centred; ++i) {
      mean += in.x[row + i] / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) {
      variance += std::pow(in.x[row + i] - mean, 2) / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) {
      y[row + i] = (in.x[row + i] - mean) / std::sqrt(variance + kEps) * in.weight[i] +
                   (centred ? in.bias[i] : 0);
    }
  }
  return y;
}

TEST_CASE("norms agree with plain loops at awkward sizes") {
  for (const bool centred : {true, false}) {
    for (const std::int64_t width : {1, 7, 16, 33, 130}) {
      CAPTURE(centred, width);
      const NormInput<double> in(5, width, 21);
      // One number minus its mean is zero; only rounding errors times 1/√eps remain.
      CHECK(distance(norm(in, centred).y, plain_norm(in, centred)) < 1e-12);
    }
  }
}

TEST_CASE("gradients of norms agree with finite differences") {
  for (const bool centred : {true, false}) {
    CAPTURE(centred);
    const NormInput<double> in(3, 19, 22);
    const auto loss = [&](std::vector<double> NormInput<double>::*which) {
      return [&, which](const std::vector<double>& value) {
        NormInput<double> changed = in;
        changed.*which = value;
        return dot(norm(changed, centred).y, in.dy);
      };
    };
    const auto less = [](std::vector<double> x, double before) {
      for (double& value : x) value -= before;
      return x;
    };
    const auto out = norm(in, centred);
    CHECK(distance(out.dx, slopes(in.x, loss(&NormInput<double>::x))) < kFiniteDifference);
    CHECK(distance(less(out.dweight, 2), slopes(in.weight, loss(&NormInput<double>::weight))) <
          kFiniteDifference);
    CHECK(
        (!centred || distance(less(out.dbias, 3), slopes(in.bias, loss(&NormInput<double>::bias))) <
                         kFiniteDifference));
  }
}

TEST_CASE("the gradient of the residual around a norm is added to the one through it") {
  for (const bool centred : {true, false}) {
    const NormInput<double> in(5, 33, 25);
    std::vector<double> expected = norm(in, centred).dx;
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += in.x[i];
    CHECK(distance(norm(in, centred, in.x.data()).dx, expected) < 1e-14);
  }
}

enum class SumIn { memory_of_its_own, x, residual };

/// Against the operations one after the other.
template <class T>
void check_sum_before(std::int64_t width, bool centred, bool biased, SumIn place) {
  CAPTURE(width, centred, biased, int(place), sizeof(T));
  const NormInput<T> in(70, width, 26);
  const NormInput<T> other(70, width, 27);
  NormInput<T> apart = in;
  if (biased) cpu::add_bias(apart.x.data(), other.bias.data(), in.rows, width);
  cpu::add(apart.x.data(), other.x.data(), in.rows * width);
  const NormResult<T> expected = norm(apart, centred);

  std::vector<T> x = in.x;
  std::vector<T> residual = other.x;
  std::vector<T> own(in.x.size());
  std::vector<T>& sum = place == SumIn::x ? x : place == SumIn::residual ? residual : own;
  const SumBefore<T> before{biased ? other.bias.data() : nullptr, residual.data(), sum.data()};
  std::vector<T> y(in.x.size());
  std::vector<Wide<T>> mean(expected.mean.size()), rstd(expected.rstd.size());
  if (centred) {
    cpu::layer_norm_forward(x.data(), before, in.weight.data(), in.bias.data(), y.data(),
                            mean.data(), rstd.data(), in.rows, width, kEps);
  } else {
    cpu::rms_norm_forward(x.data(), before, in.weight.data(), y.data(), rstd.data(), in.rows, width,
                          kEps);
  }
  CHECK(same_bits(sum, apart.x));
  CHECK(same_bits(y, expected.y));
  CHECK(same_bits(mean, expected.mean));
  CHECK(same_bits(rstd, expected.rstd));
}

TEST_CASE("a norm fused with the sum before it gives the bits of both operations in sequence") {
  for (const std::int64_t width : {1, 7, 16, 33, 130}) {
    for (const bool centred : {true, false}) {
      for (const bool biased : {true, false}) {
        for (const SumIn place : {SumIn::memory_of_its_own, SumIn::x, SumIn::residual}) {
          check_sum_before<double>(width, centred, biased, place);
          check_sum_before<float>(width, centred, biased, place);
          check_sum_before<Bfloat16>(width, centred, biased, place);
        }
      }
    }
  }
}

template <class T>
void check_norm_precision(bool centred) {
  const NormInput<T> in(200, 97, 23);
  const auto exact = norm(NormInput<double>(in), centred);
  const auto out = norm(in, centred);
  CHECK(distance(out.y, exact.y) < kClose<T>);
  CHECK(distance(out.dx, exact.dx) < kClose<T>);
  CHECK(distance(out.rstd, exact.rstd) < kClose<float>);
  CHECK(distance(out.dweight, exact.dweight) < kClose<float>);
  CHECK(distance(out.dbias, exact.dbias) < kClose<float>);
}

TEST_CASE("norms in fp32 and bf16 round the fp64 result once") {
  for (const bool centred : {true, false}) {
    check_norm_precision<float>(centred);
    check_norm_precision<Bfloat16>(centred);
  }
}

TEST_CASE("norms give the same bits for any number of threads") {
  for (const bool centred : {true, false}) {
    const NormInput<float> in(333, 130, 24);
    const auto one = with_threads(1, [&] { return norm(in, centred); });
    for (const int threads : {2, 3}) {
      const auto some = with_threads(threads, [&] { return norm(in, centred); });
      CHECK(same_bits(one.y, some.y));
      CHECK(same_bits(one.dx, some.dx));
      CHECK(same_bits(one.dweight, some.dweight));
      CHECK(same_bits(one.dbias, some.dbias));
    }
  }
}

TEST_CASE("NaN and infinity affect only their own row of a norm") {
  for (const bool centred : {true, false}) {
    for (const double poison : {kNaN, kInf}) {
      NormInput<float> in(2, 40, 25);
      in.x[17] = static_cast<float>(poison);
      const auto out = norm(in, centred);
      CHECK(std::isnan(out.y[17]));
      CHECK(std::isfinite(out.y[40]));
      CHECK(std::isnan(out.dx[17]));
      CHECK(std::isnan(out.dweight[17]));
    }
  }
}

}  // namespace
}  // namespace echelon
