// Measurements of plan calibrate: the executor and collectives between threads.
#include <set>

#include "runtime/measure/parts.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

TEST_CASE("steps of empty instructions take longer the more instructions they have") {
  const std::vector<Measurement> all = measure_host(2, 1);
  REQUIRE(all.size() == 3);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].what == "empty step");
    CHECK(all[i].ranks == 2);
    CHECK(all[i].seconds > Seconds{});
    if (i > 0) CHECK(all[i].shape[0] > all[i - 1].shape[0]);
  }
  CHECK(all.back().seconds > all.front().seconds);
}

TEST_CASE("the median is in the middle of times, and the undisturbed time is near the lowest") {
  const std::vector<Seconds> times{Seconds{7}, Seconds{1}, Seconds{4}, Seconds{100}};
  CHECK(median(times) == Seconds{5.5});
  CHECK(undisturbed(times) == Seconds{1});
  CHECK(median({Seconds{3}, Seconds{9}, Seconds{1}}) == Seconds{3});
  CHECK(median({Seconds{2}}) == Seconds{2});
}

TEST_CASE("collectives of threads are timed by kind and size") {
  std::set<std::string> kinds;
  for (const Measurement& one : measure_collectives_of_threads(2, 1)) {
    kinds.insert(one.what);
    CHECK(one.seconds > Seconds{});
  }
  CHECK(kinds == std::set<std::string>{"all_gather", "all_reduce", "reduce_scatter", "send_recv"});
}

}  // namespace
}  // namespace echelon
