// Memory and time of whole plans: closed forms of the papers, and physical invariants.
#include "costmodel/cost_model.hpp"

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct Setup {
  ModelSpec model;
  TrainingJob job;
  ClusterTopology cluster;
  Framework framework;
  Calibration calibration;
  [[nodiscard]] CostModel cost_model() const {
    return {model, job, cluster, framework, calibration};
  }
};

Setup setup(const char* model, const char* cluster, int gpus, const char* precision = "bf16",
            const char* framework = "megatron-core") {
  Setup s{load_model(model).value(),
          {},
          ClusterTopology::load(cluster, gpus).value(),
          find_framework(framework).value(),
          {}};
  s.job.sequence = 2048;
  s.job.global_batch = 512;
  s.job.precision = find_precision(precision).value();
  s.calibration = prior_calibration(s.cluster.gpu(), s.framework).value();
  return s;
}

ParallelPlan plan(const Setup& s, int tp, int pp, int zero = 1) {
  ParallelPlan p;
  p.tp = tp;
  p.pp = pp;
  p.dp = s.cluster.gpus() / (tp * pp);
  p.zero = p.dp > 1 ? zero : 0;
  p.shard_group = p.dp;
  p.sequence_parallel = tp > 1;
  p.layers_per_stage.assign(static_cast<std::size_t>(pp), s.model.layers / pp);
  p.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
  return p;
}

double states(const MemoryBreakdown& m) {
  return (m.weights + m.gradients + m.optimizer).in(kByte);
}

/// Parameters on one rank of an unsharded, unpadded GPT-like model.
double padded_parameters(const Setup& s) {
  return static_cast<double>(s.model.parameters()) +
         (padded_vocab(s.model, s.framework, 1) - s.model.vocab) * s.model.hidden *
             (s.model.tied_embeddings ? 1 : 2);
}

}  // namespace

TEST_CASE(
    "model states follow the ZeRO paper: 16, 4 + 12/N, 2 + 14/N and 16/N bytes per parameter") {
  const Setup s = setup("7b", "dgx-a100", 64, "bf16:deepspeed-zero", "deepspeed");
  const double p = padded_parameters(s);
  const double n = 64;
  const double expected[] = {16 * p, (4 + 12 / n) * p, (2 + 14 / n) * p, 16 / n * p};
  for (const int zero : {0, 1, 2, 3}) {
    const PlanCosts out = s.cost_model().price(plan(s, 1, 1, zero));
    CHECK(states(out.memory.stages[0]) == Approx(expected[zero]).epsilon(1e-9));
  }
}

TEST_CASE(
    "the textbook recipe holds 12 bytes per parameter, Megatron's 18 and 6 + 12/d, nanotron's 20") {
  const auto per_parameter = [](const Setup& s, int zero) {
    return states(s.cost_model().price(plan(s, 1, 1, zero)).memory.stages[0]) /
           padded_parameters(s);
  };
  const auto exactly = [](double bytes) { return Approx(bytes).epsilon(1e-9); };
  CHECK(per_parameter(setup("7b", "dgx-h100", 8, "bf16:textbook"), 0) == exactly(12));
  const Setup megatron = setup("7b", "dgx-h100", 8);
  CHECK(per_parameter(megatron, 0) == exactly(18));
  CHECK(per_parameter(megatron, 1) == exactly(6 + 12.0 / 8));
  // FSDP that does not reshard keeps the shards, which are the master, and whole weights.
  CHECK(per_parameter(setup("7b", "dgx-h100", 8, "bf16:pure", "torchtitan"), 2) ==
        exactly(2 + 8.0 / 8));
  CHECK(per_parameter(setup("7b", "dgx-h100", 8, "bf16:nanotron", "nanotron"), 0) == exactly(20));
}

TEST_CASE("FSDP shards 16 bytes per parameter over the group") {
  const Setup s = setup("7b", "dgx-h100", 8, "bf16:fsdp-fp32-shards", "torchtitan");
  CHECK(states(s.cost_model().price(plan(s, 1, 1, 3)).memory.stages[0]) ==
        Approx(16.0 / 8 * padded_parameters(s)).epsilon(1e-9));
}

