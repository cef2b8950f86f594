// Activations that wait in host memory (--offload-modules).
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/rates.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"
#include "topologies/description/description.hpp"

using namespace echelon;

namespace {

struct OffloadJob {
  ModelSpec model;
  TrainingJob job;
  ClusterTopology cluster;
  Framework framework = find_framework("megatron-core").value();
  ParallelPlan plan;

  OffloadJob(const char* name, const char* machine, int gpus)
      : model(load_model(name).value()), cluster(ClusterTopology::load(machine, gpus).value()) {
    job.sequence = 4096;
    job.global_batch = 256;
    job.precision = find_precision("bf16").value();
    plan.dp = plan.shard_group = gpus;
    plan.zero = 1;
    plan.layers_per_stage = {model.layers};
    plan.recompute_layers = {0};
  }
  [[nodiscard]] Calibration calibration() const {
    return pick_calibration(cluster.gpu(), framework).value();
  }
  [[nodiscard]] CostModel cost_model() const {
    return {model, job, cluster, framework, calibration()};
  }
  /// Bytes per token that a layer's modules move.
  [[nodiscard]] double moved(LayerKind kind, OffloadModules modules,
                             RecomputeModules dropped = {}) const {
    const ShardingCosts costs = cost_model().sharding_costs(sharding_of(plan));
    return offloaded_bytes(costs.of(kind), modules, dropped).in(kByte) / 4096;
  }
  [[nodiscard]] PlanCosts priced(OffloadModules modules) const {
    ParallelPlan offloaded = plan;
    offloaded.offload_modules = modules;
    return cost_model().price(offloaded);
  }
};

/// DeepSeek-V3 on 256 GB200, PP 4, VPP 4, EP 64, as in its published anatomy.
OffloadJob deepseek() {
  OffloadJob j("deepseek-v3", "gb200-nvl72", 288);
  j.cluster = j.cluster.resized(256).value();
  j.job.global_batch = 2048;
  j.plan.pp = j.plan.vpp = 4;
  j.plan.schedule = ScheduleKind::interleaved;
  j.plan.microbatch_group = 4;
  j.plan.overlap_pp = true;
  j.plan.dp = j.plan.ep = j.plan.shard_group = 64;
  j.plan.dispatcher = Dispatcher::hybridep;
  j.plan.layers_per_stage = {15, 15, 16, 15};
  j.plan.recompute_layers.assign(4, 0);
  return j;
}

}  // namespace

TEST_CASE("each module moves what it saves, tensor by tensor") {
  using enum OffloadModule;
  SECTION("latent attention and experts") {
    const OffloadJob j = deepseek();
    const auto moved = [&](OffloadModules modules) { return j.moved(LayerKind::moe, modules); };
    const double h = 7168, latents = 1536 + 512, rope = 64;
    CHECK(moved({attn_norm}) == Approx(2 * h));
    CHECK(moved({qkv_linear}) == Approx(2 * h + 2 * (latents + rope) + 2 * latents));
    CHECK(moved({core_attn}) == Approx(2 * 128 * (2 * 192 + 128.0)));
    CHECK(moved({attn_proj}) == Approx(2 * 128 * 128.0));
    CHECK(moved({mlp_norm}) == Approx(2 * h));
    CHECK(moved({expert_fc1}) == Approx(2 * 8 * h));
    CHECK(moved({moe_act}) == Approx(4 * 8 * 2048.0));
    CHECK(moved({core_attn, moe_act}) == Approx(moved({core_attn}) + moved({moe_act})));
    CHECK(j.moved(LayerKind::dense, {mlp_norm, expert_fc1, moe_act}) == 0);
  }
  SECTION("a dense layer, whose norms are fused into the projections") {
    const OffloadJob j("llama3-8b", "dgx-h100", 8);
    const auto moved = [&](OffloadModules modules) { return j.moved(LayerKind::dense, modules); };
    CHECK(moved({attn_norm, mlp_norm}) == 0);
    CHECK(moved({qkv_linear}) == Approx(4 * 4096.0));
    CHECK(moved({core_attn}) == Approx(2 * (4096 + 2 * 1024.0)));
    CHECK(moved({attn_proj}) == Approx(2 * 4096.0));
  }
}

TEST_CASE("what recomputation drops is not moved") {
  using enum OffloadModule;
  const OffloadJob j = deepseek();
  CHECK(j.moved(LayerKind::moe, {core_attn}, {RecomputeModule::mla_up_proj}) == 0);
  CHECK(j.moved(LayerKind::moe, {moe_act}, {RecomputeModule::moe_act}) ==
        j.moved(LayerKind::moe, {moe_act}));
}

