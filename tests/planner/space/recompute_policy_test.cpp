// The sets of modules that a search tries, and what they cost.
#include "planner/space/recompute_policy.hpp"

#include "planner/search/optimize.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/contradictions.hpp"
#include "planner/space/legality.hpp"
#include "planner/space/plan_from_constraints.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

using enum RecomputeModule;

CostModel cost_model_of(const PlanRequest& r) {
  return {r.model, r.job, r.cluster, r.framework, r.calibration};
}

/// What selective recomputation of these modules repeats and frees over all layers.
RecomputedPart of_model(const PlanRequest& r, RecomputeModules modules, LayerSharding sharding) {
  const CostModel cost_model = cost_model_of(r);
  const ShardingCosts costs = cost_model.sharding_costs(sharding);
  const int moe = cost_model.moe_before(r.model.layers);
  const RecomputedPart dense = selective_part(costs.dense, r.framework, modules);
  const RecomputedPart experts = selective_part(costs.moe, r.framework, modules);
  RecomputedPart sum{(r.model.layers - moe) * dense.repeated, (r.model.layers - moe) * dense.freed};
  sum += {moe * experts.repeated, moe * experts.freed};
  return sum;
}

bool contains_all(const RecomputeModules& large, const RecomputeModules& small) {
  for (const RecomputeModule module : kRecomputeModules) {
    const bool part_of_moe = module == moe_act || module == shared_experts;
    if (small.contains(module) && !large.contains(module) &&
        !(part_of_moe && large.contains(moe))) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("the sets of modules are nested, and free more at a rising time per byte") {
  for (const char* name : {"deepseek-v3", "kimi-k2", "qwen3-235b-a22b"}) {
    CAPTURE(name);
    const PlanRequest r = request_for(name, "dgx-h100", 64);
    const std::vector<RecomputeModules> chain = module_chain(cost_model_of(r));
    REQUIRE_FALSE(chain.empty());
    CHECK(chain.size() <= 4);
    const LayerSharding reference{.ep = 8};
    RecomputedPart before;
    RecomputeModules last;
    double ratio = 0;
    for (const RecomputeModules& modules : chain) {
      CAPTURE(text_of(modules));
      CHECK(contains_all(modules, last));
      const RecomputedPart now = of_model(r, modules, reference);
      CHECK(now.freed > before.freed);
      const Seconds more = now.repeated.total() - before.repeated.total();
      const double marginal = more.in(kSecond) / (now.freed - before.freed).in(kByte);
      CHECK(marginal >= ratio);
      ratio = marginal;
      before = now;
      last = modules;
    }
  }
}

TEST_CASE("the search tries the modules that the model and the framework have") {
  const PlanRequest latent = request_for("deepseek-v3", "dgx-h100", 64);
  const std::vector<RecomputeModules> chain = module_chain(cost_model_of(latent));
  CHECK(chain.back().contains(mla_up_proj));
  CHECK_FALSE(chain.back().contains(core_attn));  // flash attention keeps no scores
  PlanRequest dense = request_for("llama3-70b", "dgx-h100", 64);
  // Two thirds of the layer's FLOPs free half of its bytes: whole layers cost less per byte.
  CHECK(module_chain(cost_model_of(dense)).empty());
  dense.job.flash_attention = false;
  CHECK(module_chain(cost_model_of(dense)).front().contains(core_attn));
  const PlanRequest other = request_for("llama3-70b", "dgx-h100", 64, "torchtitan");
  CHECK(module_chain(cost_model_of(other)).empty());
}

TEST_CASE("fp8 with delayed scaling repeats neither norms nor activations of experts") {
  PlanRequest r = request_for("deepseek-v3", "dgx-h800", 64);
  const auto repeated = [&](const char* precision) {
    r.job.precision = find_precision(precision).value();
    return module_chain(cost_model_of(r)).back();
  };
  CHECK_FALSE(repeated("fp8").intersects({layernorm, moe_act}));
  CHECK(repeated("fp8").contains(mla_up_proj));
  CHECK_FALSE(repeated("fp8:primary-weights").intersects({layernorm, moe_act}));
  for (const char* precision : {"bf16", "fp8:blockwise", "fp8:precision-aware", "mxfp8", "nvfp4"}) {
    INFO(precision);
    CHECK(contains_all(repeated(precision), {layernorm, moe_act}));
  }
  r = request_for("deepseek-v3", "dgx-h800", 64, "hai-llm");  // has kernels of its own
  CHECK(contains_all(repeated("fp8"), {layernorm, moe_act}));
}

TEST_CASE("modules that the precision excludes are refused when asked for") {
  PlanRequest r = request_for("deepseek-v3", "dgx-h800", 64);
  r.job.precision = find_precision("fp8").value();
  r.constraints.pin<&ParallelPlan::recompute_modules>({moe_act});
  const Status status = check_contradictions(r);
  REQUIRE_FALSE(status);
  CHECK(status.error().found.find("delayed scaling") != std::string::npos);
  CHECK(status.error().found.find("transformer_config.py:1241") != std::string::npos);
  r.job.precision = find_precision("fp8:blockwise").value();
  CHECK(check_contradictions(r));
}

TEST_CASE("values of recomputation: pinned modules, a pinned policy, or the whole chain") {
  PlanRequest r = request_for("deepseek-v3", "dgx-h100", 64);
  const auto values = [&] { return recompute_values(r, cost_model_of(r)); };
  const std::size_t sets = module_chain(cost_model_of(r)).size();
  CHECK(values().size() == sets + 2);
  CHECK(values().front().kind == Recompute::none);
  CHECK(values().back().kind == Recompute::full);
  r.constraints.pin<&ParallelPlan::recompute_modules>({moe_act});
  CHECK(values() == std::vector<RecomputePolicy>{{Recompute::selective, {moe_act}}});
  r.constraints.pin<&ParallelPlan::recompute>(Recompute::selective);  // without modules
  CHECK(values() == std::vector<RecomputePolicy>{{Recompute::selective, {}}});
}

TEST_CASE("modules that the framework or the model lacks are refused with the reason") {
  const auto refused = [](const char* model, const char* framework, RecomputeModules modules) {
    PlanRequest r = request_for(model, "dgx-h100", 64, framework);
    r.constraints.pin<&ParallelPlan::recompute_modules>(modules);
    const Status status = check_contradictions(r);
    return status ? std::string() : status.error().found;
  };
  CHECK(refused("deepseek-v3", "megatron-core", {mla_up_proj, moe_act, mlp}).empty());
  CHECK(refused("llama3-70b", "megatron-core", {mla_up_proj}).find("latent") != std::string::npos);
  CHECK(refused("llama3-70b", "megatron-core", {moe_act}).find("experts") != std::string::npos);
  CHECK(refused("llama3-70b", "torchtitan", {mlp}) ==
        "torchtitan has no recomputation of modules: mlp");
  ParallelPlan plan;
  plan.layers_per_stage = {80};
  plan.recompute_layers = {0};
  plan.recompute_modules = {mlp};
  const PlanRequest r = request_for("llama3-70b", "dgx-h100", 64);
  const auto broken = check_policy(r.model, r.job, r.framework, plan);
  REQUIRE(broken);
  CHECK(broken->detail == "recomputed modules mlp with recompute none");
}

TEST_CASE("the winner with modules open is no worse than with any set pinned") {
  PlanRequest r = request_for("deepseek-v2-lite", "dgx-h100", 16);
  r.max_memory = 24_GiB;
  r.preference = Preference::fastest;
  const auto step = [&](const PlanRequest& request) {
    const Result<SearchResult> found = optimize(request);
    REQUIRE(found.ok());
    REQUIRE(found->report.winner() != nullptr);
    return found->report.winner()->prediction.time.step;
  };
  const Seconds open = step(r);
  for (const RecomputeModules& modules : module_chain(cost_model_of(r))) {
    PlanRequest pinned = r;
    pinned.constraints.pin<&ParallelPlan::recompute_modules>(modules);
    CHECK(open <= step(pinned) * (1 + 1e-9));
  }
  PlanRequest whole = r;
  whole.constraints.pin<&ParallelPlan::recompute>(Recompute::full);
  CHECK(open <= step(whole) * (1 + 1e-9));
}
