#include "cli/commands/run_relief.hpp"

#include <string>

#include "cli/flags/constraints.hpp"
#include "cli/flags/plan_settings.hpp"
#include "cli/flags/table.hpp"
#include "tests/core/plan/one_field_changed.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;
using namespace echelon::cli;

TEST_CASE("a change of any one field is reported as its flag") {
  const ParallelPlan plan = plain_plan();
  CHECK(changed_flags(plan, plan).empty());
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    const std::string told = changed_flags(plan, with_changed(field, plan));
    CAPTURE(told);
    CHECK(told.starts_with("--"));
    CHECK(told.find(field.flag) != std::string::npos);
    CHECK(find_flag(field.flag) != nullptr);
  }
}

TEST_CASE("changes are reported as flags that the command line accepts") {
  const ParallelPlan plan = plain_plan();
  ParallelPlan other = plan;
  other.ep = 4;
  other.etp = 2;
  other.offload_optimizer = 1;
  other.sequence_parallel = false;
  other.recompute_layers = {16, 16};
  other.overlap_dp = false;
  CHECK(changed_flags(plan, other) ==
        "--ep 4 instead of 1, --etp 2 instead of 1, --no-sequence-parallel, --recompute-layers "
        "16,16 instead of 8,8, --offload optimizer=1 instead of optimizer=0, --overlap none "
        "instead of dp");
}

TEST_CASE("a change of any field changes the flags of a plan") {
  const ParallelPlan plan = plain_plan();
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    ParallelPlan other = with_changed(field, plan);
    ParallelPlan same = plan;
    // Only mixed recomputation has its own counts.
    if (field.is(&ParallelPlan::selective_layers)) {
      other.recompute = same.recompute = Recompute::mixed;
      same.selective_layers = {0, 0};
    }
    CHECK_FALSE(settings_of(same) == settings_of(other));
  }
}
