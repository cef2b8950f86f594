#include "tests/runtime/cpu/kernel_numbers.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kVocabulary = 41;

/// One part of the vocabulary: its logits, statistics and gradient.
template <class T>
struct LossPart {
  std::vector<T> gradient;
  std::vector<Wide<T>> max, sums;
};

/// Parts of `valid` columns and some padding, all from one row-major matrix of logits; the exchange
/// of ranks between the kernels is done here.
template <class T>
std::vector<LossPart<T>> cross_entropy(const std::vector<T>& logits,
                                       const std::vector<std::int32_t>& targets,
                                       std::int64_t vocabulary, int parts, double scale) {
  const auto rows = static_cast<std::int64_t>(targets.size());
  const std::int64_t columns = (vocabulary + parts - 1) / parts + 2;
  std::vector<LossPart<T>> all(static_cast<std::size_t>(parts));
  std::vector<Wide<T>> max(targets.size(), static_cast<Wide<T>>(-kInf));
  std::vector<Wide<T>> sums(2 * targets.size());
  const auto first_of = [&](std::int64_t part) { return part * (columns - 2); };
  const auto valid_of = [&](std::int64_t part) {
    return std::clamp<std::int64_t>(vocabulary - first_of(part), 0, columns - 2);
  };
  for (std::int64_t p = 0; p < parts; ++p) {
    LossPart<T>& part = all[static_cast<std::size_t>(p)];
    // Padding that would change every result if it were read.
    part.gradient.assign(static_cast<std::size_t>(rows * columns), T(static_cast<Wide<T>>(kNaN)));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(logits.begin() + r * vocabulary + first_of(p), valid_of(p),
                  part.gradient.begin() + r * columns);
    }
    part.max.resize(targets.size());
    part.sums.resize(2 * targets.size());
    cpu::logits_max(part.gradient.data(), part.max.data(), rows, columns, valid_of(p));
    for (std::size_t r = 0; r < max.size(); ++r) {
      max[r] = part.max[r] > max[r] || part.max[r] != part.max[r] ? part.max[r] : max[r];
    }
  }
  for (std::int64_t p = 0; p < parts; ++p) {
    LossPart<T>& part = all[static_cast<std::size_t>(p)];
    cpu::logits_sums(part.gradient.data(), targets.data(), max.data(), part.sums.data(), rows,
                     columns, valid_of(p), first_of(p));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += part.sums[i];
  }
  for (std::int64_t p = 0; p < parts; ++p) {
    LossPart<T>& part = all[static_cast<std::size_t>(p)];
    cpu::logits_gradient(part.gradient.data(), targets.data(), max.data(), sums.data(), rows,
                         columns, valid_of(p), first_of(p), scale);
    part.max = max;
    part.sums = sums;
  }
  return all;
}

std::vector<std::int32_t> some_targets(std::int64_t rows, std::int64_t vocabulary) {
  Numbers numbers(61);
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < rows; ++r) {
    targets.push_back(
        static_cast<std::int32_t>(numbers.below(static_cast<std::size_t>(vocabulary))));
  }
  return targets;
}

double plain_loss(const std::vector<double>& logits, const std::vector<std::int32_t>& targets,
                  std::int64_t vocabulary) {
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const double* row = logits.data() + static_cast<std::int64_t>(r) * vocabulary;
    double sum = 0;
    for (std::int64_t i = 0; i < vocabulary; ++i) sum += std::exp(row[i]);
    loss += std::log(sum) - row[targets[r]];
  }
  return loss;
}

template <class T>
double loss_of(const LossPart<T>& part) {
  double loss = 0;
  for (std::size_t r = 0; r < part.max.size(); ++r) {
    loss += std::log(static_cast<double>(part.sums[2 * r])) + static_cast<double>(part.max[r]) -
            static_cast<double>(part.sums[2 * r + 1]);
  }
  return loss;
}

/// The parts' gradients as one matrix, without padding; padding must be zero.
template <class T>
std::vector<T> whole_gradient(const std::vector<LossPart<T>>& parts, std::int64_t rows,
                              std::int64_t vocabulary) {
  std::vector<T> all(static_cast<std::size_t>(rows * vocabulary));
  std::int64_t first = 0;
  for (const LossPart<T>& part : parts) {
    const std::int64_t columns = static_cast<std::int64_t>(part.gradient.size()) / rows;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < columns; ++i) {
        const T value = part.gradient[static_cast<std::size_t>(r * columns + i)];
        if (i < columns - 2 && first + i < vocabulary) {
          all[static_cast<std::size_t>(r * vocabulary + first + i)] = value;
        } else {
          CHECK(Wide<T>(value) == 0);
        }
      }
    }
    first += columns - 2;
  }
  return all;
}

