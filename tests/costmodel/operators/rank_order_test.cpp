// Groups are priced at their place in the rank order, experts by their optimizer instances.
#include <string>

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// 64 H100 in nodes of the given size, one NIC per GPU, 450 GB/s inside a node.
ClusterTopology in_nodes_of(int gpus) {
  const std::string count = R"({"value": )" + std::to_string(gpus) + R"(, "source": "x"})";
  const std::string json = R"({"schema": 1, "name": "nodes", "sources": {"x": "made up"},
    "gpu": "h100-sxm5-80gb",
    "node": {"gpus": )" + count +
                           R"(,
      "interconnect": {"kind": "nvswitch",
        "per_gpu": {"value": 450, "unit": "GB/s", "source": "x"},
        "latency": {"value": 1, "unit": "us", "source": "x"}},
      "pcie": {"gpu_link": {"value": 63, "unit": "GB/s", "source": "x"},
        "nic_link": {"value": 63, "unit": "GB/s", "source": "x"},
        "switch_uplink": {"value": 63, "unit": "GB/s", "source": "x"},
        "sockets": {"value": 1, "source": "x"},
        "gpus_per_switch": {"value": 1, "source": "x"}},
      "nics": {"count": )" +
                           count + R"(,
        "rate": {"value": 400, "unit": "Gbps", "source": "x"}, "next_to": "gpus",
        "latency": {"value": 2.5, "unit": "us", "source": "x"}},
      "cpu_memory": {"value": 2, "unit": "TB", "source": "x"},
      "nvme": {"value": 30, "unit": "TB", "source": "x"}},
    "fabric": {"tiers": [{"name": "leaf", "multiplicity": {"value": 32, "source": "x"},
      "oversubscription": {"value": 1, "source": "x"},
      "latency": {"value": 0.2, "unit": "us", "source": "x"}}]}})";
  const Result<ClusterTopology> cluster = ClusterTopology::parse(json, "nodes.json", 64);
  INFO((cluster.ok() ? std::string() : cluster.error().message()));
  REQUIRE(cluster.ok());
  return *cluster;
}

CostModel pricer_for(const char* model, const ClusterTopology& cluster) {
  TrainingJob job;
  job.sequence = 4096;
  job.global_batch = 512;
  job.precision = find_precision("bf16").value();
  const Framework framework = find_framework("megatron-core").value();
  return {load_model(model).value(), job, cluster, framework,
          pick_calibration(cluster.gpu(), framework).value()};
}

ParallelPlan mixture_plan(int pp, RankOrder order) {
  ParallelPlan p;
  p.pp = pp;
  p.dp = p.shard_group = 64 / pp;
  p.ep = 8;
  p.zero = 1;
  p.recompute = Recompute::full;
  p.rank_order = order;
  const int layers = 32 / pp;
  p.layers_per_stage.assign(static_cast<std::size_t>(pp), layers);
  p.recompute_layers = p.layers_per_stage;
  return p;
}

}  // namespace

TEST_CASE("groups strided over the stages cost as much as in correspondingly smaller nodes") {
  // With pp stages between its members a group of neighbours has 8/pp in a node.
  for (const int pp : {2, 4}) {
    const ParallelPlan strided = mixture_plan(pp, RankOrder::pp_inside_dp);
    const ParallelPlan plain = mixture_plan(pp, RankOrder::dp_inside_pp);
    const PlanCosts far = pricer_for("mixtral-8x7b", in_nodes_of(8)).price(strided);
    const PlanCosts sharding = pricer_for("mixtral-8x7b", in_nodes_of(8 / pp)).price(plain);
    const PlanCosts near = pricer_for("mixtral-8x7b", in_nodes_of(8)).price(plain);
    INFO("pp " << pp);
    CHECK(far.time.parts.exposed[Axis::ep].in(1_ms) ==
          Approx(sharding.time.parts.exposed[Axis::ep].in(1_ms)));
    CHECK(far.time.parts.exposed[Axis::ep] > 3.0 * near.time.parts.exposed[Axis::ep]);
    CHECK(far.time.step > near.time.step);
  }
}

