// NCCL's buffers of groups that exchange parts.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
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

}  // namespace
}  // namespace echelon
