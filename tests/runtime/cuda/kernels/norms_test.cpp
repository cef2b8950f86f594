#include "runtime/cuda/kernels/kernels.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"

namespace echelon {
namespace {

using device::Memory;
constexpr double kNormEps = 1e-5;

template <class T>
struct FusedNorm {
  FusedNorm(std::int64_t rows_, std::int64_t width_, std::size_t shift_ = 0)
      : rows(rows_), width(width_), shift(shift_) {
    Numbers numbers(71);
    x = operand<T>(numbers, rows * width, -2, 3);
    residual = operand<T>(numbers, rows * width, -2, 3);
    weight = operand<T>(numbers, width, 0.5, 1.5);
    bias = operand<T>(numbers, width);
    x_bias = operand<T>(numbers, width);
    dy = operand<T>(numbers, rows * width);
    gradient = operand<T>(numbers, rows * width);
  }
  std::int64_t rows, width;
  std::size_t shift;  // of every operand, from a multiple of 16 bytes
  std::vector<T> x, x_bias, residual, weight, bias, dy, gradient;
};

template <class T>
struct FusedNormResult {
  std::vector<T> sum, y, dx;
  std::vector<float> mean, rstd, dweight, dbias;
};

/// The residual around the norm: none, or the sum before it and the gradient behind it; the place
/// of the sum.
enum class Round { nothing, apart, in_x, in_residual };

/// Forward and backward. With `biased`, the sum has a bias too.
template <class T>
FusedNormResult<T> on_cpu(const FusedNorm<T>& in, bool centred, Round round, bool biased) {
  const auto rows = static_cast<std::size_t>(in.rows);
  const auto width = static_cast<std::size_t>(in.width);
  FusedNormResult<T> out{in.x,
                         std::vector<T>(in.x.size()),
                         std::vector<T>(in.x.size()),
                         std::vector<float>(rows),
                         std::vector<float>(rows),
                         std::vector<float>(width, 2),
                         std::vector<float>(width, 3)};
  if (biased) cpu::add_bias(out.sum.data(), in.x_bias.data(), in.rows, in.width);
  const bool sums = round != Round::nothing;
  if (sums) cpu::add(out.sum.data(), in.residual.data(), in.rows * in.width);
  const T* const residual_gradient = sums ? in.gradient.data() : nullptr;
  if (centred) {
    cpu::layer_norm_forward(out.sum.data(), {}, in.weight.data(), in.bias.data(), out.y.data(),
                            out.mean.data(), out.rstd.data(), in.rows, in.width, kNormEps);
    cpu::layer_norm_backward(in.dy.data(), out.sum.data(), in.weight.data(), out.mean.data(),
                             out.rstd.data(), residual_gradient, out.dx.data(), out.dweight.data(),
                             out.dbias.data(), in.rows, in.width);
  } else {
    cpu::rms_norm_forward(out.sum.data(), {}, in.weight.data(), out.y.data(), out.rstd.data(),
                          in.rows, in.width, kNormEps);
    cpu::rms_norm_backward(in.dy.data(), out.sum.data(), in.weight.data(), out.rstd.data(),
                           residual_gradient, out.dx.data(), out.dweight.data(), in.rows, in.width);
  }
  return out;
}

template <class T>
FusedNormResult<T> on_cuda(const FusedNorm<T>& in, bool centred, Round round, bool biased) {
  Memory<T> x(in.x, in.shift), x_bias(in.x_bias, in.shift), residual(in.residual, in.shift),
      weight(in.weight, in.shift), bias(in.bias, in.shift), dy(in.dy, in.shift),
      apart(std::vector<T>(in.x.size()), in.shift), y(std::vector<T>(in.x.size()), in.shift),
      gradient(in.gradient, in.shift), separate(in.x.size());
  const auto rows = static_cast<std::size_t>(in.rows);
  const auto width = static_cast<std::size_t>(in.width);
  Memory<float> mean(rows), rstd(rows), dweight(std::vector<float>(width, 2)),
      dbias(std::vector<float>(width, 3)),
      workspace(static_cast<std::size_t>(cuda::norm_backward_workspace(in.rows, in.width)));
  const bool sums = round != Round::nothing;
  Memory<T>& normed = round == Round::apart ? apart : round == Round::in_residual ? residual : x;
  SumBefore<T> before;
  if (sums) before = {biased ? x_bias.data() : nullptr, residual.data(), normed.data()};
  // In place if there is a residual gradient.
  const T* const residual_gradient = sums ? gradient.data() : nullptr;
  T* const dx = sums ? gradient.data() : separate.data();
  if (centred) {
    cuda::layer_norm_forward<T>(nullptr, x.data(), before, weight.data(), bias.data(), y.data(),
                                mean.data(), rstd.data(), in.rows, in.width, kNormEps);
    cuda::layer_norm_backward<T>(nullptr, dy.data(), normed.data(), weight.data(), mean.data(),
                                 rstd.data(), residual_gradient, dx, dweight.data(), dbias.data(),
                                 workspace.data(), in.rows, in.width);
  } else {
    cuda::rms_norm_forward<T>(nullptr, x.data(), before, weight.data(), y.data(), rstd.data(),
                              in.rows, in.width, kNormEps);
    cuda::rms_norm_backward<T>(nullptr, dy.data(), normed.data(), weight.data(), rstd.data(),
                               residual_gradient, dx, dweight.data(), workspace.data(), in.rows,
                               in.width);
  }
  return {normed.content(), y.content(),    sums ? gradient.content() : separate.content(),
          mean.content(),   rstd.content(), dweight.content(),
          dbias.content()};
}

/// Of y, and of dx, where the residual gradient is added before the rounding, on the CPU after a
/// first one.
template <class T>
inline constexpr double kNormClose = sizeof(T) == 2 ? kBothRounded : 8e-6;
template <class T>
inline constexpr double kNormBackClose = sizeof(T) == 2 ? 1.5 * kBothRounded : 8e-6;

/// In parts of the largest dx or dy·weight·rstd: dx is a difference of such terms, of which little
/// is left in narrow rows (of two numbers nothing), and has their rounding errors.
template <class T>
double distance_of_dx(const FusedNorm<T>& in, const FusedNormResult<T>& actual,
                      const FusedNormResult<T>& expected) {
  const auto dx = as<double>(expected.dx);
  double largest_dx = 0;
  double largest = 0;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const auto width = static_cast<std::size_t>(in.width);
    const double term = double(Wide<T>(in.dy[i])) * double(Wide<T>(in.weight[i % width])) *
                        double(expected.rstd[i / width]);
    largest_dx = std::max(largest_dx, std::abs(dx[i]));
    largest = std::max({largest, std::abs(dx[i]), std::abs(term)});
  }
  return distance(actual.dx, dx) * largest_dx / largest;
}

template <class T>
void check_norm(const FusedNorm<T>& in, bool centred, Round round, bool biased) {
  CAPTURE(in.rows, in.width, in.shift, centred, int(round), biased, sizeof(T));
  const auto expected = on_cpu(in, centred, round, biased);
  const auto actual = on_cuda(in, centred, round, biased);
  CHECK(same_bits(actual.sum, expected.sum));
  CHECK(distance(actual.y, as<double>(expected.y)) <= kNormClose<T>);
  CHECK(distance_of_dx(in, actual, expected) <= kNormBackClose<T>);
  CHECK(distance(actual.mean, as<double>(expected.mean)) < kClose<float>);
  CHECK(distance(actual.rstd, as<double>(expected.rstd)) < kClose<float>);
  CHECK(distance(actual.dweight, as<double>(expected.dweight)) < kClose<float>);
  CHECK(distance(actual.dbias, as<double>(expected.dbias)) < kClose<float>);
}

template <class T>
void check_norms(bool centred, Round round, bool biased) {
  for (const std::int64_t width : {2, 7, 64, 130}) {
    check_norm<T>({5, width}, centred, round, biased);
  }
  check_norm<T>({3, 64, 1}, centred, round, biased);
  check_norm<T>({1, 4400}, centred, round, biased);  // more vectorized than threads
  check_norm<T>({3, 1032}, centred, round, biased);  // a block for each row in the backward
}

template <class T>
void check_norms() {
  for (const bool centred : {true, false}) {
    check_norms<T>(centred, Round::nothing, false);
    check_norms<T>(centred, Round::apart, false);
    check_norms<T>(centred, Round::in_x, true);
    check_norms<T>(centred, Round::in_residual, true);
  }
}

TEST_CASE("CUDA norms agree with the CPU's at awkward sizes") {
  check_norms<float>();
  check_norms<Bfloat16>();
}

TEST_CASE("CUDA norms of more rows than the backward takes at once agree with the CPU's") {
  check_norm<float>({2130, 5}, true, Round::in_x, true);  // by warps
  check_norm<Bfloat16>({2130, 8}, false, Round::nothing, false);
  check_norm<float>({267, 513}, true, Round::nothing, false);  // by blocks
}

TEST_CASE("CUDA norms of rows too wide for shared memory agree with the CPU's") {
  check_norm<float>({2, 24700}, true, Round::in_x, true);
  check_norm<Bfloat16>({2, 49256}, false, Round::nothing, false);
}

TEST_CASE("NaN and infinity affect only their own row of a CUDA norm") {
  for (const bool centred : {true, false}) {
    for (const double poison : {kNaN, kInf}) {
      FusedNorm<float> in(2, 40);
      in.x[17] = static_cast<float>(poison);
      const auto out = on_cuda(in, centred, Round::apart, true);
      CHECK(std::isnan(out.y[17]));
      CHECK(std::isfinite(out.y[40]));
      CHECK(std::isnan(out.dx[17]));
      CHECK(std::isfinite(out.dx[40]));
      CHECK(std::isnan(out.dweight[17]));
    }
  }
}

/// Rows of query, key and value heads.
template <class T>
struct HeadsCase {
  HeadsCase(std::int64_t positions, int samples, int heads, int kv_heads, int head_dim,
            std::size_t shift_ = 0)
      : shift(shift_) {
    shape.sequence = positions;
    shape.samples = samples;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = head_dim;
    shape.qkv_stride = std::int64_t{heads + 2 * kv_heads} * head_dim;
    Numbers numbers(73);
    const std::int64_t count = positions * samples * shape.qkv_stride;
    x = operand<T>(numbers, count, -2, 3);
    gradient = operand<T>(numbers, count);
    q_weight = operand<T>(numbers, head_dim, 0.5, 1.5);
    k_weight = operand<T>(numbers, head_dim, 0.5, 1.5);
  }
  AttentionShape shape;
  std::size_t shift;
  std::vector<T> x, gradient, q_weight, k_weight;
};

template <class T>
struct HeadsResult {
  std::vector<T> y, dx;
  std::vector<float> dq, dk;
};

template <class T>
HeadsResult<T> heads_on_cpu(const HeadsCase<T>& in) {
  const auto width = static_cast<std::size_t>(in.shape.head_dim);
  const HeadNorms<T> norms{in.q_weight.data(), in.k_weight.data(), kNormEps};
  HeadsResult<T> out{in.x, in.gradient, std::vector<float>(width, 2), std::vector<float>(width, 3)};
  cpu::normalize_heads(in.shape, norms, in.x.data(), out.y.data());
  cpu::normalize_heads_backward(in.shape, norms, in.x.data(), out.dx.data(), out.dq.data(),
                                out.dk.data());
  return out;
}

template <class T>
HeadsResult<T> heads_on_cuda(const HeadsCase<T>& in) {
  const auto width = static_cast<std::size_t>(in.shape.head_dim);
  Memory<T> x(in.x, in.shift), y(std::vector<T>(in.x.size()), in.shift),
      gradient(in.gradient, in.shift), q_weight(in.q_weight, in.shift),
      k_weight(in.k_weight, in.shift);
  Memory<float> dq(std::vector<float>(width, 2)), dk(std::vector<float>(width, 3)),
      workspace(static_cast<std::size_t>(cuda::head_norms_workspace(in.shape)));
  const HeadNorms<T> norms{q_weight.data(), k_weight.data(), kNormEps};
  cuda::normalize_heads<T>(nullptr, in.shape, norms, x.data(), y.data());
  cuda::normalize_heads_backward<T>(nullptr, in.shape, norms, x.data(), gradient.data(), dq.data(),
                                    dk.data(), workspace.data());
  return {y.content(), gradient.content(), dq.content(), dk.content()};
}

template <class T>
void check_heads(const HeadsCase<T>& in) {
  CAPTURE(in.shape.sequence, in.shape.heads, in.shape.kv_heads, in.shape.head_dim, in.shift,
          sizeof(T));
  const HeadsResult<T> expected = heads_on_cpu(in);
  const HeadsResult<T> actual = heads_on_cuda(in);
  CHECK(distance(actual.y, as<double>(expected.y)) <= kNormClose<T>);
  CHECK(distance(actual.dx, as<double>(expected.dx)) <= kNormBackClose<T>);
  CHECK(distance(actual.dq, as<double>(expected.dq)) < kClose<float>);
  CHECK(distance(actual.dk, as<double>(expected.dk)) < kClose<float>);
}

template <class T>
void check_heads() {
  check_heads<T>({3, 2, 4, 2, 64});
  check_heads<T>({2, 1, 20, 1, 128});  // more heads than warps
  check_heads<T>({3, 1, 3, 1, 7});
  check_heads<T>({2, 2, 2, 2, 24, 1});
}

TEST_CASE("CUDA norms of heads agree with the CPU's at awkward sizes") {
  check_heads<float>();
  check_heads<Bfloat16>();
  check_heads<Bfloat16>({2, 1, 1, 1, 256});
  check_heads<Bfloat16>({3000, 1, 3, 1, 16});  // more heads than all blocks take at once
}

}  // namespace

std::vector<KernelRun> runs_of_norms() {
  const auto run = [](bool centred) {
    std::string bits;
    for (const std::int64_t width : {400, 1032}) {
      const auto out = on_cuda(FusedNorm<Bfloat16>(9, width), centred, Round::in_x, true);
      bits += bits_of(out.sum, out.y, out.dx, out.mean, out.rstd, out.dweight, out.dbias);
    }
    return bits;
  };
  return {{"layer norm", [=] { return run(true); }},
          {"RMS norm", [=] { return run(false); }},
          {"norms of heads", [] {
             const auto out = heads_on_cuda(HeadsCase<Bfloat16>(3, 2, 10, 2, 64));
             return bits_of(out.y, out.dx, out.dq, out.dk);
           }}};
}

}  // namespace echelon
