// Context and expert parallelism, latent attention, offload, rank order.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
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

Setup setup(const char* model, int gpus, int sequence) {
  Setup s{load_model(model).value(),
          {},
          ClusterTopology::load("dgx-h100", gpus).value(),
          find_framework("megatron-core").value(),
          {}};
  s.job.sequence = sequence;
  s.job.global_batch = 512;
  s.job.precision = find_precision("bf16").value();
  s.calibration = prior_calibration(s.cluster.gpu(), s.framework).value();
  return s;
}

ParallelPlan plan(const Setup& s, int tp, int cp, int ep, int etp = 1) {
  ParallelPlan p;
  p.tp = tp;
  p.cp = cp;
  p.ep = ep;
  p.etp = etp;
  p.dp = s.cluster.gpus() / (tp * cp);
  p.zero = 1;
  p.shard_group = p.dp * cp;
  p.sequence_parallel = tp > 1;
  p.layers_per_stage = {s.model.layers};
  p.recompute_layers = {0};
  return p;
}

double saved(const Setup& s, LayerSharding sharding, LayerKind kind) {
  return layer_operators(s.model, s.job, s.framework, sharding, kind)
      .saved(Recompute::none)
      .in(kByte);
}

}  // namespace

TEST_CASE("context parallelism divides activations and attention work by cp") {
  const Setup s = setup("8b", 64, 32768);
  const LayerSharding one{.microbatch = 1};
  const LayerSharding four{.cp = 4, .microbatch = 1};
  CHECK(saved(s, four, LayerKind::dense) == Approx(saved(s, one, LayerKind::dense) / 4));
  const auto flops = [&](LayerSharding sharding) {
    double sum = 0;
    const OperatorList list = layer_operators(s.model, s.job, s.framework, sharding);
    for (const Operator& op : list.view()) sum += op.forward.in(kFlop);
    return sum;
  };
  CHECK(flops(four) == Approx(flops(one) / 4));
}

TEST_CASE("a ring passes all keys and values, an all-to-all exchanges queries, keys and values") {
  const Setup s = setup("8b", 64, 32768);
  const double own = 32768.0 / 4;
  const auto payload = [&](CpComm comm, std::string_view name) {
    const OperatorList list =
        layer_operators(s.model, s.job, s.framework, {.cp = 4, .cp_comm = comm, .microbatch = 1});
    for (const Operator& op : list.view()) {
      if (op.name == name) return op.payload.in(kByte);
    }
    return 0.0;
  };
  CHECK(payload(CpComm::ring, "cp_ring") == Approx(2 * own * 4 * 2 * 8 * 128));
  CHECK(payload(CpComm::all_to_all, "cp_scatter_heads") == Approx(2 * own * (32 + 2 * 8) * 128));
  CHECK(payload(CpComm::all_to_all, "cp_gather_heads") == Approx(2 * own * 32 * 128));
}

TEST_CASE("a runtime that packs heads copies them and saves attention's output in both forms") {
  const Setup s = setup("8b", 64, 32768);
  const Framework own = find_framework("echelon").value();
  const LayerSharding four{.cp = 4, .cp_comm = CpComm::all_to_all, .microbatch = 1};
  const double tokens = 32768.0 / 4;
  const double output = 2 * tokens * 32 * 128;
  const double heads = 2 * tokens * (32 + 2 * 8) * 128;
  const auto list_of = [&](LayerSharding sharding) {
    return layer_operators(s.model, s.job, own, sharding);
  };
  double copied = 0;
  const OperatorList list = list_of(four);
  for (const Operator& op : list.view()) {
    if (op.name == "cp_split_heads" || op.name == "cp_join_heads")
      copied += op.forward_traffic.in(kByte) + op.backward_traffic.in(kByte);
  }
  CHECK(copied == Approx(4 * (heads + output)));
  const OperatorList one = list_of({.microbatch = 1});
  const auto saved = [](const OperatorList& of, Recompute how) { return of.saved(how).in(kByte); };
  CHECK(saved(list, Recompute::none) == Approx(saved(one, Recompute::none) / 4 + output));
  CHECK(saved(list, Recompute::selective) == Approx(saved(one, Recompute::selective) / 4));
}

