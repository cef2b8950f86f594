// Rules of offloaded activations, and searches that are asked for them.
#include <optional>
#include <string>

#include "core/plan/adapters.hpp"
#include "planner/search/search.hpp"
#include "planner/space/contradictions.hpp"
#include "planner/space/legality.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

std::string refusal(const char* model, OffloadModules modules,
                    Recompute recompute = Recompute::none, RecomputeModules recomputed = {},
                    CudaGraphs graphs = CudaGraphs::none, const char* framework = "megatron-core") {
  ParallelPlan plan;
  plan.offload_modules = modules;
  plan.recompute = recompute;
  plan.recompute_modules = recomputed;
  plan.cuda_graphs = graphs;
  const auto broken =
      check_offload(load_model(model).value(), find_framework(framework).value(), plan);
  return broken ? broken->detail : "";
}

}  // namespace

TEST_CASE("activations are offloaded where Megatron-Core takes it, and only there") {
  using enum OffloadModule;
  CHECK(refusal("deepseek-v3", {core_attn, attn_proj, expert_fc1}).empty());
  CHECK(refusal("llama3-8b", {qkv_linear, core_attn}).empty());
  CHECK(refusal("llama3-8b", {attn_proj}).find("without core_attn") != std::string::npos);
  CHECK(refusal("llama3-8b", {moe_act}).find("without experts") != std::string::npos);
  CHECK(refusal("llama3-8b", {core_attn}, Recompute::full).find("recompute full") !=
        std::string::npos);
  CHECK(refusal("deepseek-v3", {expert_fc1}, Recompute::selective, {RecomputeModule::moe})
            .find("recomputed moe") != std::string::npos);
  CHECK(refusal("deepseek-v3", {expert_fc1}, Recompute::selective, {RecomputeModule::moe_act})
            .empty());
  CHECK(refusal("deepseek-v3", {mlp_norm}, Recompute::none, {}, CudaGraphs::layers)
            .find("CUDA graphs") != std::string::npos);
  CHECK(refusal("deepseek-v3", {moe_act}, Recompute::none, {}, CudaGraphs::layers).empty());
  CHECK(refusal("llama3-8b", {core_attn}, Recompute::none, {}, CudaGraphs::none, "torchtitan")
            .find("torchtitan has no offload of activations: core_attn") != std::string::npos);
}

TEST_CASE("offloaded states take 16 bytes per parameter of their nodes' memory, and no more") {
  // 70.6 B parameters, one replica on one node of 2 TB: 1,052 GiB of 1,863. Two replicas need twice
  // as much.
  PlanRequest r = request_for("llama3-70b", "dgx-h100", 8);
  ParallelPlan p;
  p.dp = p.shard_group = 8;
  p.zero = 1;
  p.offload_optimizer = 1;
  const auto refusal_of = [&] {
    const auto broken = check_sharding(r.model, r.job, r.cluster, r.framework, p);
    return broken ? broken->detail : "";
  };
  CHECK(refusal_of().empty());
  r.model = load_model("gpt3-175b").value();
  CHECK(refusal_of() ==
        "offloaded states of 2602 GiB per node, whose CPU memory is 1863 GiB: at most 71 % of the "
        "optimizer");
  p.offload_optimizer = 0.71;
  CHECK(refusal_of().empty());
  p.offload_optimizer = 0.72;
  CHECK_FALSE(refusal_of().empty());
  // Frozen weights have no states: of adapters alone all are held.
  p.offload_optimizer = 1;
  r.job.adapters = parse_adapters("16", "", {}).value();
  CHECK(refusal_of().empty());
  CHECK(offloaded_states(r.model, r.job, r.cluster, r.framework, p) <
        0.01 * r.cluster.node().cpu_memory);
}

TEST_CASE("where hosts hold only a part of the optimizer, the best part that they hold is found") {
  const auto best = [](std::optional<double> part) {
    PlanRequest r = request_for("llama3-70b", "gb300-nvl72", 4);
    r.job.sequence = 8192;
    r.job.global_batch = 64;
    if (part) r.constraints.pin<&ParallelPlan::offload_optimizer>(*part);
    return search(r);
  };
  const Result<SearchOutcome> whole = best(1.0);  // 1,052 GiB of 894
  CHECK_FALSE((whole.ok() && whole->winner() != nullptr));
  const Result<SearchOutcome> open = best({});
  REQUIRE(open.ok());
  REQUIRE(open->winner() != nullptr);
  CHECK(open->winner()->plan.offload_optimizer > 0);
  CHECK(open->winner()->plan.offload_optimizer < 1);
  for (const double part : {0.6, 0.8}) {
    const Result<SearchOutcome> pinned = best(part);
    REQUIRE(pinned.ok());
    REQUIRE(pinned->winner() != nullptr);
    CHECK(open->winner()->expected() <= pinned->winner()->expected());
  }
}

TEST_CASE("a search that is asked to offload finds the best plan of all that do") {
  PlanRequest r = request_for("llama3-8b", "dgx-h100", 8);
  r.job.global_batch = 64;
  r.constraints.pin<&ParallelPlan::offload_modules>(
      {OffloadModule::core_attn, OffloadModule::attn_proj});
  const Result<SearchOutcome> pruned = search(r);
  r.exhaustive = true;
  const Result<SearchOutcome> all = search(r);
  REQUIRE(pruned.ok());
  REQUIRE(all.ok());
  REQUIRE(pruned->winner() != nullptr);
  REQUIRE(all->winner() != nullptr);
  CHECK(pruned->winner()->expected().in(kSecond) == Approx(all->winner()->expected().in(kSecond)));
  for (const Candidate& one : pruned->candidates) {
    CHECK(one.plan.offload_modules == r.constraints.values().offload_modules);
    CHECK(one.plan.recompute != Recompute::full);
  }
}
