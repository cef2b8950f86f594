#include "core/base/on_all_cores.hpp"

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("every piece of work is done once before on_all_cores returns") {
  for (const std::size_t count : {0, 1, 2, 1000}) {
    std::vector<int> done(count, 0);
    on_all_cores(count, [&](std::size_t i) { ++done[i]; });
    CHECK(done == std::vector<int>(count, 1));
  }
}