TEST_CASE("an update reads weights that have no master: 18 bytes instead of 20 with one") {
  Setup s = setup("7b", "dgx-h100", 1, "bf16:pure", "torchtitan");
  const auto update = [&] { return s.cost_model().price(plan(s, 1, 1, 0)).time.parts.optimizer; };
  const Seconds alone = update();  // gradients 6, moments 8, weights 2 + 2
  s.job.precision.master = 2;
  CHECK(alone / update() == Approx(18.0 / 20).epsilon(1e-3));
}

TEST_CASE("eight-bit and bf16 optimizer states are smaller than fp32 ones") {
  const auto optimizer = [](const char* recipe) {
    const Setup s = setup("7b", "dgx-h100", 8, recipe);
    return s.cost_model().price(plan(s, 1, 1, 1)).memory.stages[0].optimizer;
  };
  CHECK(optimizer("bf16:adam-8bit") < optimizer("bf16:adam-bf16-states"));
  CHECK(optimizer("bf16:adam-bf16-states") < optimizer("bf16:adam-fp32-master"));
}

TEST_CASE("the stages' parameters sum to the model's, tied embeddings counted twice") {
  for (const char* name : {"7b", "gpt2-xl", "llama3-8b"}) {
    const Setup s = setup(name, "dgx-h100", 8);
    const PlanCosts out = s.cost_model().price(plan(s, 1, 4));
    double weights = 0;
    for (const MemoryBreakdown& stage : out.memory.stages) weights += stage.weights.in(kByte);
    const double copy =
        s.model.tied_embeddings ? padded_vocab(s.model, s.framework, 1) * s.model.hidden : 0.0;
    CHECK(weights / 2 == Approx(padded_parameters(s) + copy).epsilon(1e-9));
  }
}

TEST_CASE("1F1B keeps p - s microbatches of activations on stage s") {
  const Setup s = setup("gpt3-175b", "dgx-a100", 64);
  const ParallelPlan p = plan(s, 8, 8);
  const PlanCosts out = s.cost_model().price(p);
  const double layers = 96.0 / 8;
  const Bytes layer = s.cost_model().sharding_costs(sharding_of(p)).dense.saved;
  for (const int stage : {1, 4, 6}) {
    CHECK(out.memory.stages[static_cast<std::size_t>(stage)].activations.in(kByte) ==
          Approx((8 - stage) * layers * layer.in(kByte)));
  }
}

TEST_CASE("full recomputation keeps one input per layer and runs one more forward") {
  const Setup s = setup("gpt3-175b", "dgx-a100", 64);
  ParallelPlan p = plan(s, 8, 8);
  const PlanCosts none = s.cost_model().price(p);
  p.recompute = Recompute::full;
  p.recompute_layers.assign(8, 12);
  const PlanCosts full = s.cost_model().price(p);
  const double input = 2.0 * 2048 * 12288 / 8;
  CHECK(full.memory.stages[4].activations.in(kByte) == Approx(4 * 12 * input));
  CHECK(none.time.parts.recompute == Seconds{});
  const double m = static_cast<double>(p.microbatches_rounded_up(s.job.global_batch));
  const ShardingCosts costs = s.cost_model().sharding_costs(sharding_of(p));
  CHECK(full.time.parts.recompute.in(1_s) == Approx(m * 12 * costs.dense.forward.device.in(1_s)));
}

TEST_CASE("recomputing some layers lies between none and all, in memory and in time") {
  const Setup s = setup("70b", "dgx-h100", 64);
  ParallelPlan p = plan(s, 8, 4);
  p.recompute = Recompute::full;
  Bytes last_memory{1e18};
  Seconds last_time;
  for (const int k : {0, 5, 10, 20}) {
    p.recompute_layers.assign(4, k);
    const PlanCosts out = s.cost_model().price(p);
    CHECK(out.memory.stages[1].activations < last_memory);
    CHECK(out.time.step > last_time);
    last_memory = out.memory.stages[1].activations;
    last_time = out.time.step;
  }
}

