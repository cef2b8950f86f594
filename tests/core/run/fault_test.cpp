#include "core/run/fault.hpp"

#include "core/run/run_settings.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

TEST_CASE("faults are unchanged after writing and reading") {
  const std::vector<InjectedFault> faults = {{FaultKind::stop, 2, 5},
                                             {FaultKind::disk_full, 0, 1'000'000}};
  CHECK(to_text(faults) == "stop@2:5,disk-full@0:1000000");
  CHECK(*parse_faults(to_text(faults), "--inject") == faults);
  CHECK(parse_faults("", "--inject")->empty());
  RunSettings settings;
  settings.inject = faults;
  CHECK(*parse_run_settings(run_settings_to_json(settings), "settings") == settings);
}

TEST_CASE("a fault that cannot be read is refused, with what was expected") {
  const auto refusal = [](const char* text) {
    const auto faults = parse_faults(text, "--inject");
    return faults ? "accepted" : faults.error().message();
  };
  CHECK(lacks(refusal("stpo@1:2"), "'stpo'; expected one of stop, kill, slow") == "");
  CHECK(lacks(refusal("stpo@1:2"), "did you mean 'stop'?") == "");
  CHECK(lacks(refusal("stop"), "'stop'; expected FAULT@RANK:STEP") == "");
  CHECK(lacks(refusal("stop@1"), "expected FAULT@RANK:STEP") == "");
  CHECK(lacks(refusal("stop@x:1"), "'x'") == "");
  CHECK(lacks(refusal("stop@1:-1"), "--inject: ") == "");
}