TEST_CASE("recomputed attention behind an all-to-all of packed heads repeats it") {
  Setup s = setup("8b", 8, 131072);
  s.framework = find_framework("echelon").value();
  const auto exposed = [&](Recompute how, int cp) {
    ParallelPlan p = plan(s, 1, cp, 1);
    p.cp_comm = CpComm::all_to_all;
    p.recompute = how;
    return s.cost_model().price(p).time.parts.exposed[Axis::cp];
  };
  // Forward and backward exchange q, k and v (48 heads) and the output (32), each once.
  const double more = exposed(Recompute::selective, 8) / exposed(Recompute::none, 8);
  CHECK(more == Approx(1 + 32.0 / (2 * (48 + 32))).epsilon(0.01));
  CHECK(exposed(Recompute::selective, 1) == Seconds{});
}

TEST_CASE(
    "recomputed attention of our own ring repeats it, beside the kernels where these overlap") {
  Setup s = setup("8b", 8, 131072);
  s.framework = find_framework("echelon").value();
  const auto exposed = [&](Recompute how, double overlap) {
    s.calibration.tp_overlap = overlap;
    ParallelPlan p = plan(s, 1, 8, 1);
    p.cp_comm = CpComm::ring;
    p.recompute = how;
    return s.cost_model().price(p).time.parts.exposed[Axis::cp];
  };
  // Keys and values once forward, backward again, and their gradients.
  const double more = exposed(Recompute::selective, 0) / exposed(Recompute::none, 0);
  CHECK(more == Approx(4.0 / 3).epsilon(0.01));
  // A block's attention takes longer than its transfer.
  CHECK(exposed(Recompute::selective, 1) == Seconds{});
}

TEST_CASE("one context-parallel rank has no context communication, more have some") {
  const Setup s = setup("8b", 64, 8192);
  CHECK(s.cost_model().price(plan(s, 1, 1, 1)).time.parts.exposed[Axis::cp] == Seconds{});
  ParallelPlan p = plan(s, 1, 8, 1);
  p.cp_comm = CpComm::all_to_all;
  CHECK(s.cost_model().price(p).time.parts.exposed[Axis::cp] > Seconds{});
}

TEST_CASE("the weights of a mixture are split over experts, the rest over tensor parallel ranks") {
  const Setup s = setup("mixtral-8x7b", 64, 4096);
  const auto weights = [&](int tp, int ep, int etp) {
    return s.cost_model().price(plan(s, tp, 1, ep, etp)).memory.stages[0].weights.in(kByte) / 2;
  };
  const auto moe = s.model.layer_parameters(LayerKind::moe);
  const double experts = 32.0 * static_cast<double>(moe.expert_matrices);
  CHECK(weights(1, 1, 1) == Approx(static_cast<double>(s.model.parameters())));
  CHECK(weights(1, 1, 1) - weights(1, 8, 1) == Approx(experts * 7 / 8));
  CHECK(weights(1, 4, 1) - weights(1, 4, 2) == Approx(experts / 8));
}

TEST_CASE("experts compute topk times the work of one, whatever the grid") {
  const Setup s = setup("mixtral-8x7b", 64, 4096);
  const auto work = [&](LayerSharding sharding) {
    double sum = 0;
    const OperatorList list =
        layer_operators(s.model, s.job, s.framework, sharding, LayerKind::moe);
    for (const Operator& op : list.view()) {
      if (op.name.substr(0, 7) == "expert_" && op.kind == OperatorKind::gemm) {
        sum += op.forward.in(kFlop);
      }
    }
    return sum;
  };
  const double expected = 2.0 * 4096 * 2 * 3 * 4096 * 14336;
  CHECK(work({.microbatch = 1}) == Approx(expected));
  CHECK(work({.microbatch = 1, .ep = 8}) == Approx(expected));
  CHECK(work({.tp = 2, .microbatch = 1, .ep = 4, .etp = 2, .sequence_parallel = true}) ==
        Approx(expected / 2));
}

TEST_CASE("dispatch and combine send every routed token once each way") {
  const Setup s = setup("mixtral-8x7b", 64, 4096);
  int exchanges = 0;
  const OperatorList list =
      layer_operators(s.model, s.job, s.framework, {.microbatch = 1, .ep = 8}, LayerKind::moe);
  for (const Operator& op : list.view()) {
    if (op.axis != Axis::ep || op.kind != OperatorKind::collective) continue;
    ++exchanges;
    CHECK(op.payload.in(kByte) == Approx(2.0 * 4096 * 2 * 4096));
  }
  CHECK(exchanges == 2);
  CHECK(s.cost_model().price(plan(s, 1, 1, 8)).time.parts.exposed[Axis::ep] > Seconds{});
  CHECK(s.cost_model().price(plan(s, 1, 1, 1)).time.parts.exposed[Axis::ep] == Seconds{});
}

