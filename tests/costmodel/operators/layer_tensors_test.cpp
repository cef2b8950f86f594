// What Megatron-Core with TransformerEngine keeps, tensor by tensor, and the published anatomy of
// DeepSeek-V3 on 256 GPUs: PP 4, VPP 4, EP 64, microbatches of one sequence of 4,096 tokens.
// Source of the figures: Megatron-Core MoE report, arXiv 2603.07685, as retold in jianyuh.github.io
// 7138518, _posts/2026-03-11-MoE-Megatron.md: 131.0 GiB of activations in bf16 with the older
// permutation, 26.3 less without the experts' output, about 16 less in fp8, 30.4 + 3.8 + 8.2 less
// with three recomputed modules; 36.4 of weights and gradients, 32.1 of the optimizer. They are
// those of rank 2, which holds 15 chunks of 4 layers in flight.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct Anatomy {
  ModelSpec model = load_model("deepseek-v3").value();
  TrainingJob job;
  ClusterTopology cluster = ClusterTopology::load("dgx-h100", 256).value();
  Framework framework = find_framework("megatron-core").value();
  ParallelPlan plan;

  explicit Anatomy(const char* precision) {
    job.sequence = 4096;
    job.global_batch = 4096;
    job.precision = find_precision(precision).value();
    plan.pp = plan.vpp = 4;
    plan.schedule = ScheduleKind::interleaved;
    plan.microbatch_group = 4;
    plan.dp = plan.ep = plan.shard_group = 64;
    plan.zero = 1;
    plan.layers_per_stage = {15, 15, 16, 15};
    plan.recompute_layers.assign(4, 0);
  }
  /// Of rank 2.
  [[nodiscard]] MemoryBreakdown memory() const {
    const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
    const CostModel cost_model(model, job, cluster, framework, calibration);
    const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
    MemoryPrediction memory;
    cost_model.price_memory(plan, costs, memory);
    CHECK(memory.contents[2].layers.moe == 16);
    return memory.stages[2];
  }
};

/// Of one layer for a token, in bytes.
double per_token(const ModelSpec& model, const char* precision, LayerSharding sharding,
                 LayerKind kind, double imbalance = 1) {
  TrainingJob job;
  job.sequence = 4096;
  job.global_batch = 64;
  job.precision = find_precision(precision).value();
  job.expert_imbalance = imbalance;
  const Framework framework = find_framework("megatron-core").value();
  return layer_operators(model, job, framework, sharding, kind).saved(Recompute::none).in(kByte) /
         (4096.0 * sharding.microbatch);
}

}  // namespace

TEST_CASE("activations of DeepSeek-V3 are those of the published anatomy") {
  const double tolerance = 0.005;
  SECTION("bf16, the experts' output kept") {
    Anatomy old("bf16");
    old.framework.saves_expert_output = true;
    CHECK(old.memory().activations.in(1_GiB) == Approx(131.2).epsilon(tolerance));
  }
  SECTION("bf16") {
    CHECK(Anatomy("bf16").memory().activations.in(1_GiB) == Approx(104.9).epsilon(tolerance));
  }
  SECTION("fp8: the report's release kept a copy of the shared expert's input, 1 byte wide") {
    const double copy = 60 * 4096.0 * 7168;
    const Bytes activations = Anatomy("fp8").memory().activations + Bytes{copy};
    CHECK(activations.in(1_GiB) == Approx(88.8).epsilon(tolerance));
  }
  SECTION("fp8, three modules recomputed: that copy is gone too") {
    Anatomy anatomy("fp8");
    anatomy.plan.recompute = Recompute::selective;
    anatomy.plan.recompute_modules = {RecomputeModule::mla_up_proj, RecomputeModule::moe_act,
                                      RecomputeModule::layernorm};
    CHECK(anatomy.memory().activations.in(1_GiB) == Approx(46.3).epsilon(tolerance));
  }
}

TEST_CASE("states of DeepSeek-V3 are those of the published anatomy") {
  const MemoryBreakdown memory = Anatomy("bf16").memory();
  CHECK((memory.weights + memory.gradients).in(1_GiB) == Approx(36.4).epsilon(0.005));
  CHECK(memory.optimizer.in(1_GiB) == Approx(32.1).epsilon(0.005));
}

