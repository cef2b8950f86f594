// Effects of a network benchmark of the job on its price.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Eight nodes of H100, 50 GB/s per GPU, and latency factors that are easy to distinguish.
struct Measured {
  CostModel cost_model;
  explicit Measured(const MeasuredNetwork& network) : Measured() {
    cost_model.set_network(network);
  }
  Measured()
      : cost_model(load_model("7b").value(), job(), ClusterTopology::load("dgx-h100", 64).value(),
                   find_framework("megatron-core").value(), rates()) {}

  static TrainingJob job() {
    TrainingJob job;
    job.sequence = 1024;
    job.global_batch = 64;
    job.precision = find_precision("bf16").value();
    return job;
  }
  static Calibration rates() {
    const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 64).value();
    Calibration c =
        prior_calibration(cluster.gpu(), find_framework("megatron-core").value()).value();
    c.nic_efficiency = 0.8;
    c.intra_hop = 1_us;
    c.layer_latency_factor = 0.5;
    c.ring_latency_factor = 0.02;
    c.bulk_latency_factor = 0.25;
    c.host_latency_factor = 2;
    c.host_layer_forward = c.host_layer_backward = Seconds{};
    return c;
  }
};

const MeasuredNetwork kHealthy{160_GBps, 200_us};
const MeasuredNetwork kStalling{160_GBps, 1600_us};

}  // namespace

TEST_CASE(
    "a network stalls from 0.8 ms per hop, and devices wait at most a healthy network's latency") {
  CHECK_FALSE(MeasuredNetwork{1_GBps, 800_us}.stalls());
  CHECK(MeasuredNetwork{1_GBps, 801_us}.stalls());
  CHECK(kHealthy.device_hop() == 200_us);
  CHECK(kStalling.device_hop() == 250_us);
}

TEST_CASE(
    "the measured latency also applies inside nodes in data-parallel groups that span nodes") {
  const Seconds inside = Measured().cost_model.data_links({64, 1}).intra_hop;
  const GroupLinks healthy = Measured(kHealthy).cost_model.data_links({64, 1});
  CHECK((healthy.intra_hop - inside).in(1_us) == Approx(0.02 * 200));
  const GroupLinks stalling = Measured(kStalling).cost_model.data_links({64, 1});
  CHECK((stalling.intra_hop - inside).in(1_us) == Approx(0.02 * 250));
  const GroupLinks others = Measured(kHealthy).cost_model.links({64, 1});
  CHECK(others.intra_hop == inside);
  CHECK(others.inter_hop == Measured().cost_model.links({64, 1}).inter_hop);
}

TEST_CASE("a measured network does not affect groups inside a node") {
  for (const bool data : {false, true}) {
    const auto links = [&](const Measured& m) {
      return data ? m.cost_model.data_links({8, 1}) : m.cost_model.links({8, 1});
    };
    CHECK(links(Measured(kStalling)).intra_hop == links(Measured()).intra_hop);
    CHECK(links(Measured(kStalling)).intra == links(Measured()).intra);
  }
}

TEST_CASE("data-parallel groups get the measured share of the described bandwidth, others all") {
  // 8 NICs of 50 GB/s at 0.8 are 320 GB/s; 160 were measured.
  const GroupLinks described = Measured().cost_model.data_links({64, 1});
  const GroupLinks measured = Measured(kHealthy).cost_model.data_links({64, 1});
  CHECK(measured.inter / described.inter == Approx(0.5));
  CHECK(measured.inter_per_rank / described.inter_per_rank == Approx(0.5));
  CHECK(Measured(kHealthy).cost_model.links({64, 1}).inter == described.inter);
  CHECK(Measured({900_GBps, 200_us}).cost_model.data_links({64, 1}).inter == described.inter);
}

TEST_CASE("waiting in the benchmark of a stalling network does not count as low bandwidth") {
  const GroupLinks described = Measured().cost_model.data_links({64, 1});
  const auto share = [&](BytesPerSecond bus, Seconds hop) {
    return Measured({bus, hop}).cost_model.data_links({64, 1}).inter / described.inter;
  };
  CHECK(share(16_GBps, 200_us) == Approx(0.05));
  CHECK(share(16_GBps, 1600_us) == Approx(226.0 / 320));
  CHECK(share(260_GBps, 1600_us) == Approx(260.0 / 320));
}

TEST_CASE("data-parallel rings pay the whole hop only on a stalling network") {
  CHECK(Measured(kHealthy).cost_model.data_links({64, 1}).inter_hop.in(1_us) == Approx(200));
  CHECK(Measured(kStalling).cost_model.data_links({64, 1}).inter_hop.in(1_us) ==
        Approx(0.25 * 1600));
}

TEST_CASE("a bandwidth without a latency changes only bandwidths") {
  const MeasuredNetwork bus_only{160_GBps, Seconds{}};
  CHECK(Measured(bus_only).cost_model.data_links({64, 1}).inter_hop ==
        Measured().cost_model.data_links({64, 1}).inter_hop);
  CHECK(Measured(bus_only).cost_model.data_links({64, 1}).inter ==
        Measured(kHealthy).cost_model.data_links({64, 1}).inter);
  CHECK(Measured(bus_only).cost_model.host_ring_step() == Seconds{});
  CHECK(Measured(bus_only).cost_model.host_network_step() == Seconds{});
}

TEST_CASE(
    "the host waits for the inter-node steps of a layer's collectives, not for intra-node ones") {
  CHECK(Measured().cost_model.host_network_step() == Seconds{});
  const Measured healthy(kHealthy);
  CHECK(healthy.cost_model.host_network_step().in(1_us) == Approx(0.5 * 250));

  const auto host = [&](int tp) {
    ParallelPlan p;
    p.tp = tp;
    p.dp = 64 / tp;
    p.shard_group = p.dp;
    p.sequence_parallel = true;
    const ShardingCosts costs = healthy.cost_model.sharding_costs(sharding_of(p));
    const StageModel model(healthy.cost_model, p, costs);
    return model.times({.index = 0, .layers = {5, 0}});
  };
  CHECK(host(8).host == Seconds{});
  // tp 32 spans four nodes: 3 steps of each of the 4 collectives forward and 6 backward.
  const StageTimes times = host(32);
  const Seconds floor = 5 * 10 * 3 * 125_us;
  const Seconds layers = times.host + times.exposed[Axis::tp] + times.compute;
  CHECK(times.host > Seconds{});
  CHECK(layers >= floor);
}

TEST_CASE("on a stalling network the host waits for every ring step, even inside a node") {
  CHECK(Measured().cost_model.host_ring_step() == Seconds{});
  CHECK(Measured(kHealthy).cost_model.host_ring_step() == Seconds{});
  const Measured stalling(kStalling);
  CHECK(stalling.cost_model.host_ring_step().in(1_us) == Approx(2.0 / 8 * 1600));

  ParallelPlan p;  // tp 8 stays inside a node
  p.tp = 8;
  p.pp = 4;
  p.dp = 2;
  p.shard_group = 2;
  p.sequence_parallel = true;
  const ShardingCosts costs = stalling.cost_model.sharding_costs(sharding_of(p));
  const StageModel model(stalling.cost_model, p, costs);
  const StageTimes times = model.times({.index = 1, .layers = {5, 0}});
  // Forward: gather, scatter, gather, scatter, of 7 steps each. Backward: the mirror, and the two
  // saved shards gathered again.
  CHECK(times.forward.in(1_us) == Approx(5 * 4 * 7 * 400.0));
  CHECK(times.backward.in(1_us) == Approx(5 * 6 * 7 * 400.0));
}
