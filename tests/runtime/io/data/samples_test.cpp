// The order of samples, and windows of a source.
#include "runtime/io/data/samples.hpp"

#include <array>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// Token i is i, as far as the vocabulary goes.
class CountingTokens : public TokenSource {
 public:
  explicit CountingTokens(std::int64_t count) : count_(count) {}
  [[nodiscard]] std::int64_t count() const override { return count_; }
  [[nodiscard]] Status read(std::int64_t begin, std::int64_t end,
                            std::int32_t* out) const override {
    EXPECTS(begin >= 0 && end <= count_, "within the source");
    for (std::int64_t i = begin; i < end; ++i) out[i - begin] = static_cast<std::int32_t>(i);
    return Done{};
  }

 private:
  std::int64_t count_;
};

Samples counting(std::int64_t tokens, int sequence, std::uint64_t seed) {
  return *Samples::make(std::make_unique<CountingTokens>(tokens), sequence, seed, "test");
}

TEST_CASE("a permutation contains every number once, whatever their count and the key") {
  for (const std::int64_t count : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1023, 1024, 1025, 5000}) {
    for (std::uint64_t key = 0; key < 5; ++key) {
      const Permutation order(count, key);
      std::set<std::int64_t> met;
      for (std::int64_t i = 0; i < count; ++i) met.insert(order(i));
      CHECK(static_cast<std::int64_t>(met.size()) == count);
      CHECK(*met.begin() == 0);
      CHECK(*met.rbegin() == count - 1);
    }
  }
}

TEST_CASE("every number is equally likely at every place, and neighbours are separated") {
  constexpr int kCount = 6;
  constexpr int kKeys = 60000;
  std::array<std::array<int, kCount>, kCount> at{};
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const Permutation order(kCount, key);
    for (int i = 0; i < kCount; ++i) ++at[std::size_t(i)][std::size_t(order(i))];
  }
  // Binomial(60000, 1/6): mean 10000, standard deviation 91; six of them.
  for (const auto& row : at) {
    for (const int times : row) CHECK(std::abs(times - kKeys / kCount) < 550);
  }
  const Permutation large(100000, 3);
  int neighbours = 0;
  for (int i = 0; i + 1 < 100000; ++i) neighbours += std::abs(large(i) - large(i + 1)) == 1;
  CHECK(neighbours < 12);  // 2 are expected; Poisson: 12 or more once in a million
}

TEST_CASE("the order of samples never changes: the first samples of one seed are known") {
  const Samples samples = counting(10 * 1000 + 1, 10, 42);
  std::vector<std::int64_t> first;
  for (int n = 0; n < 6; ++n) first.push_back(samples.window_of(n));
  CHECK(first == std::vector<std::int64_t>{864, 725, 3, 329, 100, 30});
}

TEST_CASE("an epoch reads every window once and the next epoch in another order") {
  const Samples samples = counting(64 * 50 + 40, 64, 7);
  REQUIRE(samples.windows() == 50);
  std::array<std::vector<std::int64_t>, 2> epochs;
  for (std::int64_t n = 0; n < 100; ++n) epochs.at(n / 50).push_back(samples.window_of(n));
  for (const auto& epoch : epochs) CHECK(std::set(epoch.begin(), epoch.end()).size() == 50);
  CHECK(epochs[0] != epochs[1]);
  CHECK(counting(64 * 50 + 40, 64, 8).window_of(0) != samples.window_of(0));
}

TEST_CASE("a sample contains its inputs and the target of the last, without losing a token") {
  const Samples samples = counting(4 * 9 + 3, 4, 1);
  std::set<std::int32_t> inputs;
  for (std::int64_t n = 0; n < samples.windows(); ++n) {
    std::array<std::int32_t, 5> tokens{};
    REQUIRE(samples.read(n, tokens.data()).ok());
    CHECK(tokens[0] % 4 == 0);
    CHECK(tokens[4] == tokens[0] + 4);
    inputs.insert(tokens.begin(), tokens.end() - 1);
  }
  CHECK(inputs.size() == 36);
}

TEST_CASE("the error for data shorter than one sample gives the required length") {
  const Result<Samples> none =
      Samples::make(std::make_unique<CountingTokens>(64), 64, 0, "short.bin");
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message() ==
        "short.bin: 64 tokens; expected at least 65: one sample of 64 and its last target; use "
        "more data or a shorter sequence");
  CHECK(counting(65, 64, 0).windows() == 1);
}

}  // namespace
}  // namespace echelon
