#include "core/plan/plan_fields.hpp"

#include <set>
#include <sstream>
#include <string>

#include "core/plan/plan_file.hpp"
#include "tests/core/plan/any_plan_file.hpp"
#include "tests/core/plan/one_field_changed.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("a change of any field of a plan is found, as exactly that field") {
  const ParallelPlan plan = plain_plan();
  CHECK(differing_fields(plan, plan).empty());
  CHECK(chosen_differences(plan, plan).empty());
  std::set<std::string_view> keys;
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    const ParallelPlan other = with_changed(field, plan);
    CHECK_FALSE(plan == other);
    REQUIRE(differing_fields(plan, other).size() == 1);
    CHECK(differing_fields(plan, other).front() == &field);
    REQUIRE(chosen_differences(plan, other).size() == 1);
    CHECK(chosen_differences(plan, other).front() == &field);
    CHECK(value_text(field, plan) != value_text(field, other));
    CHECK(flag_text(field, plan) != flag_text(field, other));
    CHECK(keys.insert(field.key).second);
  }
}

TEST_CASE("the table marks the fields that belong to a layer's sharding") {
  const ParallelPlan plan = plain_plan();
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    CHECK((sharding_of(with_changed(field, plan)) == sharding_of(plan)) ==
          !field.in_layer_sharding);
  }
}

TEST_CASE("a value is copied from plan to plan, and no other with it") {
  const ParallelPlan plan = plain_plan();
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    const ParallelPlan other = with_changed(field, plan);
    ParallelPlan copy = plan;
    copy_value(field, other, copy);
    CHECK(copy == other);
  }
}

TEST_CASE("the choices of a name are the names that can be given") {
  for (const PlanField& field : plan_fields()) {
    if (field.kind != PlanFieldKind::name) continue;
    CAPTURE(field.key);
    ParallelPlan plan;
    std::istringstream choices{std::string(field.choices)};
    std::string all;
    for (std::string choice; choices >> choice;) {
      CAPTURE(choice);
      REQUIRE(set_name(field, choice, "here", plan).ok());
      CHECK(value_text(field, plan) == choice);
      all += (all.empty() ? "one of " : ", ") + choice;
    }
    const Status unknown = set_name(field, "no-such-name", "here", plan);
    REQUIRE_FALSE(unknown.ok());
    CHECK(unknown.error().where == "here");
    CHECK(unknown.error().expected == all);
  }
}

TEST_CASE("a set of fields holds what was put into it") {
  PlanFieldSet fields;
  CHECK(fields.empty());
  for (const PlanField& field : plan_fields()) {
    CHECK_FALSE(fields.contains(field));
    fields.insert(field);
    CHECK(fields.contains(field));
  }
  for (const PlanField& field : plan_fields()) {
    fields.erase(field);
    CHECK_FALSE(fields.contains(field));
  }
  CHECK(fields == PlanFieldSet());
}

TEST_CASE("a default that follows from another change is not a choice") {
  ParallelPlan plan = plain_plan();
  plan.recompute = Recompute::none;
  plan.recompute_layers = {0, 0};
  const auto chosen = [&](const ParallelPlan& other) {
    std::string keys;
    for (const PlanField* field : chosen_differences(plan, other))
      keys += std::string(field->key) + " ";
    return keys;
  };
  ParallelPlan other = plan;
  other.dp = 8;
  other.shard_group = 16;
  CHECK(chosen(other) == "dp ");
  other.shard_group = 8;  // half of the ranks: an explicit choice
  CHECK(chosen(other) == "dp zero_group_size ");
  other = plan;
  other.pp = 4;
  other.layers_per_stage = {8, 8, 8, 8};
  other.recompute_layers = {0, 0, 0, 0};
  CHECK(chosen(other) == "pp ");
  other = plan;
  other.vpp = 2;
  other.schedule = ScheduleKind::interleaved;
  other.overlap_pp = true;
  CHECK(chosen(other) == "vpp ");
  other = plan;
  other.tp = 1;
  other.sequence_parallel = false;
  CHECK(chosen(other) == "tp ");
  other = plan;
  other.recompute = Recompute::full;
  other.recompute_layers = {16, 16};
  CHECK(chosen(other) == "recompute ");
  other.recompute_layers = {16, 15};
  CHECK(chosen(other) == "recompute recompute_layers ");
}

TEST_CASE("plans that differ only in an empty list are still distinguished") {
  const ParallelPlan plan = plain_plan();
  ParallelPlan other = plan;
  other.selective_layers = {0, 0};
  CHECK(chosen_differences(plan, other).size() == 1);
}

TEST_CASE("the flags of a plan have the spelling of the command line") {
  ParallelPlan plan = plain_plan();
  plan.offload_optimizer = 0.5;
  plan.overlap_pp = true;
  plan.bucket = 25_MB;
  std::string all;
  for (const PlanField& field : plan_fields()) {
    all += std::string(field.flag) + "=" + flag_text(field, plan) + " ";
  }
  for (const char* part :
       {"tp=2 ", "sequence-parallel=true ", "recompute=full ", "recompute-layers=8,8 ",
        "schedule=1f1b ", "cp-comm=p2p ", "rank-order=tp-cp-ep-dp-pp ", "offload=optimizer=0.5 ",
        "overlap=dp,pp ", "bucket=25000000 "}) {
    CAPTURE(part, all);
    CHECK(all.find(part) != std::string::npos);
  }
}

TEST_CASE("a plan file contains every field") {
  Numbers draw(3);
  PlanFile file = any_plan_file(draw);
  file.plan = plain_plan();
  file.predicted.stages.resize(2);
  file.predicted.stage_times.clear();
  const auto program_of = [](const PlanFile& f) {
    return "echelon-schedule 1\npipeline " + std::string(name_of(f.plan.schedule)) + " ranks " +
           std::to_string(f.plan.pp) + " chunks " + std::to_string(f.plan.vpp) + " microbatches " +
           std::to_string(f.plan.microbatches_rounded_up(f.job.global_batch)) + " units 1\n";
  };
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    PlanFile changed = file;
    changed.plan = with_changed(field, file.plan);
    if (changed.plan.pp != file.plan.pp) {
      changed.plan.layers_per_stage = {11, 11, 10};
      changed.plan.recompute_layers = {1, 1, 1};
      changed.predicted.stages.resize(3);
    }
    // Only mixed recomputation has its own counts.
    if (field.is(&ParallelPlan::selective_layers)) changed.plan.recompute = Recompute::mixed;
    changed.program = program_of(changed);
    const Result<PlanFile> back = parse_plan_file(plan_file_to_json(changed), "p.json");
    INFO((back ? std::string() : back.error().message()));
    REQUIRE(back.ok());
    CHECK(back->plan == changed.plan);
  }
}
