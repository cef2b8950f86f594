// The files of examples/ work from the command line as their README describes.
#include <filesystem>
#include <string>

#include "core/run/run_report.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

TEST_CASE("every example plan trains on the example text as planned") {
  const std::string folder = std::string(ECHELON_SOURCE_DIR) + "/examples/";
  const TempDir scratch;
  int plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    ++plans;
    const std::string report = (scratch.path() / "report.json").string();
    const auto run = run_shell(std::string(ECHELON_PLAN) + " run " + entry.path().string() +
                               " --data " + folder + "pride-and-prejudice.txt --steps 6 " +
                               "--learning-rate 3e-3 --report " + report);
    INFO(entry.path().string() << "\n" << run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(run.out.find("Time of one step: measured and predicted") != std::string::npos);
    const RunReport told = read_run_report(report).value();
    CHECK(told.schedule_hash == told.executed_hash);
    REQUIRE(told.steps.size() == 6);
    CHECK(told.steps.back().loss < told.steps.front().loss);
    REQUIRE(told.measured.has_value());
    CHECK(told.measured->time.compute > Seconds{});
    // Every memory block has its predicted size.
    CHECK(told.measured->peak / told.plan.predicted.peak == Approx(1).epsilon(0.02));
  }
  CHECK(plans >= 2);
}

TEST_CASE("every published plan of the anchors is legal for its framework") {
  const auto check = run_shell(std::string("sh ") + ECHELON_SOURCE_DIR +
                               "/scripts/anchors.sh --check " + ECHELON_PLAN);
  INFO(check.out << check.err);
  CHECK(check.exit_code == 0);
  CHECK(check.out.empty());
}
