// Bytes that each recomputed module frees and what the backward repeats, against sums by hand.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

using enum RecomputeModule;

struct Setting {
  ModelSpec model;
  TrainingJob job;
  ClusterTopology cluster = ClusterTopology::load("dgx-h100", 64).value();
  Framework framework = find_framework("megatron-core").value();
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();

  Setting(const char* name, const char* precision) : model(load_model(name).value()) {
    job.sequence = 4096;
    job.global_batch = 64;
    job.precision = find_precision(precision).value();
  }
  [[nodiscard]] RecomputedPart part(LayerKind kind, RecomputeModules modules,
                                    LayerSharding sharding) const {
    const CostModel cost_model(model, job, cluster, framework, calibration);
    const ShardingCosts costs = cost_model.sharding_costs(sharding);
    return selective_part(kind == LayerKind::moe ? costs.moe : costs.dense, framework, modules);
  }
  [[nodiscard]] double freed(LayerKind kind, RecomputeModules modules,
                             LayerSharding sharding = {.ep = 8}) const {
    return part(kind, modules, sharding).freed.in(kByte) / 4096;
  }
  [[nodiscard]] LayerCosts costs(LayerKind kind, LayerSharding sharding = {.ep = 8}) const {
    const CostModel cost_model(model, job, cluster, framework, calibration);
    const ShardingCosts all = cost_model.sharding_costs(sharding);
    return kind == LayerKind::moe ? all.moe : all.dense;
  }
};

}  // namespace

TEST_CASE("modules of DeepSeek-V3 free these bytes per token and layer") {
  // q: bytes of an element of a GEMM's kept input.
  for (const auto& [precision, q] : {std::pair{"bf16", 2.0}, std::pair{"fp8", 1.0}}) {
    CAPTURE(precision);
    const Setting s("deepseek-v3", precision);
    const auto experts = [&](RecomputeModules modules) { return s.freed(LayerKind::moe, modules); };
    CHECK(experts({mla_up_proj}) == Approx(2 * 128 * 512 + q * 2048));
    CHECK(experts({moe_act}) == Approx(q * 8 * 2048));
    // Input norm (in fp8 a copy for each down projection), and the router's input.
    CHECK(experts({layernorm}) == Approx(2 * 7168 + 2 * 7168));
    CHECK(experts({shared_experts}) == Approx((4 + q) * 2048));
    CHECK(experts({core_attn}) == Approx(4 * 128));  // log-sum-exp alone
    CHECK(experts({mlp}) == 0);
    const double routed = 8 * (q * 7168 + 4 * 2048 + q * 2048 + 8) + 12 * 256;
    CHECK(experts({moe}) == Approx(routed + (4 + q) * 2048));
    const auto dense = [&](RecomputeModules modules) { return s.freed(LayerKind::dense, modules); };
    CHECK(dense({moe, moe_act, shared_experts}) == 0);
    CHECK(dense({layernorm}) == Approx(2 * 7168));  // that before the MLP is fused
    CHECK(dense({mlp}) == Approx(q * 7168 + (4 + q) * 18432));
  }
}

TEST_CASE("layernorm has no effect on dense layers with grouped-query attention") {
  const Setting s("llama3-70b", "bf16");
  const RecomputedPart part = s.part(LayerKind::dense, {layernorm}, {});
  CHECK(part.freed == Bytes{});
  CHECK(part.repeated.total() == Seconds{});
  CHECK(s.freed(LayerKind::dense, {mlp}, {}) == Approx(2 * 8192 + 6 * 28672));
  // Of a layer of experts the router's norm is a kernel of its own, that before attention is not.
  const Setting mixture("qwen3-235b", "bf16");
  CHECK(mixture.freed(LayerKind::moe, {layernorm}) == Approx(2 * mixture.model.hidden));
}

TEST_CASE("moe holds moe_act and shared_experts, other modules add up") {
  const Setting s("deepseek-v3", "bf16");
  const auto freed = [&](RecomputeModules modules) { return s.freed(LayerKind::moe, modules); };
  CHECK(freed({moe, moe_act, shared_experts}) == freed({moe}));
  CHECK(freed({moe, layernorm, mla_up_proj}) ==
        Approx(freed({moe}) + freed({layernorm}) + freed({mla_up_proj})));
  // All of them leave the layer's input, the sum behind attention, latents and attention's output.
  CHECK(s.costs(LayerKind::moe).saved.in(kByte) / 4096 -
            freed({core_attn, layernorm, mla_up_proj, moe}) ==
        Approx(4 * 7168 + 2 * 2112 + 2 * 128 * 128));
}

