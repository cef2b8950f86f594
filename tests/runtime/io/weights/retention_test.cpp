// Which checkpoints stay, and how many lie on the disk at a time.
#include "runtime/io/weights/retention.hpp"

#include <algorithm>
#include <set>

#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

namespace echelon {
namespace {

using Steps = std::vector<std::int64_t>;

TEST_CASE("the newest checkpoints and those of every Nth step are kept") {
  const Steps all = {10, 20, 30, 40, 50, 60};
  CHECK(superseded(all, 60, {2, 0}) == Steps{40, 30, 20, 10});
  CHECK(superseded(all, 60, {1, 20}) == Steps{50, 30, 10});
  CHECK(superseded(all, 60, {0, 0}).empty());
  CHECK(superseded(all, 60, {9, 0}).empty());
  CHECK(superseded({60, 10, 40}, 60, {2, 0}) == Steps{10});
  // A later one, damaged or of a run that went on from an earlier step, neither goes nor counts.
  CHECK(superseded(all, 40, {2, 0}) == Steps{20, 10});
}

TEST_CASE("a run writes a checkpoint every so many steps and at its end") {
  CHECK(planned_checkpoints(0, 10, 4) == Steps{4, 8, 10});
  CHECK(planned_checkpoints(0, 8, 4) == Steps{4, 8});
  CHECK(planned_checkpoints(3, 9, 3) == Steps{6, 9});
  CHECK(planned_checkpoints(5, 7, 0) == Steps{7});
  CHECK(planned_checkpoints(7, 7, 3).empty());
}

/// Writes them one after the other.
std::int64_t most_by_hand(const Steps& existing, const Steps& planned, const KeepPolicy& keep) {
  std::set<std::int64_t> there(existing.begin(), existing.end());
  std::size_t most = there.size();
  for (const std::int64_t step : planned) {
    most = std::max(most, there.size() + 1);
    there.insert(step);
    for (const std::int64_t gone : superseded({there.begin(), there.end()}, step, keep))
      there.erase(gone);
  }
  return static_cast<std::int64_t>(most);
}

TEST_CASE("the predicted number of checkpoints on the disk is that of writing them") {
  Numbers numbers(3);
  for (int i = 0; i < 2000; ++i) {
    const auto below = [&](std::size_t most) {
      return static_cast<std::int64_t>(numbers.below(most));
    };
    const KeepPolicy keep{below(4), below(3) * 5};
    const std::int64_t first = below(20);
    const Steps planned = planned_checkpoints(first, first + 1 + below(60), 1 + below(7));
    Steps existing;
    for (std::int64_t step = 1; step <= first; ++step) {
      if (below(3) == 0) existing.push_back(step);
    }
    CAPTURE(keep.last, keep.every, first, planned.size(), existing.size());
    CHECK(most_at_once(existing, planned, keep) == most_by_hand(existing, planned, keep));
  }
}

}  // namespace
}  // namespace echelon
