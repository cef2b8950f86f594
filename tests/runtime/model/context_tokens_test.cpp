#include "runtime/model/context_tokens.hpp"

#include <algorithm>

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

std::vector<std::int64_t> positions(const std::vector<TokenRun>& runs) {
  std::vector<std::int64_t> out;
  for (const TokenRun& run : runs) {
    CHECK(run.at == static_cast<std::int64_t>(out.size()));
    for (std::int64_t i = 0; i < run.count; ++i) out.push_back(run.position + i);
  }
  return out;
}

/// Pairs of a query and a key that it sees.
std::int64_t pairs(const std::vector<std::int64_t>& queries) {
  std::int64_t sum = 0;
  for (const std::int64_t query : queries) sum += query + 1;
  return sum;
}

TEST_CASE("context-parallel ranks have all tokens of a sample, in a ring with equal work") {
  using Tokens = std::vector<std::int64_t>;
  CHECK(positions(context_tokens(8, 2, CpComm::ring, 0)) == Tokens{0, 1, 6, 7});
  CHECK(positions(context_tokens(8, 2, CpComm::ring, 1)) == Tokens{2, 3, 4, 5});
  CHECK(positions(context_tokens(8, 2, CpComm::all_to_all, 1)) == Tokens{4, 5, 6, 7});
  CHECK(positions(context_tokens(3, 1, CpComm::ring, 0)) == Tokens{0, 1, 2});
  for (const int cp : {2, 3, 4, 8}) {
    std::vector<bool> seen(48, false);
    const std::int64_t work = pairs(positions(context_tokens(48, cp, CpComm::ring, 0)));
    for (int rank = 0; rank < cp; ++rank) {
      const Tokens own = positions(context_tokens(48, cp, CpComm::ring, rank));
      CHECK(pairs(own) == work);
      for (const std::int64_t p : own) {
        CHECK_FALSE(seen[static_cast<std::size_t>(p)]);
        seen[static_cast<std::size_t>(p)] = true;
      }
    }
    CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
  }
}

TEST_CASE("a part of a rank's tokens may end in the middle of a run") {
  using Tokens = std::vector<std::int64_t>;
  const std::vector<TokenRun> all = context_tokens(12, 2, CpComm::ring, 0);  // 0 1 2 9 10 11
  CHECK(positions(part_of(all, 0, 2)) == Tokens{0, 1});
  CHECK(positions(part_of(all, 2, 2)) == Tokens{2, 9});
  CHECK(positions(part_of(all, 4, 2)) == Tokens{10, 11});
}

}  // namespace
}  // namespace echelon
