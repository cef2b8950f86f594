// The parts of a step, and which axes have one.
#include "core/plan/cost.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("the parts of a step are listed once each and sum to it") {
  CostBreakdown parts;
  CostBreakdown twice;
  double value = 1;
  std::set<std::string_view> keys;
  for (const StepPart& part : kStepParts) {
    CHECK(part.of(parts) == Seconds{});  // no other part is the same
    part.of(parts) = Seconds{value *= 2};
    keys.insert(part.key);
  }
  CHECK(keys.size() == kStepParts.size());
  CHECK(parts.total() == Seconds{2 * value - 2});
  CHECK(parts.communication() == Seconds{8 + 16 + 32 + 64 + 128});
  CHECK(parts.bubble() == Seconds{256 + 512});
  add_share(parts, 0.5, twice);
  add_share(parts, 1.5, twice);
  CHECK(twice.total() == 2 * parts.total());
  CHECK(twice.exposed[Axis::ep] == 2 * parts.exposed[Axis::ep]);
}

TEST_CASE("every axis counts as one that has a part of the step") {
  for (const Axis axis : kAxes) {
    INFO(name_of(axis));
    CHECK(std::ranges::count(kStepAxes, step_axis(axis)) == 1);
    const std::string key = std::string(name_of(step_axis(axis))) + "_comm_exposed";
    CHECK(std::ranges::count(kStepParts, key, &StepPart::key) == 1);
  }
  CHECK(step_axis(Axis::etp) == Axis::ep);
  CHECK(step_axis(Axis::expert_dp) == Axis::dp);
}