TEST_CASE("a plan with Megatron's order of stages inside is priced by the groups of that order") {
  // tp 4 = ep 4: dispatch stays inside the replica, messages between stages inside the node, and
  // gradients leave it.
  ParallelPlan p = mixture_plan(2, RankOrder::dp_inside_pp);
  p.tp = 4;
  p.ep = 4;
  p.dp = p.shard_group = 8;
  p.sequence_parallel = true;
  const CostModel cost_model = pricer_for("mixtral-8x7b", in_nodes_of(8));
  const PlanCosts outside = cost_model.price(p);
  p.rank_order = RankOrder::pp_inside_dp;
  const PlanCosts inside = cost_model.price(p);
  CHECK(inside.time.parts.exposed[Axis::ep] == outside.time.parts.exposed[Axis::ep]);
  CHECK(inside.time.parts.exposed[Axis::pp] < 0.5 * outside.time.parts.exposed[Axis::pp]);
  CHECK(inside.time.parts.exposed[Axis::dp] > outside.time.parts.exposed[Axis::dp]);
}

namespace {

/// Memory of all layers of Mixtral on one stage of 64 ranks, ep 8, at ZeRO-1.
MemoryBreakdown with_group(int group, int tp = 1) {
  ParallelPlan p = mixture_plan(1, RankOrder::dp_inside_pp);
  p.tp = tp;
  p.sequence_parallel = tp > 1;
  p.dp = 64 / tp;
  p.shard_group = group;
  p.recompute = Recompute::none;
  p.recompute_layers = {0};
  return pricer_for("mixtral-8x7b", in_nodes_of(8)).price(p).memory.stages.front();
}

}  // namespace

TEST_CASE("every optimizer instance splits the experts over its share of their ranks") {
  // 64 ranks, 8 with the same experts: n instances leave 64/n ranks for the rest of the layers'
  // states and 8/n for the experts'. Twice the instances, twice the bytes.
  const Bytes whole = with_group(64).optimizer;
  CHECK(with_group(32).optimizer.in(1_GiB) == Approx(2 * whole.in(1_GiB)));
  CHECK(with_group(16).optimizer.in(1_GiB) == Approx(4 * whole.in(1_GiB)));
  CHECK(with_group(8).optimizer.in(1_GiB) == Approx(8 * whole.in(1_GiB)));
}

TEST_CASE("one instance splits the experts over all ranks that hold them, even more than dp") {
  // tp 8, dp 8, ep 2: 32 ranks hold the same experts, of which 4 in 8 are in one shard group of 8.
  ParallelPlan p = mixture_plan(1, RankOrder::dp_inside_pp);
  p.tp = 8;
  p.sequence_parallel = true;
  p.dp = p.shard_group = 8;
  p.ep = 2;
  const CostModel cost_model = pricer_for("mixtral-8x7b", in_nodes_of(8));
  const ShardingCosts costs = cost_model.sharding_costs(p);
  const StageModel model(cost_model, p, costs);
  const Stage all{.index = 0, .layers = {0, 32}};
  const double rest =
      32 * costs.moe.parameters + costs.embedding_parameters + costs.head_parameters;
  const PrecisionRecipe& recipe = cost_model.job().precision;
  CHECK(model.memory(all).optimizer.in(kByte) ==
        Approx((recipe.master + recipe.moments) * (rest / 8 + 32 * costs.moe.experts / 32)));
  const Seconds gathers =
      all_gather(Bytes{rest * recipe.gathered_weight}, cost_model.data_links({8, 8})) +
      all_gather(Bytes{32 * costs.moe.experts * recipe.gathered_weight},
                 cost_model.data_links({32, 2}));
  CHECK(model.traffic(all).gather.in(1_us) == Approx(gathers.in(1_us)));
}
