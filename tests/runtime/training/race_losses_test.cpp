// The small run of the race test, in this build: with oneDNN if available.
#include "tests/places.hpp"
#include "tests/runtime/race/small_run.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

TEST_CASE("training with oneDNN's and with Eigen's GEMMs gives the same losses") {
  const std::string path = std::string(ECHELON_SOURCE_DIR) + "/tests/runtime/race/zero3_zb_h1.txt";
  const Schedule schedule = parse_schedule_text(slurp(path), path).value();
  const std::vector<double> losses = losses_of_small_run(schedule);
  REQUIRE(losses.size() == std::size(kLossesOfSmallRun));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    CHECK(losses[i] == Approx(kLossesOfSmallRun[i]).margin(kRoundingOfSmallRun));
  }
}

}  // namespace
}  // namespace echelon
