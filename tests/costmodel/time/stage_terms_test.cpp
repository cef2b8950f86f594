// Single terms of a stage's time: boundary messages, late ranks, accumulated gradients.
#include "costmodel/time/rates.hpp"
#include "tests/costmodel/time/term_case.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

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

TEST_CASE("a head in slices takes the time of each slice, and adds to its gradient in each") {
  TermCase c("echelon");
  c.calibration.kernel_fixed = Seconds{};
  c.job.sequence = 4096;  // the rows of a slice (core/framework/echelon.cpp)
  const auto head = [&](const TermCase& of, int microbatch) {
    ParallelPlan plan = of.plan(1, 1, 0);
    plan.microbatch = microbatch;
    const ShardingCosts costs = of.cost_model().sharding_costs(plan);
    return costs.head_forward.device + costs.head_backward.device;
  };
  CHECK(head(c, 8).in(1_us) == Approx(8 * head(c, 1).in(1_us)));
  TermCase whole = c;
  whole.framework.loss_rows = 0;
  CHECK(head(whole, 8) < 0.99 * head(c, 8));
}

TEST_CASE("Echelon's backward computes norms and activations again, and sums gradients of biases") {
  for (const char* name : {"7b", "gpt2-xl"}) {
    CAPTURE(name);
    TermCase c("echelon");
    c.model = load_model(name).value();
    c.job.sequence = 1024;
    c.calibration.kernel_fixed = Seconds{};
    TermCase kept = c;
    kept.framework.backward_by_kernels = false;
    const auto backward = [](const TermCase& of) {
      return of.cost_model().sharding_costs(of.plan(1, 1, 0)).dense.backward.device;
    };
    const ModelSpec& m = c.model;
    const double h = static_cast<double>(m.hidden);
    const double f = static_cast<double>(m.ffn_hidden);
    const bool biases = m.mlp_bias;
    CHECK(biases == (name[0] == 'g'));
    const double numbers = 2 * 2 * h + f + (biases ? 3 * h + h + f + h : 0);  // of a token
    const DeviceRates rates = device_rates(c.cluster.gpu(), c.calibration, c.job.precision.compute);
    const Seconds more = Bytes{2 * 1024 * numbers} / rates.memory;
    CHECK((backward(c) - backward(kept)).in(1_us) == Approx(more.in(1_us)).epsilon(0.001));
  }
}

// Twice the microbatches double what is reduced in each of them, and leave one reduction one.
TEST_CASE(
    "FSDP reduces in every microbatch without a pipeline, and once with one or without sync") {
  TermCase c("torchtitan", "bf16:fsdp-fp32-shards");
  c.calibration.dp_overlap = 0;
  c.framework.unit_copies = UnitCopies::none;
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
  // Without synchronisation between microbatches: one reduction, and both gathers.
  const Seconds gathers = exposed(1, 3) - exposed(1, 2);
  c.framework.accumulates_whole = true;
  CHECK(exposed(1, 2) == 0_us);
  CHECK(exposed(1, 3).in(1_us) == Approx(gathers.in(1_us)));
  CHECK(reduction(1, 3) > 0_us);
}

namespace {

/// Of a whole stage of two, the last one.
StageTimes last_stage_of(const TermCase& c, const ParallelPlan& plan) {
  return of_stage_model(c, plan, [&](const StageModel& m, const ShardingCosts&) {
    return m.times({.index = plan.pp - 1, .layers = {c.model.layers / plan.pp, 0}});
  });
}

}  // namespace