TEST_CASE("expert parallelism inside a node is cheaper than across nodes") {
  const Setup s = setup("qwen3-30b-a3b", 64, 4096);
  CHECK(s.cost_model().price(plan(s, 1, 1, 8)).time.parts.exposed[Axis::ep] <
        s.cost_model().price(plan(s, 1, 1, 64)).time.parts.exposed[Axis::ep]);
}

TEST_CASE("dense first layers have no experts") {
  const Setup s = setup("deepseek-v3", 2048, 4096);
  ParallelPlan p = plan(s, 1, 1, 64);
  p.pp = 16;
  p.dp = p.shard_group = 128;
  p.layers_per_stage = {3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2};
  p.recompute_layers.assign(16, 0);
  const PlanCosts out = s.cost_model().price(p);
  CHECK(out.memory.contents[0].layers == LayerCounts{3, 0});
  CHECK(out.memory.contents[1].layers == LayerCounts{0, 4});
  CHECK(out.memory.contents[15].layers == LayerCounts{0, 2});
}

TEST_CASE("latent attention saves its latents, and its heads have two widths") {
  const Setup s = setup("deepseek-v2-lite", 8, 4096);
  const auto& m = s.model;
  const double tokens = 4096;
  double attention = 0;
  const OperatorList list = layer_operators(s.model, s.job, s.framework, {.microbatch = 1});
  for (const Operator& op : list.view()) {
    if (op.kind == OperatorKind::attention) attention += op.forward.in(kFlop);
  }
  const double widths =
      m.heads * (m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim + m.mla.v_head_dim);
  CHECK(attention == Approx(2 * tokens * tokens / 2 * widths));
}

TEST_CASE("echelon makes the latents of all tokens on every tensor-parallel rank") {
  Setup s = setup("deepseek-v2-lite", 8, 4096);
  s.framework = find_framework("echelon").value();
  const LatentAttention& mla = s.model.mla;
  const double latents = mla.kv_lora_rank + mla.qk_rope_head_dim;
  const LayerSharding sharding{.tp = 4, .microbatch = 1, .sequence_parallel = true};
  const OperatorList list = layer_operators(s.model, s.job, s.framework, sharding);
  double gathered = 0;
  for (const Operator& op : list.view()) {
    if (op.name == "latent_down") {
      CHECK(op.m == 4096);
      CHECK(op.n == latents);
    }
    if (op.name == "latent_norms") CHECK(op.saved == Bytes{2 * 4096 * latents});
    if (op.name == "q_up") CHECK(op.k == s.model.hidden);  // queries without a latent
    if (op.forward_collective == CollectiveKind::all_gather) gathered += op.payload.in(kByte);
  }
  CHECK(gathered == 2 * 2.0 * 4096 * s.model.hidden);  // before attention and before the MLP
}

TEST_CASE("offloading the optimizer frees its memory and costs transfers") {
  const Setup s = setup("8b", 8, 4096);
  ParallelPlan p = plan(s, 1, 1, 1);
  const PlanCosts here = s.cost_model().price(p);
  p.offload_optimizer = 1;
  const PlanCosts away = s.cost_model().price(p);
  CHECK(here.memory.stages[0].optimizer > 10_GiB);
  CHECK(away.memory.stages[0].optimizer == Bytes{});
  CHECK(away.time.parts.optimizer > here.time.parts.optimizer);
  p.offload_optimizer = 0.5;
  CHECK(s.cost_model().price(p).memory.stages[0].optimizer / here.memory.stages[0].optimizer ==
        Approx(0.5));
}

TEST_CASE("stages inside a node make sends cheap and gradient reductions expensive") {
  const Setup s = setup("70b", 64, 4096);
  ParallelPlan p = plan(s, 2, 1, 1);
  p.pp = 4;
  p.dp = p.shard_group = 8;
  p.layers_per_stage = {20, 20, 20, 20};
  p.recompute_layers.assign(4, 0);
  const CostBreakdown outside = s.cost_model().price(p).time.parts;
  p.rank_order = RankOrder::pp_inside_dp;
  const CostBreakdown inside = s.cost_model().price(p).time.parts;
  CHECK(inside.exposed[Axis::pp] < outside.exposed[Axis::pp]);
  CHECK(inside.exposed[Axis::dp] > outside.exposed[Axis::dp]);
}