TEST_CASE("moe repeats router, experts and both all-to-alls, moe_act one kernel") {
  const Setting s("deepseek-v3", "bf16");
  const LayerSharding spread{.ep = 64};
  const LayerCosts layer = s.costs(LayerKind::moe, spread);
  const RecomputedPart whole = s.part(LayerKind::moe, {moe}, spread);
  CHECK(whole.repeated.exposed[Axis::ep].in(1_s) ==
        Approx(layer.forward.exposed[Axis::ep].in(1_s)));
  CHECK(whole.repeated.device < layer.forward.device);
  const RecomputedPart activation = s.part(LayerKind::moe, {moe_act}, spread);
  CHECK(activation.repeated.exposed[Axis::ep] == Seconds{});
  CHECK(activation.repeated.device > Seconds{});
  CHECK(activation.repeated.device < 0.1 * layer.forward.device);
}

TEST_CASE("mla_up_proj repeats the up projections and nothing between GPUs without tp") {
  // 2·n(ql·dq + kl(dn + dv)) = 109 MFLOP per token, 9 % of the layer's linear forward.
  const Setting s("deepseek-v3", "bf16");
  const RecomputedPart part = s.part(LayerKind::moe, {mla_up_proj}, {.ep = 8});
  const LayerCosts layer = s.costs(LayerKind::moe);
  CHECK(part.repeated.total() == part.repeated.device);
  const double flops = 4096 * 2.0 * 128 * (1536 * 192 + 512 * (128 + 128));
  CHECK(flops / 4096 == Approx(109e6).epsilon(0.01));
  CHECK(part.repeated.device > Seconds{flops / 989e12});
  CHECK(part.repeated.device < 0.25 * layer.forward.device);
  // With sequence parallelism the latents are gathered once more.
  const LayerSharding split{.tp = 2, .ep = 8, .sequence_parallel = true};
  CHECK(s.part(LayerKind::moe, {mla_up_proj}, split).repeated.exposed[Axis::tp] > Seconds{});
}

TEST_CASE("core_attn repeats attention with its communication, and is the default") {
  Setting s("llama3-70b", "bf16");
  s.job.flash_attention = false;
  const RecomputedPart named = s.part(LayerKind::dense, {core_attn}, {});
  const RecomputedPart none_named = s.part(LayerKind::dense, {}, {});
  CHECK(named.freed == none_named.freed);
  CHECK(named.repeated.device == none_named.repeated.device);
  // Softmax and, without dropout, nothing else: 2·n·s.
  CHECK(named.freed.in(kByte) / 4096 == Approx(2.0 * 64 * 4096));
  Setting ulysses("llama3-70b", "bf16");
  const LayerSharding split{.cp = 4, .cp_comm = CpComm::all_to_all};
  CHECK(ulysses.part(LayerKind::dense, {core_attn}, split).repeated.exposed[Axis::cp] > Seconds{});
}

TEST_CASE("a stage keeps less, takes longer and holds one layer's recomputed tensors") {
  const Setting s("deepseek-v3", "bf16");
  const CostModel cost_model(s.model, s.job, s.cluster, s.framework, s.calibration);
  ParallelPlan plan;
  plan.pp = 4;
  plan.dp = plan.ep = plan.shard_group = 16;
  plan.zero = 1;
  plan.layers_per_stage = {15, 15, 16, 15};
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
  const Stage kept{.index = 2, .layers = {0, 16}};
  Stage again = kept;
  again.selective = again.layers;
  const StageModel before(cost_model, plan, costs);
  plan.recompute = Recompute::selective;
  plan.recompute_modules = {mla_up_proj};
  const StageModel after(cost_model, plan, costs);
  const RecomputedPart part = selective_part(costs.moe, s.framework, plan.recompute_modules);
  const MemoryBreakdown all = before.memory(kept);
  const MemoryBreakdown less = after.memory(again);
  // The batch has 4 microbatches, of which stage 2 of 4 holds two.
  CHECK((all.activations - less.activations).in(kByte) == Approx(2 * 16 * part.freed.in(kByte)));
  CHECK((less.workspace - all.workspace).in(kByte) == Approx(part.freed.in(kByte)));
  CHECK((after.times(again).total() - before.times(kept).total()).in(1_s) ==
        Approx(16 * part.repeated.total().in(1_s)));
}
