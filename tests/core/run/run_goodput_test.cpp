#include "core/run/run_goodput.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;

namespace {

RunStart start_at(double began, std::optional<double> computes, double last_seen,
                  const std::string& end) {
  return {.began = began, .computes = computes, .last_seen = last_seen, .end = end};
}

}  // namespace

TEST_CASE("failures are starts that nobody ended and that may succeed with the same input") {
  for (const char* end : {"", "environment", "hang", "peer lost", "defect", "plan was killed"}) {
    INFO(end);
    CHECK(start_at(0, 1, 2, end).failed());
  }
  for (const char* end :
       {"completed", "interrupted", "stopped", "wrong input", "out of memory", "diverged"}) {
    INFO(end);
    CHECK_FALSE(start_at(0, 1, 2, end).failed());
  }
}

TEST_CASE("the time between failures is the running time over their number") {
  const MeasuredGoodput none = goodput_of_starts({start_at(0, 10, 100, "completed")});
  CHECK(none.starts == 1);
  CHECK_FALSE(none.time_between_failures());
  const MeasuredGoodput two = goodput_of_starts(
      {start_at(0, 10, 100, ""), start_at(120, 130, 220, "hang"), start_at(230, 240, 250, "")});
  CHECK(two.failures == 3);
  CHECK(two.running == Seconds{220});
  CHECK(two.time_between_failures()->in(kSecond) == Approx(220.0 / 3));
}

TEST_CASE("a restart lasts from the last sign of the failed start until steps begin again") {
  const MeasuredGoodput goodput = goodput_of_starts({
      start_at(0, 10, 100, ""),
      start_at(105, {}, 110, "environment"),      // did not come to a step: the restart goes on
      start_at(115, 120, 200, ""),                // 20 after the failure at 100
      start_at(201, 202, 300, "hang"),            // 2
      start_at(5000, 5004, 5100, "interrupted"),  // 4704
      start_at(9000, 9010, 9100, "completed"),    // after a wanted end: no restart
  });
  CHECK(goodput.restarts == 3);
  CHECK(goodput.restart == Seconds{20});  // the median: one long night does not count
  CHECK(goodput.failures == 4);
}

TEST_CASE("the starts of a training are unchanged after writing and reading") {
  const std::vector<RunStart> starts = {start_at(1.25e9, 1.25e9 + 0.5, 1.25e9 + 2, ""),
                                        start_at(1.25e9 + 3, {}, 1.25e9 + 4, "hang")};
  const auto read = parse_run_starts(run_starts_to_json(starts), "starts.json");
  REQUIRE(read.ok());
  CHECK(*read == starts);
  for (const char* damaged : {"", "{", "[]", R"({"schema": 2, "starts": []})",
                              R"({"schema": 1, "starts": [{"began": 1}]})"}) {
    CHECK_FALSE(parse_run_starts(damaged, "starts.json").ok());
  }
}