// Table of collectives in runtime/model/chunk.hpp: with sequence parallelism two more gathers.
TEST_CASE(
    "gradients of weights apart from those of inputs expose the sums, and gather twice more") {
  TermCase c("echelon");
  for (const bool split : {false, true}) {
    ParallelPlan plan = c.plan(2, 2, 0);
    plan.sequence_parallel = split;
    const CostModel cost_model = c.cost_model();
    const GroupLinks links = cost_model.links(ProcessGrid(plan).group(Axis::tp));
    const Bytes rows{2.0 * c.job.sequence * c.model.hidden};
    const auto more = [&](double share) {
      c.calibration.tp_overlap = share;
      ParallelPlan apart = plan;
      apart.schedule = ScheduleKind::zero_bubble_h1;
      const StageTimes one = last_stage_of(c, plan);
      const StageTimes two = last_stage_of(c, apart);
      CHECK((two.backward - one.backward).in(1_us) ==
            Approx((two.exposed[Axis::tp] - one.exposed[Axis::tp]).in(1_us)));
      return two.exposed[Axis::tp] - one.exposed[Axis::tp];
    };
    const double layers = c.model.layers / 2.0;
    const Seconds gathers = split ? layers * 2 * all_gather(rows, links) : Seconds{};
    const Seconds sums =
        layers * 2 * (split ? reduce_scatter(rows, links) : all_reduce(rows, links));
    CHECK(more(0).in(1_us) == Approx(gathers.in(1_us)).margin(1e-6));
    CHECK(more(1).in(1_us) == Approx(sums.in(1_us)));  // products hide all of the rest
  }
}

TEST_CASE("GPipe's last stage computes the logits again, other schedules once") {
  const TermCase c("echelon");
  ParallelPlan plan = c.plan(4, 2, 0);
  plan.sequence_parallel = true;
  ParallelPlan gpipe = plan;
  gpipe.schedule = ScheduleKind::gpipe;
  const StageTimes once = last_stage_of(c, plan);
  const StageTimes twice = last_stage_of(c, gpipe);
  const double vocab = padded_vocab(c.model, c.framework, 4) / 4.0;
  const double product = 2.0 * c.job.sequence * c.model.hidden * vocab;
  const Seconds fastest = Flops{product} / c.cluster.gpu().peak(Dtype::bf16);
  CHECK(twice.compute - once.compute > fastest);
  CHECK(twice.compute - once.compute < 3 * fastest);
  const GroupLinks links = c.cost_model().links(ProcessGrid(plan).group(Axis::tp));
  CHECK((twice.exposed[Axis::tp] - once.exposed[Axis::tp]).in(1_us) ==
        Approx(all_gather(Bytes{2.0 * c.job.sequence * c.model.hidden}, links).in(1_us)));
  CHECK(twice.forward == once.forward);
  ParallelPlan alone = c.plan(4, 1, 0);
  ParallelPlan alone_gpipe = alone;
  alone_gpipe.schedule = ScheduleKind::gpipe;
  CHECK(last_stage_of(c, alone_gpipe).backward == last_stage_of(c, alone).backward);
}

TEST_CASE("a forward that begins with the first gathered bucket waits for that one at least") {
  TermCase c("echelon");
  c.calibration.dp_overlap = 1;
  c.calibration.overlap_slowdown = 0;
  ParallelPlan plan = c.plan(1, 1, 1);
  plan.microbatch = 16;  // a forward that could hide all of it
  const auto gather = [&] {
    return of_stage_model(c, plan, [&](const StageModel& model, const ShardingCosts&) {
      const Stage stage{.index = 0, .layers = {c.model.layers, 0}};
      return model.gather(stage, model.times(stage));
    });
  };
  const Seconds first = gather();
  c.calibration.dp_overlap = 0;
  CHECK((gather() / first) == Approx(c.model.layers));  // more buckets than layers
  c.calibration.dp_overlap = 1;
  c.framework.awaits_first_gather = false;
  CHECK(gather().in(1_us) == Approx(0).margin(1e-6));
}