TEST_CASE("activations fall by what is moved, but for two layers") {
  using enum OffloadModule;
  const OffloadJob j("llama3-8b", "dgx-h100", 8);
  const MemoryBreakdown all = j.priced({}).memory.stages[0];
  const MemoryBreakdown some = j.priced({core_attn, attn_proj}).memory.stages[0];
  const double layer = 4096 * j.moved(LayerKind::dense, {core_attn, attn_proj});
  CHECK((all.activations - some.activations).in(kByte) == Approx(32 * layer));
  CHECK((some.workspace - all.workspace).in(kByte) == Approx(2 * layer));
  CHECK(some.weights == all.weights);
}

TEST_CASE("copies cost memory bandwidth where they hide, and time where the link is too slow") {
  using enum OffloadModule;
  OffloadJob j("llama3-8b", "dgx-h100", 8);
  const OffloadModules modules{core_attn};
  const Bytes layer{4096 * j.moved(LayerKind::dense, modules)};
  const double passes = 32.0 * 256 / 8;  // layers x microbatches of a rank
  const auto longer = [&] { return j.priced(modules).time.step - j.priced({}).time.step; };
  const BytesPerSecond memory = device_rates(j.cluster.gpu(), j.calibration(), Dtype::bf16).memory;
  CHECK(longer().in(kSecond) == Approx(2 * passes * (layer / memory).in(kSecond)).epsilon(1e-6));
  CHECK(j.priced(modules).time.parts.host > j.priced({}).time.parts.host);

  MachineDescription machine = j.cluster.machine();
  machine.pcie.gpu_link = machine.pcie.switch_uplink = 1_GBps;
  j.cluster = ClusterTopology::of(machine, 8).value();
  const PlanCosts without = j.priced({});
  const double links =
      2 * passes * (layer / (j.calibration().link_efficiency * 1_GBps)).in(kSecond);
  const double pass = without.time.parts.compute.in(kSecond);
  CHECK(longer().in(kSecond) > links - pass);
  CHECK(longer().in(kSecond) < links);
}

TEST_CASE("GPUs of a PCIe switch share its uplink, those of a Grace CPU its memory") {
  CHECK(ClusterTopology::load("gb200-nvl72", 72)->host_link() == 256_GBps);
  MachineDescription machine = ClusterTopology::load("dgx-h100", 8)->machine();
  machine.pcie.gpu_link = 50_GBps;
  machine.pcie.switch_uplink = 60_GBps;
  for (std::optional<int>& at : machine.pcie.gpu_switch) at = 0;
  machine.pcie.gpu_switch.back() = std::nullopt;
  CHECK(ClusterTopology::of(machine, 8)->host_link().in(1_GBps) == Approx(60.0 / 7));
  for (std::optional<int>& at : machine.pcie.gpu_switch) at = std::nullopt;
  CHECK(ClusterTopology::of(machine, 8)->host_link() == 50_GBps);
}

// Published of DeepSeek-V3 and models like it: 10 to 18 % of memory for 1.6 to 2 % of time
// (Megatron-Core MoE report, arXiv 2603.07685, as retold in jianyuh.github.io 7138518).
TEST_CASE("offload frees a tenth of DeepSeek-V3's memory for a hundredth or two of its time") {
  using enum OffloadModule;
  const OffloadJob j = deepseek();
  const PlanCosts all = j.priced({});
  for (const OffloadModules& modules :
       {OffloadModules{expert_fc1}, OffloadModules{core_attn, attn_proj},
        OffloadModules{moe_act, core_attn, attn_proj}}) {
    const PlanCosts some = j.priced(modules);
    const double freed = 1 - some.memory.peak / all.memory.peak;
    const double slower = some.time.step / all.time.step - 1;
    CAPTURE(text_of(modules), freed, slower);
    CHECK(freed > 0.08);
    CHECK(freed < 0.32);
    CHECK(slower > 0.004);
    CHECK(slower < 0.03);
  }
}

TEST_CASE("a host that launches slowly waits for two launches per offloaded tensor and pass") {
  OffloadJob j("llama3-8b", "dgx-h100", 8);
  Calibration slow = j.calibration();
  slow.host_layer_forward = slow.host_layer_backward = Seconds{1};  // more than any pass takes
  slow.host_experts = Seconds{100e-3};                              // 1 ms per launch
  const CostModel cost_model(j.model, j.job, j.cluster, j.framework, slow);
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(j.plan));
  const auto layer = [&](OffloadModules modules) {
    ParallelPlan plan = j.plan;
    plan.offload_modules = modules;
    const StageTimes t = StageModel(cost_model, plan, costs).times({.index = 0, .layers = {1, 0}});
    return t.forward + t.backward;
  };
  using enum OffloadModule;
  const Seconds added = layer({core_attn, attn_proj}) - layer({});
  // attention's inputs and output, forward and backward; the copies themselves hide in the wait
  CHECK(added.in(1_ms) == Approx(2 * 2 * 2).epsilon(0.1));
}
