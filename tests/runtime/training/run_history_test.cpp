#include "runtime/training/run_history.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>

#include "core/base/files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

TEST_CASE("a start that did not say how it ended counts as a failure of the next") {
  const TempDir folder;
  const std::string path = folder.path().string();
  {
    RunHistory killed(path);
    CHECK(killed.begin().empty());
    killed.alive();
  }  // without end(): as after SIGKILL
  RunHistory second(path);
  CHECK(second.begin().empty());
  second.wrote(Bytes{1000}, Seconds{2});
  second.wrote(Bytes{1000}, Seconds{4});
  second.stalled(Seconds{1});
  const MeasuredGoodput goodput = second.end("completed");
  CHECK(goodput.starts == 2);
  CHECK(goodput.failures == 1);
  CHECK(goodput.restarts == 1);
  CHECK(goodput.checkpoints == 2);
  CHECK(goodput.checkpoint == Bytes{1000});
  CHECK(goodput.write == Seconds{3});
  CHECK(goodput.stall == Seconds{0.5});
}

TEST_CASE("a killed start lasted until the time of its file") {
  const TempDir folder;
  const std::string path = folder.path().string() + "/" + RunHistory::kFile;
  {
    RunHistory killed(folder.path().string());
    (void)killed.begin();
  }
  std::vector<RunStart> starts = parse_run_starts(slurp(path), path).value();
  REQUIRE(starts.size() == 1);
  starts.front().began -= 100;
  starts.front().last_seen -= 100;
  REQUIRE(write_file(path, run_starts_to_json(starts)));
  const double seen = starts.front().last_seen + 60;
  const timespec at{static_cast<time_t>(seen), 0};
  const timespec both[2] = {at, at};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), both, 0) == 0);
  RunHistory next(folder.path().string());
  (void)next.begin();
  const MeasuredGoodput goodput = next.end("completed");
  CHECK(goodput.running.in(kSecond) == Approx(60).margin(5));
  CHECK(goodput.restart.in(kSecond) == Approx(40).margin(5));
}

TEST_CASE("a damaged file of starts is named and replaced, and old starts are forgotten") {
  const TempDir folder;
  const std::string path = folder.path().string() + "/" + RunHistory::kFile;
  folder.write(RunHistory::kFile, "no JSON");
  RunHistory first(folder.path().string());
  CHECK(test::lacks(first.begin(), path) == "");
  CHECK(first.end("completed").starts == 1);
  const RunStart before = parse_run_starts(slurp(path), path).value().front();
  REQUIRE(write_file(path, run_starts_to_json({RunHistory::kMost, before})));
  RunHistory next(folder.path().string());
  CHECK(next.begin().empty());
  CHECK(next.end("completed").starts == RunHistory::kMost);
}

TEST_CASE("without a folder nothing is kept") {
  RunHistory history("");
  CHECK(history.begin().empty());
  history.alive();
  CHECK(history.end("completed") == MeasuredGoodput());
}

}  // namespace
}  // namespace echelon
