#include "core/run/run_settings.hpp"

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("settings of a run are unchanged after writing and reading") {
  RunSettings s;
  s.plan = "a plan.json";
  s.steps = 7;
  s.seed = 42;
  s.resume = Resume::automatic;
  s.keep_last = 5;
  s.keep_every = 100;
  s.async_checkpoints = true;
  s.timeout = Seconds{2.5};
  s.events = 3;
  s.max_grad_norm = 0;
  const Result<RunSettings> read = parse_run_settings(run_settings_to_json(s), "settings");
  REQUIRE(read.ok());
  CHECK(*read == s);
  CHECK(*parse_run_settings(run_settings_to_json({}), "settings") == RunSettings{});
}

TEST_CASE("invalid settings are refused with their pointer") {
  std::string text = run_settings_to_json({});
  text.replace(text.find("\"steps\": 20"), 11, "\"steps\": 0");
  const Result<RunSettings> read = parse_run_settings(text, "settings");
  REQUIRE(!read.ok());
  CHECK(read.error().message().starts_with("settings at /steps"));
}
