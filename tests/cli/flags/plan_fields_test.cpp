// Round trip of each plan field: flag, constraints, JSON and back.
#include "core/plan/plan_fields.hpp"

#include <string>

#include "cli/commands/command_table.hpp"
#include "cli/flags/constraints.hpp"
#include "cli/flags/plan_settings.hpp"
#include "cli/flags/table.hpp"
#include "cli/flags/why_not.hpp"
#include "core/plan/plan_json_io.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "report/json/candidate_json_io.hpp"
#include "tests/core/plan/one_field_changed.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;
using namespace echelon::cli;

namespace {

/// plain_plan() with another value of the field, and the policy that layer counts require.
ParallelPlan plan_with(const PlanField& field) {
  ParallelPlan plan = plain_plan();
  if (field.is(&ParallelPlan::selective_layers)) {
    plan.recompute = Recompute::mixed;
    plan.selective_layers = {2, 2};
  }
  return with_changed(field, plan);
}

}  // namespace

TEST_CASE("every field of a plan has a flag with help and a description of its value") {
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.flag);
    const Flag* flag = find_flag(field.flag);
    REQUIRE(flag != nullptr);
    CHECK((flag->groups & kLayout) != 0);
    CHECK_FALSE(flag->help.empty());
    CHECK(flag->negatable == (field.kind == PlanFieldKind::on_off));
    CHECK(flag->value.empty() == flag->negatable);
    CHECK(takes(*find_command("predict"), *flag));
  }
}

TEST_CASE("every field of a plan is unchanged from flag to constraints to JSON and back") {
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    const ParallelPlan plan = plan_with(field);
    const Settings settings = settings_of(plan);
    REQUIRE(settings.find(field.flag) != nullptr);
    CHECK(settings.find(field.flag)->value == flag_text(field, plan));
    const Result<PlanConstraints> pinned = constraints_of(settings);
    REQUIRE(pinned.ok());
    CHECK(*pinned == pinned_to(plan));
    CHECK(pinned->has(field));
    CHECK(same_value(field, pinned->values(), plan));

    PlanRequest request = request_for("7b", "dgx-h100", 16);
    request.constraints = *pinned;
    const Json document = request_json(request, {})["constraints"];
    REQUIRE(document.contains(json_key(field)));
    CHECK(document[json_key(field)] == value_json(field, plan));

    const Result<ParallelPlan> back = plan_from_json(plan_json(plan, 64), "p.json", "/plan");
    INFO((back ? std::string() : back.error().message()));
    REQUIRE(back.ok());
    CHECK(same_value(field, *back, plan));
    CHECK(*settings_of(*back).find(field.flag) == *settings.find(field.flag));
  }
}

TEST_CASE("a field that is not pinned appears in no flag and no constraint") {
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    PlanConstraints pinned = pinned_to(plan_with(field));
    pinned.release(field);
    PlanRequest request = request_for("7b", "dgx-h100", 16);
    request.constraints = pinned;
    CHECK_FALSE(request_json(request, {})["constraints"].contains(json_key(field)));
    if (field.kind != PlanFieldKind::listed) CHECK_FALSE(settings_of(pinned).has(field.flag));
  }
}

TEST_CASE("why not accepts every field of a plan, including lists") {
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    const ParallelPlan plan = plan_with(field);
    const std::string list =
        "tp=4," + std::string(field.flag) + "=" + flag_text(field, plan) + ",pp=8";
    CAPTURE(list);
    const bool twice = field.is(&ParallelPlan::tp) || field.is(&ParallelPlan::pp);
    const Result<PlanConstraints> asked = parse_why_not({list, "--why-not"});
    REQUIRE(asked.ok() == !twice);
    if (twice) continue;
    CHECK(same_value(field, asked->values(), plan));
    CHECK(asked->has(field));
    CHECK(asked->get<&ParallelPlan::pp>() == 8);
  }
  const Result<PlanConstraints> unknown = parse_why_not({"overlap=dp,zz", "--why-not"});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().expected == "a list of dp, tp, pp, ep and shared, or none");
  CHECK_FALSE(parse_why_not({"tp=4,8", "--why-not"}).ok());
}

TEST_CASE("a list behind --recompute selective pins the policy and the modules, as two flags do") {
  const auto pinned = [](std::initializer_list<std::pair<const char*, const char*>> flags) {
    Settings settings;
    for (const auto& [name, value] : flags) settings.set(name, {value, "--" + std::string(name)});
    return constraints_of(settings);
  };
  const auto one = pinned({{"recompute", "selective:mla_up_proj,moe_act,layernorm"}});
  REQUIRE(one.ok());
  const RecomputeModules modules{RecomputeModule::layernorm, RecomputeModule::mla_up_proj,
                                 RecomputeModule::moe_act};
  CHECK(one->get<&ParallelPlan::recompute>() == Recompute::selective);
  CHECK(one->get<&ParallelPlan::recompute_modules>() == modules);
  const auto two =
      pinned({{"recompute", "selective"}, {"recompute-modules", "layernorm,mla_up_proj,moe_act"}});
  REQUIRE(two.ok());
  CHECK(*two == *one);
  const auto plain = pinned({{"recompute", "selective"}});
  REQUIRE(plain.ok());
  CHECK_FALSE(plain->has<&ParallelPlan::recompute_modules>());
  const auto wrong = pinned({{"recompute", "selective:moe_acts"}});
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().found == "unknown module to recompute 'moe_acts'");
  CHECK(wrong.error().hint == "did you mean 'moe_act'?");
  CHECK(wrong.error().expected.find("mla_up_proj") != std::string::npos);
  CHECK_FALSE(pinned({{"recompute", "selective:"}}).ok());
  CHECK_FALSE(pinned({{"recompute", "some:mlp"}}).ok());
}

TEST_CASE("a plan without recomputed modules has no key for them, as in older files") {
  ParallelPlan plan = plain_plan();
  CHECK_FALSE(plan_json(plan, 64).contains("recompute_modules"));
  plan.recompute = Recompute::selective;
  plan.recompute_layers = {0, 0};
  plan.recompute_modules = {RecomputeModule::moe_act, RecomputeModule::mlp};
  Json written = plan_json(plan, 64);
  CHECK(written["recompute_modules"] == Json::parse(R"(["moe_act", "mlp"])"));
  const Result<ParallelPlan> back = plan_from_json(written, "p.json", "/plan");
  REQUIRE(back.ok());
  CHECK(*back == plan);
  written["recompute_modules"] = Json::parse(R"(["moe_acts"])");
  const Result<ParallelPlan> wrong = plan_from_json(written, "p.json", "/plan");
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().where.find("/plan/recompute_modules") != std::string::npos);
}