TEST_CASE(
    "materialised attention can be freed by selective recomputation, flash attention has nothing "
    "to free") {
  Setup s = setup("gpt3-175b", "dgx-a100", 64);
  const ParallelPlan none = plan(s, 8, 8);
  ParallelPlan selective = none;
  selective.recompute = Recompute::selective;
  s.job.flash_attention = false;
  const double freed = s.cost_model().price(selective).memory.stages[0].activations /
                       s.cost_model().price(none).memory.stages[0].activations;
  CHECK(freed < 0.45);  // 34 of 34 + 5as/h = 114 bytes
  s.job.flash_attention = true;
  CHECK(s.cost_model().price(selective).memory.stages[0].activations /
            s.cost_model().price(none).memory.stages[0].activations >
        0.98);
}

TEST_CASE("ZeRO never raises the memory of model states") {
  const Setup s = setup("7b", "dgx-h100", 64);
  double last = 1e18;
  for (const int zero : {0, 1, 2, 3}) {
    const double now = states(s.cost_model().price(plan(s, 1, 1, zero)).memory.stages[0]);
    CHECK(now <= last);
    last = now;
  }
}

TEST_CASE(
    "parts of a stage sum to its total, parts of time to the step, and the band holds the step") {
  for (const char* name : {"7b", "70b", "gpt3-175b"}) {
    const Setup s = setup(name, "dgx-h100", 64);
    const PlanCosts out = s.cost_model().price(plan(s, 8, 8));
    for (const MemoryBreakdown& m : out.memory.stages) {
      CHECK(m.total().in(kByte) == Approx((m.weights + m.gradients + m.optimizer + m.activations +
                                           m.workspace + m.communication + m.context)
                                              .in(kByte)));
      CHECK(m.total() <= out.memory.peak);
    }
    CHECK(out.memory.peak_reserved >= out.memory.peak);
    CHECK(out.time.step == out.time.parts.total());
    CHECK(out.time.low < out.time.step);
    CHECK(out.time.step < out.time.high);
    CHECK(out.evidence == Evidence::extrapolated);
  }
}

TEST_CASE("one GPU has no communication and no bubble") {
  const Setup s = setup("gpt2-xl", "dgx-h100", 1);
  const CostBreakdown t = s.cost_model().price(plan(s, 1, 1)).time.parts;
  CHECK(t.exposed[Axis::tp] == Seconds{});
  CHECK(t.exposed[Axis::dp] == Seconds{});
  CHECK(t.exposed[Axis::pp] == Seconds{});
  CHECK(t.bubble() == Seconds{});
  CHECK(t.compute > Seconds{});
  CHECK(t.optimizer > Seconds{});
}

TEST_CASE("the bubble of equal stages is (p - 1)/m of their work") {
  Setup s = setup("gpt3-175b", "dgx-h100", 64);
  s.model.vocab = 128;  // a head of negligible cost: the stages are almost equal
  const ParallelPlan p = plan(s, 1, 8);
  const CostBreakdown t = s.cost_model().price(p).time.parts;
  const Seconds busy = t.compute + t.exposed[Axis::tp] + t.host - s.calibration.step_fixed;
  const double m = static_cast<double>(p.microbatches_rounded_up(s.job.global_batch));
  CHECK(t.bubble() / busy == Approx(7.0 / m).epsilon(0.1));
}

TEST_CASE("interleaving shrinks the bubble and costs memory") {
  Setup s = setup("gpt3-175b", "dgx-h100", 64);
  s.model.vocab = 128;
  const ParallelPlan plain = plan(s, 1, 8);
  ParallelPlan chunks = plain;
  chunks.vpp = 3;
  chunks.schedule = ScheduleKind::interleaved;
  chunks.overlap_pp = true;
  const PlanCosts a = s.cost_model().price(plain);
  const PlanCosts b = s.cost_model().price(chunks);
  CHECK(b.time.parts.bubble() < a.time.parts.bubble() * 0.5);
  CHECK(b.memory.stages[0].activations > a.memory.stages[0].activations);
}

TEST_CASE("GPipe takes the time of 1F1B and the memory of every microbatch") {
  const Setup s = setup("7b", "dgx-h100", 64);
  const ParallelPlan one = plan(s, 1, 8);
  ParallelPlan all = one;
  all.schedule = ScheduleKind::gpipe;
  const PlanCosts a = s.cost_model().price(one);
  const PlanCosts b = s.cost_model().price(all);
  CHECK(a.time.step == b.time.step);
  CHECK(b.memory.stages[0].activations / a.memory.stages[0].activations == Approx(64.0 / 8));
}

