// The recommended plan and the fastest one, for other programs.
#include <cmath>
#include <cstdint>
#include <string>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::check_keys;
using echelon::test::document;
using echelon::test::Sandbox;
using Json = nlohmann::ordered_json;

namespace {
const std::string kRecommended = "--model 13b --gpus 16 --json";
}

TEST_CASE("the fastest plan stands beside a winner that is likelier to fit") {
  const Sandbox sandbox;
  const Json found = document(sandbox.plan(kRecommended));
  const Json& winner = found["winner"];
  const Json& fastest = found["fastest"];
  REQUIRE(fastest.is_object());
  CHECK(fastest["time"]["step_seconds"] < winner["time"]["step_seconds"]);
  CHECK(fastest["expected_seconds"] > winner["expected_seconds"]);
  CHECK(fastest["fits_probability"] < winner["fits_probability"]);
  CHECK(found["request"]["prefer"] == "balanced");
  CHECK(found["request"]["front"] == false);
  CHECK(found["pareto_complete"] == false);
  const Json preferred = document(sandbox.plan(kRecommended + " --prefer fastest --front"));
  CHECK(preferred["fastest"].is_null());
  CHECK(preferred["winner"]["plan"] == fastest["plan"]);
  CHECK(preferred["winner"]["expected_seconds"] == preferred["winner"]["time"]["step_seconds"]);
  CHECK(preferred["request"]["prefer"] == "fastest");
  CHECK(preferred["pareto_complete"] == true);
}

TEST_CASE("with a limit of memory no probability is told") {
  const Sandbox sandbox;
  const Json found = document(sandbox.plan(kRecommended + " --max-memory 70GiB"));
  CHECK(found["winner"]["fits_probability"].is_null());
  CHECK(found["request"]["usable_memory_bytes"] == std::int64_t{70} << 30);
  CHECK(found["request"]["capacity_bytes"] == std::int64_t{70} << 30);
  CHECK(found["request"]["memory_band"].is_null());
  // Without: half of the probability lies at the bias of the memory band.
  const Json likely = document(sandbox.plan(kRecommended))["request"];
  const Json& band = likely["memory_band"];
  check_keys(band, {"kind", "distribution", "bias", "spread", "source"});
  CHECK(likely["usable_memory_bytes"].get<double>() ==
        Approx(likely["capacity_bytes"].get<double>() * std::exp(-band["bias"].get<double>())));
}
