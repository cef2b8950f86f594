// Plan fields that a user pins.
#include "planner/space/constraints.hpp"

#include "planner/space/constraints_of_plan.hpp"
#include "tests/core/plan/one_field_changed.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// A plan of which every field is pinned: a mix has counts of both kinds of recomputed layers.
ParallelPlan mixed_plan() {
  ParallelPlan plan = plain_plan();
  plan.recompute = Recompute::mixed;
  plan.selective_layers = {4, 4};
  plan.bucket = 10_MB;
  return plan;
}

}  // namespace

TEST_CASE("a pinned field has its value, a released one its default") {
  ParallelPlan plan = mixed_plan();
  plan.recompute_modules = {RecomputeModule::mlp};
  plan.offload_modules = {OffloadModule::attn_norm};
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    PlanConstraints pinned;
    CHECK_FALSE(pinned.has(field));
    pinned.pin(field, plan);
    CHECK(pinned.has(field));
    CHECK(same_value(field, pinned.values(), plan));
    for (const PlanField& other : plan_fields()) CHECK(pinned.has(other) == (&other == &field));
    pinned.release(field);
    CHECK(pinned == PlanConstraints());
  }
}

TEST_CASE("constraints are read by the members they pin") {
  PlanConstraints pinned;
  pinned.pin<&ParallelPlan::tp>(8);
  pinned.pin<&ParallelPlan::layers_per_stage>({3, 5});
  CHECK(pinned.has<&ParallelPlan::tp>());
  CHECK(pinned.get<&ParallelPlan::tp>() == 8);
  CHECK(pinned.value_or<&ParallelPlan::tp>(2) == 8);
  CHECK(pinned.get<&ParallelPlan::pp>() == std::nullopt);
  CHECK(pinned.value_or<&ParallelPlan::pp>(2) == 2);
  CHECK(pinned.has<&ParallelPlan::pp, &ParallelPlan::layers_per_stage>());
  CHECK_FALSE(pinned.has<&ParallelPlan::pp, &ParallelPlan::dp>());
  pinned.release<&ParallelPlan::tp, &ParallelPlan::layers_per_stage>();
  CHECK(pinned == PlanConstraints());
}

TEST_CASE("a plan pins each of its fields") {
  const ParallelPlan plan = mixed_plan();
  CHECK(pinned_to(plan).values() == plan);
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    CHECK(pinned_to(plan).has(field) == (field.kind != PlanFieldKind::modules));  // it has none
    // Other policies have no layer counts, and plans without buckets no bucket size.
    const bool counts_or_size =
        field.is(&ParallelPlan::recompute) || field.is(&ParallelPlan::bucket);
    if (!counts_or_size) CHECK(pinned_to(with_changed(field, plan)).values() != plan);
  }
  ParallelPlan none = plan;
  none.recompute = Recompute::none;
  none.bucket.reset();
  const PlanConstraints pinned = pinned_to(none);
  CHECK_FALSE(pinned.has<&ParallelPlan::recompute_layers, &ParallelPlan::selective_layers,
                         &ParallelPlan::bucket>());
}

TEST_CASE("overlaid constraints replace the fields that both pin") {
  const ParallelPlan plan = mixed_plan();
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    // Where the plan has none, it pins none.
    const bool none = field.kind == PlanFieldKind::size || field.is(&ParallelPlan::offload_modules);
    if (none) continue;
    const ParallelPlan other = with_changed(field, plan);
    PlanConstraints change;
    change.pin(field, other);
    CHECK(overlaid(pinned_to(plan), change).values() == other);
    CHECK(overlaid(change, pinned_to(plan)) == pinned_to(plan));
  }
}

TEST_CASE("a policy of recomputation releases the modules pinned before it") {
  ParallelPlan plan;
  plan.recompute = Recompute::selective;
  plan.recompute_modules = {RecomputeModule::moe_act};
  const PlanConstraints pinned = pinned_to(plan);
  CHECK(pinned.values() == plan);
  PlanConstraints none;
  none.pin<&ParallelPlan::recompute>(Recompute::none);
  CHECK_FALSE(overlaid(pinned, none).has<&ParallelPlan::recompute_modules>());
  CHECK(overlaid(none, pinned) == pinned);
}
