// NCCL's buffers of groups that exchange parts.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/collectives/exchange_buffers.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// Of NCCL's buffers for peers on the only stage of Qwen3-30B-A3B on 64 GPUs of the cluster.
double mebibytes_of_peers(const char* cluster, int ep, int cp = 1, CpComm how = CpComm::all_to_all,
                          const char* software = "echelon") {
  const ModelSpec model = load_model("qwen3-30b-a3b").value();
  TrainingJob job;
  job.sequence = 4096;
  job.global_batch = 128;
  job.precision = find_precision("bf16").value();
  const ClusterTopology machine = ClusterTopology::load(cluster, 64).value();
  const Framework framework = find_framework(software).value();
  ParallelPlan plan;
  plan.cp = cp;
  plan.ep = ep;
  plan.dp = 64 / cp;
  plan.zero = 1;
  plan.shard_group = 64;
  plan.cp_comm = how;
  const auto communication = [&](bool without) {
    Calibration calibration = prior_calibration(machine.gpu(), framework).value();
    if (without) calibration.nccl_per_peer = Bytes{};
    const CostModel cost_model(model, job, machine, framework, calibration);
    const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
    const StageModel stages(cost_model, plan, costs);
    return stages.memory({.index = 0, .layers = {0, model.layers}}).communication;
  };
  return (communication(false) - communication(true)).in(1_MiB);
}

/// The workspace of a stage in the middle of Mixtral 8x22B.
Bytes workspace(int ep) {
  const ModelSpec model = load_model("mixtral-8x22b").value();
  TrainingJob job;
  job.sequence = 128;  // else the activations of a layer decide
  job.global_batch = 64;
  job.precision = find_precision("bf16").value();
  const ClusterTopology machine = ClusterTopology::load("dgx-h100", 64).value();
  const Framework framework = find_framework("megatron-core").value();
  REQUIRE(framework.dummy_weight_gradients);
  const Calibration calibration = prior_calibration(machine.gpu(), framework).value();
  ParallelPlan plan;
  plan.pp = 4;
  plan.ep = ep;
  plan.dp = plan.shard_group = 16;
  plan.zero = 1;
  const CostModel cost_model(model, job, machine, framework, calibration);
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
  const StageModel stages(cost_model, plan, costs);
  return stages.memory({.index = 1, .layers = {0, 14}}).workspace;
}

TEST_CASE("TransformerEngine's gradients to be thrown away are one for each shape of weights") {
  CHECK(workspace(1) - workspace(8) < 20_MiB);
  CHECK(workspace(8) > 2 * 2.0 * 3 * Bytes{6144.0 * 16384} / 2);
}

TEST_CASE("ranks that exchange parts by NCCL hold buffers for their peers behind the NVSwitch") {
  CHECK(mebibytes_of_peers("dgx-h100", 1) == 0);
  CHECK(mebibytes_of_peers("dgx-h100", 2) == Approx(294));
  CHECK(mebibytes_of_peers("dgx-h100", 8) == Approx(7 * 294));
  CHECK(mebibytes_of_peers("dgx-h100", 32) == Approx(7 * 294));  // of other nodes: shared
  CHECK(mebibytes_of_peers("gb200-nvl72", 32) == Approx(7 * 294));
  CHECK(mebibytes_of_peers("a100-pcie", 8) == 0);
  CHECK(mebibytes_of_peers("dgx-h100", 1, 4) == Approx(3 * 294));
  CHECK(mebibytes_of_peers("dgx-h100", 1, 4, CpComm::ring) == Approx(294));
  CHECK(mebibytes_of_peers("dgx-h100", 8, 1, CpComm::ring, "megatron-core") == 0);
}