TEST_CASE("more network, more compute and more HBM are never slower") {
  const Setup base = setup("70b", "dgx-h100", 64);
  const auto step = [&](auto change, int tp, int pp) {
    Setup s = base;
    change(s);
    return s.cost_model().price(plan(s, tp, pp)).time.step;
  };
  for (const auto& [tp, pp] :
       {std::pair{8, 4}, std::pair{4, 8}, std::pair{8, 8}, std::pair{1, 1}}) {
    const Seconds now = step([](Setup&) {}, tp, pp);
    CHECK(step([](Setup& s) { s.calibration.nic_efficiency *= 1.1; }, tp, pp) <= now);
    CHECK(step([](Setup& s) { s.calibration.link_efficiency *= 1.1; }, tp, pp) <= now);
    CHECK(step([](Setup& s) { s.calibration.gemm_efficiency *= 1.1; }, tp, pp) <= now);
    CHECK(step([](Setup& s) { s.calibration.memory_efficiency *= 1.1; }, tp, pp) <= now);
    CHECK(step([](Setup& s) { s.calibration.inter_hop *= 0.5; }, tp, pp) <= now);
    CHECK(step([](Setup& s) { s.calibration.host_layer_forward *= 0.5; }, tp, pp) <= now);
  }
}

TEST_CASE("overlap hides gradient reduction, but never the last bucket") {
  const Setup s = setup("7b", "dgx-h100", 64);
  ParallelPlan p = plan(s, 1, 1, 1);
  const Seconds hidden = s.cost_model().price(p).time.parts.exposed[Axis::dp];
  p.overlap_dp = false;
  const Seconds exposed = s.cost_model().price(p).time.parts.exposed[Axis::dp];
  CHECK(hidden < exposed);
  CHECK(hidden > Seconds{});
}

TEST_CASE("ZeRO-3 gathers the weights twice per microbatch: it pays with many microbatches") {
  Setup s = setup("7b", "dgx-h100", 64);
  s.job.global_batch = 64 * 16;
  ParallelPlan p = plan(s, 1, 1, 3);
  p.overlap_dp = false;
  const PlanCosts out = s.cost_model().price(p);
  const ShardingCosts costs = s.cost_model().sharding_costs(sharding_of(p));
  const GroupLinks links = apply(s.cluster.group({64, 1}), s.calibration);
  const double gathers = all_gather(Bytes{2 * costs.dense.parameters}, links).in(1_s);
  CHECK(out.time.parts.exposed[Axis::dp].in(1_s) > 16 * 32 * 2 * gathers);
}

TEST_CASE("a host with slow launches limits small layers") {
  Setup s = setup("gpt2", "dgx-h100", 8);
  s.job.global_batch = 8;
  s.job.sequence = 128;
  const PlanCosts slow = s.cost_model().price(plan(s, 1, 1));
  CHECK(slow.time.parts.host > slow.time.parts.compute);
  s.calibration.host_layer_forward = s.calibration.host_layer_backward = Seconds{};
  CHECK(s.cost_model().price(plan(s, 1, 1)).time.parts.host == s.calibration.step_fixed);
}

TEST_CASE("a tensor-parallel group over two nodes is slower than one inside a node") {
  Setup s = setup("70b", "dgx-h100", 64);
  s.job.global_batch = 64;
  const Seconds inside = s.cost_model().price(plan(s, 8, 1)).time.parts.exposed[Axis::tp];
  const Seconds across = s.cost_model().price(plan(s, 16, 1)).time.parts.exposed[Axis::tp];
  CHECK(across > inside);
}

TEST_CASE("MFU is model FLOPs over the dense peak, by the printed formula") {
  const Setup s = setup("7b", "dgx-h100", 8);
  const PlanCosts out = s.cost_model().price(plan(s, 1, 1));
  const double flops = s.model.flops_per_token(2048).in(kFlop)*512 * 2048;
  CHECK(out.mfu == Approx(flops / out.time.step.in(1_s) / 8 / 989e12).epsilon(1e-3));
}

