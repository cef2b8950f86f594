#include <algorithm>
#include <numeric>

#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/cuda/kernels/token_rows.hpp"
#include "runtime/threads/clock.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"

namespace echelon {
namespace {

using device::Memory;
constexpr double kLossScale = 0.25;

std::vector<std::int32_t> drawn_tokens(std::int64_t rows, std::int64_t vocabulary,
                                       std::uint64_t seed) {
  Numbers numbers(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t r = 0; r < rows; ++r) {
    tokens.push_back(
        static_cast<std::int32_t>(numbers.below(static_cast<std::size_t>(vocabulary))));
  }
  return tokens;
}

/// Logits of a vocabulary split in parts of `columns`, the last of which may be padding.
template <class T>
struct SplitLogits {
  std::int64_t rows, vocabulary, columns;
  std::vector<std::vector<T>> parts;
  std::vector<std::int32_t> targets;

  SplitLogits(std::int64_t rows_, std::int64_t vocabulary_, std::int64_t columns_, int count)
      : rows(rows_), vocabulary(vocabulary_), columns(columns_) {
    Numbers numbers(101);
    for (int p = 0; p < count; ++p) {
      // Large numbers in the padding: they must not count.
      auto part = operand<T>(numbers, rows * columns, -9, 9);
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        if (i % columns >= valid(p)) part[static_cast<std::size_t>(i)] = T(1e4F);
      }
      parts.push_back(std::move(part));
    }
    targets = drawn_tokens(rows, vocabulary, 102);
  }
  [[nodiscard]] std::int64_t valid(int part) const {
    return std::clamp<std::int64_t>(vocabulary - part * columns, 0, columns);
  }
};

template <class T>
struct LossResult {
  std::vector<float> max, sums;
  std::vector<std::vector<T>> gradients;
  double loss = 0;
};

template <class T>
LossResult<T> loss_on_cpu(const SplitLogits<T>& in) {
  const auto rows = static_cast<std::size_t>(in.rows);
  LossResult<T> out{std::vector<float>(rows, -std::numeric_limits<float>::infinity()),
                    std::vector<float>(2 * rows), in.parts, 0};
  const int count = static_cast<int>(in.parts.size());
  std::vector<float> own(2 * rows);
  for (int p = 0; p < count; ++p) {
    cpu::logits_max(in.parts[static_cast<std::size_t>(p)].data(), own.data(), in.rows, in.columns,
                    in.valid(p));
    for (std::size_t r = 0; r < rows; ++r) out.max[r] = std::max(out.max[r], own[r]);
  }
  for (int p = 0; p < count; ++p) {
    cpu::logits_sums(in.parts[static_cast<std::size_t>(p)].data(), in.targets.data(),
                     out.max.data(), own.data(), in.rows, in.columns, in.valid(p), p * in.columns);
    for (std::size_t r = 0; r < 2 * rows; ++r) out.sums[r] += own[r];
  }
  for (std::size_t r = 0; r < rows; ++r) {
    out.loss +=
        std::log(double(out.sums[2 * r])) + double(out.max[r]) - double(out.sums[2 * r + 1]);
  }
  for (int p = 0; p < count; ++p) {
    cpu::logits_gradient(out.gradients[static_cast<std::size_t>(p)].data(), in.targets.data(),
                         out.max.data(), out.sums.data(), in.rows, in.columns, in.valid(p),
                         p * in.columns, kLossScale);
  }
  return out;
}

/// The collectives between the kernels are done here.
template <class T>
LossResult<T> loss_on_cuda(const SplitLogits<T>& in, std::size_t shift) {
  const auto rows = static_cast<std::size_t>(in.rows);
  LossResult<T> out{std::vector<float>(rows, -std::numeric_limits<float>::infinity()),
                    std::vector<float>(2 * rows),
                    {},
                    0};
  Memory<std::int32_t> targets(in.targets);
  std::vector<std::vector<float>> own_max, own_sums;
  for (int p = 0; p < static_cast<int>(in.parts.size()); ++p) {
    Memory<T> logits(in.parts[static_cast<std::size_t>(p)], shift);
    Memory<float> max(rows), sums(2 * rows);
    cuda::logits_partials<T>(nullptr, logits.data(), targets.data(), max.data(), sums.data(),
                             in.rows, in.columns, in.valid(p), p * in.columns);
    own_max.push_back(max.content());
    own_sums.push_back(sums.content());
    for (std::size_t r = 0; r < rows; ++r) out.max[r] = std::max(out.max[r], own_max.back()[r]);
  }
  Memory<float> max(out.max);
  for (std::size_t p = 0; p < own_max.size(); ++p) {
    Memory<float> part_max(own_max[p]), sums(own_sums[p]);
    cuda::rescale_sums(nullptr, part_max.data(), max.data(), sums.data(), in.rows);
    const auto rescaled = sums.content();
    for (std::size_t r = 0; r < 2 * rows; ++r) out.sums[r] += rescaled[r];
  }
  Memory<float> sums(out.sums);
  Memory<double> total(std::vector<double>{7});  // is added to
  cuda::add_losses(nullptr, max.data(), sums.data(), total.data(), in.rows);
  out.loss = total.content().front() - 7;
  for (int p = 0; p < static_cast<int>(in.parts.size()); ++p) {
    Memory<T> logits(in.parts[static_cast<std::size_t>(p)], shift);
    cuda::logits_gradient<T>(nullptr, logits.data(), targets.data(), max.data(), sums.data(),
                             in.rows, in.columns, in.valid(p), p * in.columns, kLossScale);
    out.gradients.push_back(logits.content());
  }
  return out;
}

template <class T>
void check_loss(const SplitLogits<T>& in, std::size_t shift = 0) {
  CAPTURE(in.rows, in.vocabulary, in.columns, in.parts.size(), shift, sizeof(T));
  const auto expected = loss_on_cpu(in);
  const auto actual = loss_on_cuda(in, shift);
  CHECK(same_bits(actual.max, expected.max));
  CHECK(distance(actual.sums, as<double>(expected.sums)) < kClose<float>);
  CHECK(actual.loss == Approx(expected.loss).epsilon(1e-6).margin(1e-5));
  for (std::size_t p = 0; p < in.parts.size(); ++p) {
    CHECK(distance(actual.gradients[p], as<double>(expected.gradients[p])) <=
          (sizeof(T) == 2 ? kBothRounded : 4e-6));
  }
}

template <class T>
void check_losses() {
  check_loss<T>({1, 1, 1, 1});
  check_loss<T>({5, 50, 50, 1});
  check_loss<T>({5, 50, 64, 1});      // padded columns
  check_loss<T>({3, 4500, 4608, 1});  // more vectorized than threads
  check_loss<T>({7, 100, 40, 3});     // the last part has padded columns
  check_loss<T>({4, 60, 32, 3});      // the last part is nothing but padding
  check_loss<T>({3, 61, 61, 1});      // rows that are not aligned
  check_loss<T>({3, 64, 64, 1}, 1);
}

TEST_CASE("CUDA cross entropy agrees with the CPU's, for any split and padding") {
  check_losses<float>();
  check_losses<Bfloat16>();
}

TEST_CASE("a masked logit has probability zero on CUDA, and NaN affects only its row") {
  for (const std::size_t place : {0U, 17U, 40U}) {
    SplitLogits<float> in(2, 41, 41, 1);
    in.targets = {5, 6};
    in.parts[0][place] = static_cast<float>(-kInf);
    const auto masked = loss_on_cuda(in, 0);
    CHECK(masked.gradients[0][place] == 0);
    CHECK(std::isfinite(masked.sums[0]));
    for (const double poison : {kNaN, kInf}) {
      in.parts[0][place] = static_cast<float>(poison);
      const auto spoilt = loss_on_cuda(in, 0);
      CHECK(std::isnan(spoilt.sums[0]));
      CHECK(std::isnan(spoilt.gradients[0][1]));
      CHECK(std::isnan(spoilt.loss));
      CHECK(std::isfinite(spoilt.sums[2]));
      CHECK(std::isfinite(spoilt.gradients[0][41 + 2]));
    }
  }
}

TEST_CASE("a part with only masked logits adds nothing on CUDA") {
  SplitLogits<float> in(3, 64, 32, 2);
  std::fill(in.parts[1].begin(), in.parts[1].end(), static_cast<float>(-kInf));
  for (std::int32_t& target : in.targets) target %= 32;
  const auto expected = loss_on_cpu(in);
  const auto actual = loss_on_cuda(in, 0);
  CHECK(distance(actual.sums, as<double>(expected.sums)) < kClose<float>);
  CHECK(same_bits(actual.gradients[1], std::vector<float>(3 * 32)));
}

template <class T>
std::vector<float> embedded_back(const std::vector<std::int32_t>& tokens, const std::vector<T>& dy,
                                 std::int64_t width, std::int64_t first, std::int64_t count,
                                 std::size_t shift) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  std::vector<std::int32_t> grouped(static_cast<std::size_t>(cuda::token_rows_count(rows)));
  cuda::TokenRows().group(tokens, grouped.data());
  Memory<std::int32_t> drawn(tokens), token_rows(grouped);
  Memory<T> slope(dy, shift);
  Memory<float> gradient(std::vector<float>(static_cast<std::size_t>(count * width), 4), shift);
  cuda::embedding_backward<T>(nullptr, drawn.data(), token_rows.data(), slope.data(),
                              gradient.data(), rows, width, first, count);
  return gradient.content();
}