// By hand from DeepEP dd758ca, csrc/elastic/buffer.hpp, and HybridEP 94a9f8f,
// csrc/hybrid_ep/buffer, of a token of DeepSeek-V3: 14,336 bytes, 8 of 256 experts.
TEST_CASE("buffers of DeepEP and HybridEP hold all tokens of all ranks") {
  const auto bytes = [](Dispatcher dispatcher, int ranks, int domains, std::int64_t tokens) {
    const Bytes all = exchange_buffers(dispatcher, {.tokens = tokens,
                                                    .hidden = 7168,
                                                    .experts = 256,
                                                    .per_token = 8,
                                                    .ranks = ranks,
                                                    .domains = domains});
    return static_cast<std::int64_t>(all.in(1_B));
  };
  constexpr std::int64_t kUnit = 2 << 20;
  const auto units = [](std::int64_t of) { return (of + kUnit - 1) / kUnit * kUnit; };
  constexpr std::int64_t kSent = 14336 + 128;     // 8 indices, weights and places, and the source's
  constexpr std::int64_t kReturned = 14336 + 64;  // 8 indices and weights
  CHECK(bytes(Dispatcher::deepep, 8, 1, 4096) == units(8 * 4096 * kSent));
  // Combine: 8 rows of each token from a node's ranks, 8 from the nodes, and those sent to them.
  CHECK(bytes(Dispatcher::deepep, 64, 8, 4096) ==
        units((8 * 8 * 4096 + 8 * 4096 + 8 * (4096 + 1280)) * kReturned));
  // Dispatch: a token of 16 nodes of 16 ranks goes to all 256, and comes back 8 times.
  CHECK(bytes(Dispatcher::deepep, 256, 16, 4096) ==
        units((256 * 4096 + 4096 + 16 * (4096 + 1280)) * kSent));
  // Two ranks of two nodes each.
  CHECK(bytes(Dispatcher::deepep, 4, 2, 4096) ==
        units((4 * 4096 + 2 * 4096 + 2 * (4096 + 1280)) * kReturned));
  constexpr std::int64_t kScales = 4 * 56;
  constexpr std::int64_t kInNode = 14336 + 4 * 32;  // a score for each of its 32 experts
  CHECK(bytes(Dispatcher::hybridep, 8, 1, 4096) == 8 * 4096 * (14336 + 4 * 256 + kScales));
  CHECK(bytes(Dispatcher::hybridep, 64, 8, 4096) == 64 * 4096 * (kInNode + kScales) +
                                                        4096 * (14336 + 4 * 256 + kScales) +
                                                        7 * 4096 * (3 * kInNode + kScales));
  CHECK(bytes(Dispatcher::hybridep, 8, 1, 1) == bytes(Dispatcher::hybridep, 8, 1, 512));
  CHECK(bytes(Dispatcher::alltoall, 8, 1, 4096) == 0);
}

// Source: torchtitan v0.3.0, torchtitan/models/common/token_dispatcher.py:1232.
TEST_CASE("under torchtitan's pipeline the buffers hold the tokens of all microbatches") {
  const ModelSpec model = load_model("qwen3-30b-a3b").value();
  TrainingJob job;
  job.sequence = 4096;
  job.global_batch = 128;
  job.precision = find_precision("bf16").value();
  const ClusterTopology machine = ClusterTopology::load("dgx-h100", 64).value();
  const auto buffers = [&](const char* software, int pp, int tp) {
    const Framework framework = find_framework(software).value();
    const Calibration calibration = prior_calibration(machine.gpu(), framework).value();
    const CostModel cost_model(model, job, machine, framework, calibration);
    ParallelPlan plan;
    plan.pp = pp;
    plan.tp = tp;
    plan.ep = 8;
    plan.dp = plan.shard_group = 64 / pp / tp;
    plan.zero = 2;
    const auto communication = [&](Dispatcher dispatcher) {
      plan.dispatcher = dispatcher;
      const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
      const StageModel stages(cost_model, plan, costs);
      return stages.memory({.index = 0, .layers = {0, model.layers / pp}}).communication;
    };
    return communication(Dispatcher::deepep) - communication(Dispatcher::alltoall);
  };
  const auto of = [&](std::int64_t tokens) {
    return exchange_buffers(Dispatcher::deepep, {.tokens = tokens,
                                                 .hidden = model.hidden,
                                                 .experts = 128,
                                                 .per_token = 8,
                                                 .ranks = 8,
                                                 .domains = 1});
  };
  CHECK(buffers("torchtitan", 1, 1).in(1_MiB) == Approx(of(4096).in(1_MiB)));
  CHECK(buffers("torchtitan", 2, 1).in(1_MiB) == Approx(of(4 * 4096).in(1_MiB)));  // 128 / 32
  CHECK(buffers("torchtitan", 2, 2).in(1_MiB) == Approx(of(8 * 2048).in(1_MiB)));
  CHECK(buffers("megatron-core", 2, 1) == Bytes{});
}

}  // namespace
}  // namespace echelon
