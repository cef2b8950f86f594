// Single terms of a stage's time: boundary messages, late ranks, accumulated gradients.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/rates.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct TermCase {
  ModelSpec model = load_model("7b").value();
  ClusterTopology cluster = ClusterTopology::load("dgx-h100", 64).value();
  Framework framework;
  TrainingJob job;
  Calibration calibration;

  explicit TermCase(const char* name, const char* precision = "bf16")
      : framework(find_framework(name).value()) {
    job.sequence = 2048;
    job.global_batch = 512;
    job.precision = find_precision(precision).value();
    calibration = prior_calibration(cluster.gpu(), framework).value();
  }
  [[nodiscard]] CostModel cost_model() const {
    return {model, job, cluster, framework, calibration};
  }
  [[nodiscard]] ParallelPlan plan(int tp, int pp, int zero) const {
    ParallelPlan p;
    p.tp = tp;
    p.pp = pp;
    p.dp = cluster.gpus() / (tp * pp);
    p.zero = zero;
    p.shard_group = p.dp;
    p.layers_per_stage.assign(static_cast<std::size_t>(pp), model.layers / pp);
    p.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
    return p;
  }
};

/// Of the first layers of a plan, without embedding and head.
template <class F>
auto of_stage_model(const TermCase& c, const ParallelPlan& plan, F f) {
  const CostModel cost_model = c.cost_model();
  const ShardingCosts costs = cost_model.sharding_costs(plan);
  return f(StageModel(cost_model, plan, costs), costs);
}

Seconds hop_of(const TermCase& c, const ParallelPlan& plan) {
  return of_stage_model(c, plan, [](const StageModel& m, const ShardingCosts&) { return m.hop(); });
}

Seconds reduction_of(const TermCase& c, const ParallelPlan& plan) {
  return of_stage_model(c, plan, [&](const StageModel& model, const ShardingCosts&) {
    const Stage stage{.index = 0, .layers = {c.model.layers, 0}};
    return model.reduction(stage, model.times(stage));
  });
}

}  // namespace

TEST_CASE("scattered messages cross the network once and are gathered inside the node") {
  TermCase scatters("megatron-2021");
  scatters.framework.scatters_messages = true;
  const TermCase whole("megatron-core");
  const ParallelPlan plan = scatters.plan(8, 2, 0);
  const ProcessGrid grid(plan);
  const CostModel cost_model = scatters.cost_model();
  const GroupLinks pipe = cost_model.links(grid.group(Axis::pp));
  const Bytes message{2.0 * 2048 * scatters.model.hidden};
  CHECK(hop_of(whole, plan).in(1_us) == Approx(send_receive(message, pipe).in(1_us)));
  CHECK(hop_of(scatters, plan).in(1_us) ==
        Approx((send_receive(message / 8, pipe) +
                all_gather(message, cost_model.links(grid.group(Axis::tp))))
                   .in(1_us)));
  CHECK(hop_of(scatters, plan) < hop_of(whole, plan));
}

TEST_CASE("with sequence parallelism, or one tensor-parallel rank, nothing is scattered") {
  TermCase scatters("megatron-2021");
  scatters.framework.scatters_messages = true;
  const TermCase whole("megatron-core");
  ParallelPlan plan = scatters.plan(8, 2, 0);
  plan.sequence_parallel = true;
  CHECK(hop_of(scatters, plan) == hop_of(whole, plan));
  CHECK(hop_of(scatters, scatters.plan(1, 2, 0)) == hop_of(whole, whole.plan(1, 2, 0)));
}

TEST_CASE("a reduction in DDP or all at once waits for each of its ranks") {
  TermCase c("nanotron", "bf16:nanotron");
  for (const int zero : {0, 1}) {
    c.calibration.dp_rank_latency = Seconds{};
    const Seconds before = reduction_of(c, c.plan(4, 1, zero));
    c.calibration.dp_rank_latency = 300_us;
    CHECK((reduction_of(c, c.plan(4, 1, zero)) - before).in(1_us) == Approx(16 * 300));
  }
  TermCase core("megatron-core");
  const Seconds before = reduction_of(core, core.plan(4, 1, 1));
  core.calibration.dp_rank_latency = 300_us;
  CHECK(reduction_of(core, core.plan(4, 1, 1)) == before);
}

TEST_CASE("a kernel that accumulates gradients takes its bytes, whatever the microbatch") {
  // The backward's own gradient of 2 bytes, added to one of `main` bytes: bytes per parameter.
  for (const auto& [main, bytes] : {std::pair{4.0, 2 + 4 + 4}, std::pair{0.0, 2 + 2 + 2}}) {
    TermCase fused("megatron-core");
    fused.calibration.kernel_fixed = Seconds{};
    TermCase apart = fused;
    apart.job.precision.gradient = 2;
    apart.job.precision.main_gradient = main;
    const ShardingCosts costs = fused.cost_model().sharding_costs(fused.plan(4, 1, 0));
    const DeviceRates rates =
        device_rates(fused.cluster.gpu(), fused.calibration, fused.job.precision.compute);
    const Seconds pass = Bytes{bytes * costs.dense.parameters} / rates.memory;
    for (const int microbatch : {2, 8}) {
      ParallelPlan plan = fused.plan(4, 1, 0);
      plan.microbatch = microbatch;
      const Seconds extra = apart.cost_model().sharding_costs(plan).dense.backward.device -
                            fused.cost_model().sharding_costs(plan).dense.backward.device;
      CHECK(extra.in(1_us) == Approx(pass.in(1_us)).epsilon(0.001));
    }
  }
}

// Twice the microbatches double what is reduced in each of them, and leave one reduction one.
TEST_CASE("FSDP reduces in every microbatch without a pipeline, and once with one") {
  TermCase c("torchtitan", "bf16:fsdp-fp32-shards");
  c.calibration.dp_overlap = 0;
  const auto exposed = [&](int pp, int zero) {
    ParallelPlan plan = c.plan(8, pp, zero);
    plan.sequence_parallel = true;
    return of_stage_model(c, plan, [&](const StageModel& m, const ShardingCosts&) {
      return m.times({.index = pp - 1, .layers = {c.model.layers / pp, 0}}).exposed[Axis::dp];
    });
  };
  const auto reduction = [&](int pp, int zero) {
    ParallelPlan plan = c.plan(8, pp, zero);
    plan.sequence_parallel = true;
    return of_stage_model(c, plan, [&](const StageModel& m, const ShardingCosts&) {
      const Stage stage{.index = pp - 1, .layers = {c.model.layers / pp, 0}};
      return m.reduction(stage, m.times(stage));
    });
  };
  CHECK(exposed(1, 2) > 0_us);
  CHECK(reduction(1, 2) == 0_us);
  CHECK(exposed(2, 2) == 0_us);
  CHECK(reduction(2, 2) > 0_us);
  // One gather of the weights per microbatch instead of two; half the layers on a stage.
  c.framework.reduces_once_in_pipeline = false;
  const Seconds each = exposed(2, 3) - exposed(2, 2);
  c.framework.reduces_once_in_pipeline = true;
  CHECK(exposed(2, 3) / each == Approx(0.5));
  CHECK(reduction(2, 3) == reduction(2, 2));
}