TEST_CASE("the host waits of passes that become CUDA graphs vanish, unless they recompute") {
  TermCase c("echelon");
  c.calibration.host_layer_forward = 40_ms;  // far longer than a layer's kernels
  c.calibration.host_layer_backward = 60_ms;
  const auto host_of = [&](const ParallelPlan& plan, double recomputed = 0, double selective = 0,
                           int experts = 0) {
    return of_stage_model(c, plan, [&](const StageModel& model, const ShardingCosts&) {
      Stage stage{.index = 0, .layers = {1, experts}};
      stage.recomputed.dense = static_cast<int>(recomputed);
      stage.selective.dense = static_cast<int>(selective);
      return model.times(stage).host;
    });
  };
  const ParallelPlan alone = c.plan(1, 1, 1);
  CHECK(host_of(alone) < 5_ms);
  CHECK(host_of(c.plan(2, 1, 1)) > 80_ms);
  // The forward is a graph, the backward is not, and with full recomputation repeats a forward.
  CHECK(host_of(alone, 0, 1) > 40_ms);
  CHECK(host_of(alone, 0, 1) < 62_ms);
  CHECK(host_of(alone, 1) > 80_ms);
  CHECK(host_of(alone, 0, 0, 1) > 160_ms);  // a layer waits for the rows of its experts
  c.framework = find_framework("torchtitan").value();
  CHECK(host_of(alone) > 80_ms);
}

TEST_CASE("the host reads how many rows each expert gets, and the GPU waits for it") {
  // Once in a forward, and once more where that is repeated: an exchange's wait where ranks share
  // the experts, the host's otherwise, which launches meanwhile.
  TermCase c("echelon");
  c.model = load_model("mixtral-8x7b").value();
  c.calibration.host_layer_forward = c.calibration.host_layer_backward = Seconds{};
  c.calibration.host_experts = Seconds{};
  const auto longer = [&](int ep, int recomputed) {
    ParallelPlan plan = c.plan(1, 1, 0);
    plan.ep = ep;
    const Stage stage{.index = 0, .layers = {0, 4}, .recomputed = {0, recomputed}};
    const auto times = [&](Seconds wait) {
      c.calibration.host_wait = wait;
      return of_stage_model(
          c, plan, [&](const StageModel& m, const ShardingCosts&) { return m.times(stage); });
    };
    StageTimes more = times(30_us);
    const StageTimes without = times(Seconds{});
    more.forward = more.forward - without.forward;
    more.backward = more.backward - without.backward;
    more.host = more.host - without.host;
    more.exposed[Axis::ep] = more.exposed[Axis::ep] - without.exposed[Axis::ep];
    CHECK(more.compute == without.compute);
    return more;
  };
  CHECK(longer(8, 0).forward.in(1_us) == Approx(4 * 30));
  CHECK(longer(8, 0).backward.in(1_us) == Approx(0).margin(1e-6));
  CHECK(longer(8, 3).backward.in(1_us) == Approx(3 * 30));
  CHECK(longer(8, 3).exposed[Axis::ep].in(1_us) == Approx(7 * 30));
  CHECK(longer(8, 3).host == Seconds{});
  CHECK(longer(1, 3).host.in(1_us) == Approx(7 * 30));
  CHECK(longer(1, 3).exposed[Axis::ep] == Seconds{});
  // A host that is behind anyway needs no longer.
  c.calibration.host_layer_forward = 1000_ms;
  CHECK(longer(1, 0).forward.in(1_us) == Approx(0).margin(1e-6));
  c.framework.awaits_counts = false;
  CHECK(longer(8, 3).forward == Seconds{});
}

// The slowest of 8 nodes: 3 doublings. Nothing else of the step changes with it.
TEST_CASE("waiting for the slowest of many nodes is a part of its own, whatever the degrees are") {
  for (const int pp : {1, 4, 64}) {
    CAPTURE(pp);
    TermCase c("megatron-core");
    c.model.layers = 64;
    const ParallelPlan plan = c.plan(1, pp, 0);
    c.calibration.straggler_per_doubling = 0;
    const TimePrediction without = c.cost_model().price(plan).time;
    c.calibration.straggler_per_doubling = 0.01;
    const TimePrediction with = c.cost_model().price(plan).time;
    CHECK(with.parts.stragglers.in(1_s) == Approx(0.03 * without.step.in(1_s)));
    for (const StepPart& part : kStepParts) {
      if (part.member == &CostBreakdown::stragglers) continue;
      CAPTURE(part.key);
      CHECK(part.of(with.parts) == part.of(without.parts));
    }
    for (const StageTime& stage : with.stages) CHECK(stage.stragglers == with.parts.stragglers);
  }
}
