#include "tests/runtime/cpu/kernel_numbers.hpp"

namespace echelon {
namespace {

using cpu::Order;

struct GemmCase {
  std::int64_t m, n, k;
  Order a_order, b_order;
  bool add;
};

std::vector<GemmCase> gemm_cases() {
  std::vector<GemmCase> cases;
  for (const Order a : {Order::plain, Order::transposed}) {
    for (const Order b : {Order::plain, Order::transposed}) {
      for (const bool add : {false, true}) {
        cases.push_back({1, 1, 1, a, b, add});
        cases.push_back({7, 5, 3, a, b, add});
        cases.push_back({1, 130, 33, a, b, add});
        cases.push_back({131, 1, 65, a, b, add});
        cases.push_back({150, 67, 129, a, b, add});
      }
    }
  }
  return cases;
}

/// The excess of strides over widths.
constexpr std::int64_t kGap = 3;

/// Both results from the same operands: the kernel's, and plain loops' in double.
template <class T, class Out>
void check_gemm(const GemmCase& c, double bound) {
  Numbers numbers(11);
  const bool at = c.a_order == Order::transposed;
  const bool bt = c.b_order == Order::transposed;
  const std::int64_t lda = (at ? c.m : c.k) + kGap;
  const std::int64_t ldb = (bt ? c.k : c.n) + kGap;
  const std::int64_t ldc = c.n + kGap;
  const auto a = operand<T>(numbers, (at ? c.k : c.m) * lda);
  const auto b = operand<T>(numbers, (bt ? c.n : c.k) * ldb);
  auto out = operand<Out>(numbers, c.m * ldc);
  const auto wide_a = as<double>(a);
  const auto wide_b = as<double>(b);
  auto expected = as<double>(out);
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < c.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < c.k; ++l) {
        sum += wide_a[static_cast<std::size_t>(at ? l * lda + i : i * lda + l)] *
               wide_b[static_cast<std::size_t>(bt ? j * ldb + l : l * ldb + j)];
      }
      double& to = expected[static_cast<std::size_t>(i * ldc + j)];
      to = c.add ? to + sum : sum;
    }
  }
  cpu::gemm(c.a_order, c.b_order, c.m, c.n, c.k, a.data(), lda, b.data(), ldb, out.data(), ldc,
            c.add);
  CAPTURE(c.m, c.n, c.k, at, bt, c.add);
  CHECK(distance(out, expected) < bound);
}

TEST_CASE("gemm is a sum of products, for every order, stride and size") {
  for (const GemmCase& c : gemm_cases()) {
    check_gemm<double, double>(c, kClose<double>);
    check_gemm<float, float>(c, kClose<float>);
    check_gemm<Bfloat16, float>(c, kClose<float>);  // products of bf16 are exact in fp32
    check_gemm<Bfloat16, Bfloat16>(c, kClose<Bfloat16>);
  }
}

TEST_CASE("a product of bf16 matrices larger than a block is correct") {
  check_gemm<Bfloat16, float>({1030, 3, 1100, Order::plain, Order::transposed, true}, 1e-5);
  check_gemm<Bfloat16, Bfloat16>({5, 1040, 1050, Order::transposed, Order::plain, false},
                                 kClose<Bfloat16>);
}

TEST_CASE("gemm of depth zero: the sum is zero, or leaves its accumulator unchanged") {
  std::vector<float> out = {1, 2, 3, 4};
  const float* none = nullptr;
  cpu::gemm(Order::plain, Order::plain, 0, 2, 2, none, 2, none, 2, out.data(), 2, false);
  cpu::gemm(Order::plain, Order::plain, 2, 0, 2, none, 2, none, 2, out.data(), 2, false);
  cpu::gemm(Order::plain, Order::plain, 2, 2, 0, none, 2, none, 2, out.data(), 2, true);
  CHECK(out == std::vector<float>{1, 2, 3, 4});
  cpu::gemm(Order::plain, Order::plain, 2, 1, 0, none, 2, none, 2, out.data(), 2, false);
  CHECK(out == std::vector<float>{0, 2, 0, 4});
}

TEST_CASE("gemm gives the same bits for the same number of threads") {
  Numbers numbers(12);
  const auto a = operand<float>(numbers, 70 * 300);
  const auto b = operand<float>(numbers, 50 * 300);
  for (const int threads : {1, 2}) {
    const auto run = [&] {
      std::vector<float> out(70 * 50);
      cpu::gemm(Order::plain, Order::transposed, 70, 50, 300, a.data(), 300, b.data(), 300,
                out.data(), 50, false);
      return out;
    };
    CHECK(same_bits(with_threads(threads, run), with_threads(threads, run)));
  }
}

TEST_CASE("NaN and infinity pass through gemm") {
  for (const double poison : {kNaN, kInf}) {
    std::vector<float> a = {1, static_cast<float>(poison), 2, 3};
    const std::vector<float> b = {1, 1};
    std::vector<float> out(2);
    cpu::gemm(Order::plain, Order::transposed, 2, 1, 2, a.data(), 2, b.data(), 2, out.data(), 1,
              false);
    CHECK_FALSE(std::isfinite(out[0]));
    CHECK(out[1] == 5);
  }
}

}  // namespace
}  // namespace echelon