TEST_CASE("cross entropy in parts is the loss, and its gradient agrees with finite differences") {
  for (const std::int64_t vocabulary : {std::int64_t{1}, std::int64_t{16}, kVocabulary}) {
    for (const int parts : {1, 2, 5}) {
      CAPTURE(vocabulary, parts);
      Numbers numbers(62);
      const auto logits = operand<double>(numbers, 3 * vocabulary, -5, 5);
      const auto targets = some_targets(3, vocabulary);
      const auto all = cross_entropy(logits, targets, vocabulary, parts, 0.5);
      CHECK(std::abs(loss_of(all.front()) - plain_loss(logits, targets, vocabulary)) < 1e-12);
      const auto expected =
          slopes(logits, [&](const auto& at) { return 0.5 * plain_loss(at, targets, vocabulary); });
      const auto actual = whole_gradient(all, 3, vocabulary);
      double largest = 0;
      for (std::size_t i = 0; i < actual.size(); ++i) {
        largest = std::max(largest, std::abs(actual[i] - expected[i]));
      }
      CHECK(largest < kFiniteDifference);
    }
  }
}

template <class T>
void check_loss_precision() {
  Numbers numbers(63);
  const auto logits = operand<T>(numbers, 7 * 1003, -30, 30);
  const auto targets = some_targets(7, 1003);
  const auto exact = cross_entropy(as<double>(logits), targets, 1003, 2, 0.25);
  const auto actual = cross_entropy(logits, targets, 1003, 2, 0.25);
  CHECK(distance(actual.front().sums, exact.front().sums) < kClose<float>);
  CHECK(distance(whole_gradient(actual, 7, 1003), whole_gradient(exact, 7, 1003)) < kClose<T>);
}

TEST_CASE("cross entropy in fp32 and bf16 stays near fp64") {
  check_loss_precision<float>();
  check_loss_precision<Bfloat16>();
}

TEST_CASE("cross entropy gives the same bits for any number of threads") {
  Numbers numbers(64);
  const auto logits = operand<float>(numbers, 300 * kVocabulary, -5, 5);
  const auto targets = some_targets(300, kVocabulary);
  const auto run = [&] { return cross_entropy(logits, targets, kVocabulary, 1, 1).front(); };
  const auto one = with_threads(1, run);
  const auto two = with_threads(2, run);
  CHECK(same_bits(one.gradient, two.gradient));
  CHECK(same_bits(one.sums, two.sums));
}

TEST_CASE("a logit of minus infinity has probability zero, NaN affects only its row") {
  Numbers numbers(65);
  for (const std::size_t place : {0U, 17U, 40U}) {
    auto logits = operand<float>(numbers, 2 * kVocabulary);
    const std::vector<std::int32_t> targets = {5, 6};
    logits[place] = static_cast<float>(-kInf);
    const auto masked = cross_entropy(logits, targets, kVocabulary, 1, 1).front();
    CHECK(masked.gradient[place] == 0);
    CHECK(std::isfinite(masked.sums[0]));
    logits[place] = static_cast<float>(kNaN);
    const auto spoilt = cross_entropy(logits, targets, kVocabulary, 1, 1).front();
    CHECK(std::isnan(spoilt.sums[0]));
    CHECK(std::isnan(spoilt.gradient[1]));
    CHECK(std::isfinite(spoilt.sums[2]));
    CHECK(std::isfinite(spoilt.gradient[kVocabulary + 2]));
  }
}

template <class T>
void check_embedding(std::int64_t width) {
  Numbers numbers(66);
  constexpr std::int64_t kRows = 50, kFirst = 10, kCount = 7;
  std::vector<std::int32_t> tokens;
  for (std::int64_t r = 0; r < kRows; ++r) {
    tokens.push_back(static_cast<std::int32_t>(numbers.below(20)));
  }
  const auto weight = operand<T>(numbers, kCount * width);
  const auto dy = operand<T>(numbers, kRows * width);
  std::vector<T> y(dy.size(), T(Wide<T>(9)));
  std::vector<Wide<T>> gradient(weight.size(), 4);
  std::vector<double> expected_y(dy.size());
  std::vector<double> expected(weight.size(), 4);
  for (std::int64_t i = 0; i < kRows * width; ++i) {
    const std::int64_t token = tokens[static_cast<std::size_t>(i / width)] - kFirst;
    if (token < 0 || token >= kCount) continue;
    const auto from = static_cast<std::size_t>(token * width + i % width);
    expected_y[static_cast<std::size_t>(i)] = static_cast<double>(Wide<T>(weight[from]));
    expected[from] += static_cast<double>(Wide<T>(dy[static_cast<std::size_t>(i)]));
  }
  cpu::embedding_forward(tokens.data(), weight.data(), y.data(), kRows, width, kFirst, kCount);
  CHECK(same_bits(as<double>(y), expected_y));
  const auto run = [&] {
    auto sum = gradient;
    cpu::embedding_backward(tokens.data(), dy.data(), sum.data(), kRows, width, kFirst, kCount);
    return sum;
  };
  const auto one = with_threads(1, run);
  CHECK(distance(one, expected) < kClose<Wide<T>>);
  CHECK(same_bits(one, with_threads(2, run)));
  CHECK(same_bits(one, with_threads(3, run)));
}

TEST_CASE("embeddings read and accumulate the tokens of their part, for any number of threads") {
  for (const std::int64_t width : {1, 17, 64, 200}) {
    CAPTURE(width);
    check_embedding<double>(width);
    check_embedding<float>(width);
    check_embedding<Bfloat16>(width);
  }
}

}  // namespace
}  // namespace echelon
