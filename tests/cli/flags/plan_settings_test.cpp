// Plans as flags, and the values that follow from an edit.
#include "cli/flags/plan_settings.hpp"
#include "cli/commands/command_line.hpp"

#include "cli/flags/constraints.hpp"
#include "planner/search/search.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "planner/space/plan_from_constraints.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;
using namespace echelon::cli;

namespace {

Settings flags_set(std::initializer_list<std::pair<const char*, const char*>> flags) {
  Settings out;
  for (const auto& [flag, value] : flags) out.set(flag, {value, std::string("--") + flag});
  return out;
}

PlanRequest asked_for(std::initializer_list<std::pair<const char*, const char*>> flags) {
  return resolve(flags_set(flags))->request;
}

std::string flag_value(const Settings& settings, const char* flag) {
  const Setting* setting = settings.find(flag);
  return setting != nullptr ? setting->value : "none";
}

}  // namespace

TEST_CASE("the flags of a plan give exactly that plan") {
  for (const char* model : {"7b", "mixtral-8x7b"}) {
    PlanRequest request = asked_for({{"model", model}, {"gpus", "32"}, {"top", "40"}});
    const SearchOutcome report = search(request).value();
    REQUIRE(report.candidates.size() > 10);
    for (const Candidate& candidate : report.candidates) {
      const Settings flags = settings_of(candidate.plan);
      request.constraints = constraints_of(flags).value();
      CHECK(plan_from_constraints(request).value() == candidate.plan);
      request.constraints = constraints_of(without_defaults(request, flags)).value();
      CHECK(plan_from_constraints(request).value() == candidate.plan);
    }
  }
}

TEST_CASE("an edit recomputes the dependent values except locked ones") {
  const PlanRequest request =
      asked_for({{"model", "7b"}, {"gpus", "64"}, {"global-batch", "1024"}});
  PlanRequest one = request;
  one.constraints = constraints_of(flags_set({{"tp", "2"}, {"pp", "2"}})).value();
  const Settings plan = settings_of(plan_from_constraints(one).value());
  CHECK(flag_value(plan, "dp") == "16");
  const Settings more = edited(request, plan, "tp", "8", {});
  CHECK(flag_value(more, "tp") == "8");
  CHECK(flag_value(more, "dp") == "none");
  CHECK(flag_value(more, "pp") == "2");
  const Settings kept = edited(request, plan, "tp", "8", {"dp"});
  CHECK(flag_value(kept, "dp") == "16");
  // pp makes up for a changed dp, or tp where pp is locked.
  CHECK(flag_value(edited(request, plan, "dp", "32", {}), "pp") == "1");
  CHECK(flag_value(edited(request, plan, "dp", "32", {"pp"}), "tp") == "1");
  CHECK(flag_value(edited(request, plan, "dp", "32", {"pp", "tp", "cp"}), "dp") == "32");
  CHECK(flag_value(edited(request, plan, "tp", "x", {}), "tp") == "x");
  CHECK(flag_value(edited(request, plan, "tp", "", {}), "tp") == "none");
}

TEST_CASE("slider ticks of a degree show which of them are legal") {
  const PlanRequest request = asked_for({{"model", "7b"}, {"gpus", "6"}, {"global-batch", "24"}});
  const auto stops = slider_ticks_of(request, {}, "tp", {});
  REQUIRE(stops.size() == 4);  // divisors of 6
  CHECK(stops[0] == SliderTick{1, true});
  CHECK(stops[1] == SliderTick{2, true});
  CHECK(stops[2] == SliderTick{3, false});  // 32 heads
  CHECK(slider_ticks_of(request, {}, "zero", {}).size() == 4);
  CHECK(slider_ticks_of(request, {}, "recompute", {}).empty());
}

TEST_CASE("a command line spells settings as its command expects them, quoted for a shell") {
  CHECK(command_of("search", flags_set({{"model", "a b.json"},
                                        {"gpus", "64"},
                                        {"flash-attention", "false"},
                                        {"quiet", "true"},
                                        {"objective", "cost"}})) ==
        "plan --model 'a b.json' --gpus 64 --no-flash-attention --objective cost");
  CHECK(command_of("predict", flags_set({{"model", "7b"}, {"objective", "cost"}})) ==
        "plan predict --model 7b");
}

TEST_CASE("an error names its flag") {
  CHECK(flag_of(input_error("--tp", "x", "y")) == "tp");
  CHECK(flag_of(input_error("--cluster: a.json at /node", "x", "y")) == "cluster");
  CHECK(flag_of(input_error("the configuration", "x", "y")) == "");
}