template <class T>
void check_lookup(std::int64_t rows, std::int64_t width, std::size_t shift) {
  CAPTURE(rows, width, shift, sizeof(T));
  constexpr std::int64_t kFirst = 10, kCount = 7;  // of 20: the others belong to other parts
  Numbers numbers(103);
  const auto tokens = drawn_tokens(rows, 20, 104);
  const auto weight = operand<T>(numbers, kCount * width);
  const auto dy = operand<T>(numbers, rows * width);
  std::vector<T> expected(dy.size());
  std::vector<float> gradient(weight.size(), 4);
  cpu::embedding_forward(tokens.data(), weight.data(), expected.data(), rows, width, kFirst,
                         kCount);
  cpu::embedding_backward(tokens.data(), dy.data(), gradient.data(), rows, width, kFirst, kCount);
  Memory<std::int32_t> drawn(tokens);
  Memory<T> table(weight, shift), y(std::vector<T>(dy.size(), T(9.0F)), shift);
  cuda::embedding_forward<T>(nullptr, drawn.data(), table.data(), y.data(), rows, width, kFirst,
                             kCount);
  CHECK(same_bits(y.content(), expected));
  CHECK(distance(embedded_back(tokens, dy, width, kFirst, kCount, shift), as<double>(gradient)) <
        kClose<float>);
}

