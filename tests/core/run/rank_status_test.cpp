#include "core/run/rank_status.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

using State = RankProgress::State;
using test::lacks;

constexpr Seconds kPatience{3};

RankStatus status(int rank, State state, std::uint64_t order, double lasting, const char* at,
                  std::vector<int> missing = {}) {
  return {{rank, state, order, Seconds{lasting}, at, std::move(missing)}, {}};
}

std::string accused(const std::vector<RankStatus>& ranks) {
  const auto suspect = judge(ranks, kPatience);
  return suspect ? describe(*suspect) : "nobody";
}

TEST_CASE("a silent process is guilty before one that works, and that before one that is absent") {
  std::vector<RankStatus> ranks = {
      status(0, State::waits, 10, 8, "step 3 #10, all_reduce waits for rank 2", {2}),
      status(1, State::waits, 20, 8, "step 3 #20, receive from rank 0", {0}),
      status(2, State::waits, 99, 8, "step 3 is issued, barrier waits for rank 0 1", {0, 1})};
  CHECK(accused(ranks) ==
        "rank 2 has not joined step 3 #10, all_reduce waits for rank 2; it is at step 3 is "
        "issued, barrier waits for rank 0 1");
  ranks.push_back(status(3, State::works, 5, 2.5, "step 3 #5 F c0 m0"));
  CHECK(lacks(accused(ranks), "rank 2 has not joined") == "");  // it works, but not for long
  ranks.back().progress.lasting = Seconds{7};
  CHECK(accused(ranks) == "rank 3 holds up the others: it has been at step 3 #5 F c0 m0 for 7.0 s");
  ranks[1].silent = Seconds{8};
  CHECK(accused(ranks) ==
        "rank 1 has sent nothing for 8.0 s, last seen at step 3 #20, receive from rank 0");
}

TEST_CASE("of several that a wait misses, the one that does not wait there is accused") {
  const char* at = "step 3 #10, all_reduce in the norm group of ranks {0,1,2}";
  const std::vector<RankStatus> ranks = {
      status(0, State::waits, 10, 8, at, {1, 2}), status(1, State::waits, 10, 8, at, {0, 2}),
      status(2, State::waits, 30, 8, "step 3 #30, barrier", {0, 1})};
  CHECK(lacks(accused(ranks), "rank 2 has not joined step 3 #10") == "");
  CHECK(accused({}) == "nobody");
  CHECK(accused({status(0, State::idle, 1, 100, "the GPU has not finished #3")}) == "nobody");
}

}  // namespace
}  // namespace echelon
