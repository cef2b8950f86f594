#include "runtime/training/run_inputs.hpp"

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

TEST_CASE("the timeout is 20 predicted steps, at least a minute, or --timeout") {
  PlanFile plan;
  RunSettings settings;
  plan.predicted.time.compute = Seconds{0.1};
  CHECK(timeout_of(plan, settings) == Seconds{60});
  plan.predicted.time.compute = Seconds{30};
  CHECK(timeout_of(plan, settings) == Seconds{600});
  settings.timeout = Seconds{5};
  CHECK(timeout_of(plan, settings) == Seconds{5});
}

TEST_CASE("after a measured step the timeout is ten of it, unless --timeout is given") {
  RunSettings settings;
  CHECK(timeout_after(settings, Seconds{30}) == Seconds{300});
  settings.timeout = Seconds{5};
  CHECK(timeout_after(settings, Seconds{30}) == Seconds{5});
}

}  // namespace
}  // namespace echelon