TEST_CASE("rows are grouped by token, in their order") {
  const auto grouped = [](const std::vector<std::int32_t>& tokens) {
    std::vector<std::int32_t> out(
        static_cast<std::size_t>(cuda::token_rows_count(static_cast<std::int64_t>(tokens.size()))),
        -1);
    cuda::TokenRows().group(tokens, out.data());
    return out;
  };
  CHECK(grouped({}) == std::vector<std::int32_t>{0, 0});
  CHECK(grouped({7, 7, 7}) == std::vector<std::int32_t>{1, 0, 3, -1, -1, 0, 1, 2});
  CHECK(grouped({5, 2, 5, 0}) == std::vector<std::int32_t>{3, 0, 1, 2, 4, -1, 3, 1, 0, 2});
  // Of three digits of eleven bits, which take three passes.
  Numbers numbers(107);
  std::vector<std::int32_t> tokens(5000);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(numbers.below(1U << 31U));
  for (std::size_t i = 1; i < tokens.size(); i += 2) tokens[i] = tokens[i / 2];
  std::vector<std::int32_t> expected(tokens.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
    return tokens[static_cast<std::size_t>(a)] < tokens[static_cast<std::size_t>(b)];
  });
  const std::vector<std::int32_t> found = grouped(tokens);
  CHECK(std::vector<std::int32_t>(found.begin() + 5002, found.end()) == expected);
}

TEST_CASE("the rows of a large batch are grouped at once, be they of one token or of many") {
  constexpr std::size_t kRows = 1U << 20U;
  std::vector<std::int32_t> out(static_cast<std::size_t>(cuda::token_rows_count(kRows)));
  for (const std::int32_t distinct : {1, 50257, 1 << 30}) {
    Numbers numbers(5);
    std::vector<std::int32_t> tokens(kRows);
    for (std::int32_t& token : tokens)
      token = static_cast<std::int32_t>(numbers.below(static_cast<std::size_t>(distinct)));
    const Seconds begin = steady_now();
    cuda::TokenRows().group(tokens, out.data());
    // 20 ms; comparing every row with those before it would take minutes.
    CHECK(steady_now() - begin < Seconds{2});
  }
}

TEST_CASE("CUDA embeddings read and accumulate the tokens of their part") {
  for (const std::int64_t width : {1, 17, 64, 2100}) {
    check_lookup<float>(50, width, 0);
    check_lookup<Bfloat16>(50, width, 0);
  }
  check_lookup<Bfloat16>(1, 8, 0);
  check_lookup<Bfloat16>(300, 8, 0);
  check_lookup<Bfloat16>(50, 64, 1);
}

}  // namespace

std::vector<KernelRun> runs_of_loss() {
  return {{"cross entropy",
           [] {
             const auto out = loss_on_cuda(SplitLogits<Bfloat16>(3, 1000, 520, 2), 0);
             return bits_of(out.max, out.sums, out.gradients[0], out.gradients[1],
                            std::vector<double>{out.loss});
           }},
          {"embedding", [] {
             Numbers numbers(105);
             return bits_of(embedded_back(drawn_tokens(70, 60, 106),
                                          operand<Bfloat16>(numbers, 70 * 24), 24, 0, 60, 0));
           }}};
}

}  // namespace echelon