TEST_CASE("a layer of experts behind latent attention keeps these bytes per token") {
  const ModelSpec model = load_model("deepseek-v3").value();
  // Layer input, sum behind attention, input norm: 3·2h. Latents 2(ql + kl + dr), their norms'
  // outputs 2(ql + kl); q, k, v 2n(2dq + dv); output 2·n·dv, log-sum-exp 4n. Router input 2h and
  // 12E; routed 2kh, 4kf, 2kf, 8k; shared 6fs.
  const double attention = 6 * 7168 + 2 * (1536 + 512 + 64) + 2 * (1536 + 512) +
                           2 * 128 * (2 * 192 + 128) + 2 * 128 * 128 + 4 * 128;
  const double experts = 2 * 7168 + 12 * 256 + 8 * (2 * 7168 + 4 * 2048 + 2 * 2048 + 8) + 6 * 2048;
  const LayerSharding one{.ep = 64};
  CHECK(attention + experts == 458'432);
  CHECK(per_token(model, "bf16", one, LayerKind::moe) == Approx(458'432));
  // fp8: of q bytes are two copies of the norm's output, the latents' norms, fc1's and fc2's
  // inputs.
  const auto fp8 = [&](double q) {
    return attention + experts - 2 * 7168 + 2 * q * 7168 - (2 - q) * (1536 + 512) -
           (2 - q) * 8 * (7168 + 2048) - (2 - q) * 2048;
  };
  CHECK(per_token(model, "fp8", one, LayerKind::moe) == Approx(fp8(1)));
  CHECK(per_token(model, "fp8:blockwise", one, LayerKind::moe) == Approx(fp8(1 + 4.0 / 128)));
  CHECK(per_token(model, "mxfp8:bf16-gradients", one, LayerKind::moe) == Approx(fp8(1 + 1.0 / 32)));
  // Tensor parallelism with sequence parallelism divides all of it.
  const LayerSharding two{.tp = 2, .ep = 64, .sequence_parallel = true};
  CHECK(per_token(model, "bf16", two, LayerKind::moe) == Approx(458'432 / 2.0));
}

TEST_CASE("DeepSeek's own framework keeps the inputs of SwiGLU in fp8") {
  // With norms, up projections and the experts' activation recomputed a layer keeps 202,432 bytes
  // per token; of SwiGLU's inputs, 2·2f of 8 experts and a shared one, half as much.
  using enum RecomputeModule;
  const auto kept = [](const char* framework) {
    Anatomy anatomy("fp8");
    anatomy.framework = find_framework(framework).value();
    const Calibration calibration =
        prior_calibration(anatomy.cluster.gpu(), anatomy.framework).value();
    const CostModel cost_model(anatomy.model, anatomy.job, anatomy.cluster, anatomy.framework,
                               calibration);
    const LayerCosts layer = cost_model.sharding_costs(LayerSharding{.ep = 64}).moe;
    const RecomputedPart part =
        selective_part(layer, anatomy.framework, {layernorm, mla_up_proj, moe_act});
    return (layer.saved - part.freed).in(kByte) / anatomy.job.sequence;
  };
  CHECK(kept("megatron-core") == Approx(202'432));
  CHECK(kept("hai-llm") == Approx(202'432 - 9 * 2 * 2048));
}

TEST_CASE("a dense layer keeps half as much of GEMM inputs in fp8, and attention in bf16") {
  const ModelSpec model = load_model("llama3-70b").value();
  const double h = 8192, kv = 1024, f = 28672;
  const auto kept = [&](double q) {
    return 4 * h + 2 * q * h + 2 * (h + 2 * kv) + 2 * h + 4 * 64 + (4 + q) * f;
  };
  CHECK(per_token(model, "bf16", {}, LayerKind::dense) == Approx(kept(2)));
  CHECK(per_token(model, "fp8", {}, LayerKind::dense) == Approx(kept(1)));
}

TEST_CASE("rows of an expert are padded in fp8 and multiplied by the imbalance") {
  ModelSpec model = load_model("deepseek-v3").value();
  const double row = 2 * 7168 + 6 * 2048;  // bf16: fc1's input and output, fc2's input
  const double even = per_token(model, "bf16", {.ep = 64}, LayerKind::moe);
  CHECK(per_token(model, "bf16", {.ep = 64}, LayerKind::moe, 1.25) - even == Approx(2 * row));
  // 4,096 tokens for 8 of 24 experts: 1,365⅓ rows each, of which mxfp8 makes 1,376.
  model.moe.experts = 24;
  const double fp8_row = (1 + 1.0 / 32) * (7168 + 2048) + 4 * 2048;
  TrainingJob job;
  job.sequence = 4096;
  job.global_batch = 64;
  job.precision = find_precision("mxfp8:bf16-gradients").value();
  const Framework framework = find_framework("megatron-core").value();
  const auto saved = [&] {
    return layer_operators(model, job, framework, {}, LayerKind::moe).saved(Recompute::none);
  };
  const Bytes padded = saved();
  job.precision.expert_rows = 1;
  CHECK((padded - saved()).in(kByte) == Approx((24 * 1376 - 8 * 4096) * fp8_row));
}

TEST_CASE("unequal loads lengthen the experts' GEMMs and nothing of attention") {
  const Anatomy anatomy("bf16");
  const Calibration calibration =
      prior_calibration(anatomy.cluster.gpu(), anatomy.framework).value();
  const auto forward = [&](double imbalance, LayerKind kind) {
    TrainingJob job = anatomy.job;
    job.expert_imbalance = imbalance;
    const CostModel cost_model(anatomy.model, job, anatomy.cluster, anatomy.framework, calibration);
    const ShardingCosts costs = cost_model.sharding_costs(LayerSharding{.ep = 64});
    return (kind == LayerKind::moe ? costs.moe : costs.dense).forward.device;
  };
  CHECK(forward(1.5, LayerKind::moe) > 1.1 * forward(1, LayerKind::moe));
  CHECK(forward(1.5, LayerKind::moe) < 1.5 * forward(1, LayerKind::moe));
  CHECK(forward(1.5, LayerKind::dense) == forward(1, LayerKind::dense));
}

TEST_CASE("no rank gets more rows than all ranks of its group have") {
  const ModelSpec model = load_model("deepseek-v3").value();
  const auto of = [&](int ep, double imbalance) {
    return per_token(model, "bf16", {.ep = ep}, LayerKind::moe, imbalance);
  };
  CHECK(of(1, 8) == of(1, 1));
  CHECK(of(2, 8) == of(2, 2));
  CHECK(of(2, 2) > of(2, 1));
}