TEST_CASE("the same plan is priced to the same bits every time") {
  const Setup s = setup("70b", "dgx-h100", 64);
  const PlanCosts a = s.cost_model().price(plan(s, 8, 4));
  const PlanCosts b = s.cost_model().price(plan(s, 8, 4));
  CHECK(a.time.step == b.time.step);
  CHECK(a.memory.stages == b.memory.stages);
}

TEST_CASE("fp8 products pay for their casts, and the head's stay in 16 bits") {
  Setup s = setup("7b", "dgx-h100", 8);
  s.calibration.kernel_fixed = Seconds{};
  s.calibration.memory_efficiency = 1;
  const LayerSharding sharding{.microbatch = 1};
  const ShardingCosts wide = s.cost_model().sharding_costs(sharding);
  s.job.precision = find_precision("fp8").value();
  // As fast as 16 bits: only the casts make the difference.
  const GpuSpec& gpu = s.cluster.gpu();
  s.calibration.fp8_efficiency = gpu.peak(Dtype::bf16) / gpu.peak(Dtype::fp8);
  const ShardingCosts narrow = s.cost_model().sharding_costs(sharding);
  // Casts, by the bytes of delayed scaling, of every input: of the projections into
  // the heads, out of them, of the MLP up and down.
  const double tokens = 2048;
  const double inputs = tokens * (4096 + 4096 + 4096 + 11008);
  const double outputs = tokens * (3 * 4096 + 4096 + 2 * 11008 + 4096);  // their gradients
  const double hbm = gpu.hbm.in(kBytePerSecond);
  CHECK((narrow.dense.forward.device - wide.dense.forward.device).in(1_us) ==
        Approx(kDelayedCast * 1e6 * inputs / hbm));
  CHECK((narrow.dense.backward.device - wide.dense.backward.device).in(1_us) ==
        Approx(kDelayedCast * 1e6 * outputs / hbm));
  s.calibration.fp8_efficiency = 1;
  CHECK(s.cost_model().sharding_costs(sharding).dense.forward.device < wide.dense.forward.device);
  CHECK(s.cost_model().sharding_costs(sharding).head_forward.device == wide.head_forward.device);
  CHECK(s.cost_model().sharding_costs(sharding).head_backward.device == wide.head_backward.device);
}

TEST_CASE("the router computes in 16 bits, whatever the precision of the experts") {
  Setup s = setup("mixtral-8x7b", "dgx-h100", 8);
  s.job.precision = find_precision("fp8").value();
  const OperatorList list =
      layer_operators(s.model, s.job, s.framework, {.microbatch = 1}, LayerKind::moe);
  for (const Operator& op : list.view()) {
    if (op.kind == OperatorKind::gemm) CHECK(op.wide == (op.name == "router"));
  }
}

TEST_CASE("ablations simplify the model: NICs not shared, one NIC per group, no bubble") {
  const Setup s = setup("7b", "dgx-h100", 64);
  const auto simpler = [&](AblatedFeature what) {
    CostModel cost_model = s.cost_model();
    cost_model.ablate(what);
    return cost_model;
  };
  const CostModel whole = s.cost_model();
  const CostModel unshared = simpler(AblatedFeature::unshared_nics);
  const CostModel single = simpler(AblatedFeature::single_nics);
  // Eight groups of one GPU per node share eight NICs; one group of all has them to itself.
  CHECK(unshared.links({8, 8}).inter / whole.links({8, 8}).inter == Approx(8));
  CHECK(unshared.links({64, 1}).inter == whole.links({64, 1}).inter);
  CHECK(single.links({8, 8}).inter == whole.links({8, 8}).inter);
  CHECK(whole.links({64, 1}).inter / single.links({64, 1}).inter == Approx(8));

  const ParallelPlan p = plan(s, 1, 8);
  const CostModel busy = simpler(AblatedFeature::no_bubble);
  CHECK(busy.price(p).time.step < whole.price(p).time.step);
  const ShardingCosts costs = busy.sharding_costs(sharding_of(p));
  const StageModel model(busy, p, costs);
  const double m = static_cast<double>(model.microbatches());
  const Seconds slowest = 1 * kSecond;
  CHECK(model.pipeline(8 * slowest, slowest).in(kSecond) ==
        Approx((m * slowest + (m - 1) * model.steady_hops(slowest)).in(kSecond)));
}
