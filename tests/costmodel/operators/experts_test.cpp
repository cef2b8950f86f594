// Costs of experts in addition to their GEMMs: kernel launches of the host and dispatch.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct Mixture {
  ModelSpec model;
  TrainingJob job;
  ClusterTopology cluster;
  Framework framework;
  Calibration calibration;
  [[nodiscard]] CostModel cost_model() const {
    return {model, job, cluster, framework, calibration};
  }
};

/// Two nodes of H100 with the data sheet's rates, and latencies of the network only.
Mixture mixture(const char* model) {
  Mixture s{load_model(model).value(),
            {},
            ClusterTopology::load("dgx-h100", 16).value(),
            find_framework("megatron-core").value(),
            {}};
  s.job.sequence = 4096;
  s.job.global_batch = 64;
  s.job.precision = find_precision("bf16").value();
  s.calibration = prior_calibration(s.cluster.gpu(), s.framework).value();
  s.calibration.nic_efficiency = s.calibration.link_efficiency = 1;
  s.calibration.intra_hop = s.calibration.inter_hop = s.calibration.collective_base = Seconds{};
  return s;
}

/// Stage 1 of 4 with `dense` and `moe` layers: neither embedding nor head.
StageTimes middle_stage(const Mixture& s, int dense, int moe, int recomputed = 0) {
  ParallelPlan p;
  p.pp = 4;
  p.dp = 4;
  p.zero = 1;
  p.shard_group = 4;
  const CostModel cost_model = s.cost_model();
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
  const StageModel model(cost_model, p, costs);
  return model.times({.index = 1, .layers = {dense, moe}, .recomputed = {0, recomputed}});
}

/// The value that `ask` reads from the stage of all layers, on 16 data-parallel ranks at that ZeRO
/// stage.
template <class Ask>
auto of_one_stage(const Mixture& mixture, int zero, const Ask& ask) {
  ParallelPlan p;
  p.dp = 16;
  p.zero = zero;
  p.shard_group = 16;
  const CostModel cost_model = mixture.cost_model();
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
  return ask(StageModel(cost_model, p, costs),
             Stage{.index = 0, .layers = {mixture.model.layers, 0}});
}

}  // namespace

TEST_CASE("a layer of experts needs more launches, two fifths of them forward") {
  Mixture s = mixture("deepseek-v3");
  s.job.sequence = 128;  // the device is done long before the host
  s.calibration.host_layer_forward = 100_ms;
  s.calibration.host_layer_backward = 200_ms;
  s.calibration.host_experts = 50_ms;
  const StageTimes dense = middle_stage(s, 3, 0);
  CHECK(dense.forward.in(1_ms) == Approx(3 * 100));
  CHECK(dense.backward.in(1_ms) == Approx(3 * 200));
  const StageTimes experts = middle_stage(s, 0, 3);
  CHECK(experts.forward.in(1_ms) == Approx(3 * (100 + 0.4 * 50)));
  CHECK(experts.backward.in(1_ms) == Approx(3 * (200 + 0.6 * 50)));
  const StageTimes again = middle_stage(s, 0, 3, 2);  // two forwards more
  CHECK((again.backward - experts.backward).in(1_ms) == Approx(2 * (100 + 0.4 * 50)));
}

TEST_CASE("if the device is slower than the host, launches of experts cost nothing") {
  Mixture s = mixture("deepseek-v3");
  s.calibration.host_layer_forward = s.calibration.host_layer_backward = Seconds{};
  s.calibration.host_experts = 1_us;
  CHECK(middle_stage(s, 0, 3).host == Seconds{});
}

TEST_CASE("a token that crosses to each domain once sends D(1 - (1 - 1/D)^k) copies of k") {
  Mixture s = mixture("deepseek-v3");
  const LayerSharding sharding{.microbatch = 1, .ep = 16};
  const auto exposed = [&] {
    return s.cost_model().sharding_costs(sharding).moe.forward.exposed[Axis::ep];
  };
  const Seconds every_expert = exposed();
  s.framework.dispatches_per_domain = true;
  const Seconds once = exposed();
  // 2 bytes of 4,096 tokens' 7,168 values for 8 experts, half to the other node at 50 GB/s; of two
  // domains 2·(1 − 1/2⁸) = 1.9921875 are met by 8 experts. Dispatch and combine.
  const double seconds = 2.0 * 4096 * 7168 * 8 / 2 / 50e9;
  CHECK((every_expert - once).in(1_s) == Approx(2 * seconds * (1 - 1.9921875 / 8)));
}

TEST_CASE("inside one domain, sending each token once per domain saves nothing") {
  Mixture s = mixture("deepseek-v3");
  const LayerSharding sharding{.microbatch = 1, .ep = 8};
  const Seconds every_expert =
      s.cost_model().sharding_costs(sharding).moe.forward.exposed[Axis::ep];
  s.framework.dispatches_per_domain = true;
  CHECK(s.cost_model().sharding_costs(sharding).moe.forward.exposed[Axis::ep] == every_expert);
}

TEST_CASE(
    "dispatch concurrent with another microbatch hides behind a share of the layer's kernels") {
  Mixture s = mixture("deepseek-v3");
  const LayerSharding sharding{.microbatch = 1, .ep = 16};
  const LayerCosts alone = s.cost_model().sharding_costs(sharding).moe;
  s.framework.overlaps_experts = true;
  for (const double share : {0.0, 0.25, 1.0}) {
    s.calibration.dp_overlap = share;
    const LayerCosts beside = s.cost_model().sharding_costs(sharding).moe;
    const auto left = [&](const PassCosts& pass) {
      return std::max(0.0, pass.exposed[Axis::ep].in(1_us) - share * pass.device.in(1_us));
    };
    CHECK(beside.forward.exposed[Axis::ep].in(1_us) == Approx(left(alone.forward)));
    CHECK(beside.backward.exposed[Axis::ep].in(1_us) == Approx(left(alone.backward)));
    CHECK(beside.forward.device == alone.forward.device);
  }
}

TEST_CASE("gradients reduced at once pay the ring's latency once") {
  Mixture s = mixture("7b");
  s.calibration.inter_hop = 100_us;
  const auto reduce = [&](int zero) {
    return of_one_stage(
        s, zero, [](const StageModel& model, const Stage& all) { return model.traffic(all); });
  };
  const StageTraffic in_buckets = reduce(1);
  const Seconds whole = reduce(0).reduce;
  s.framework.reduces_in_ddp = true;
  const StageTraffic at_once = reduce(1);
  CHECK(at_once.buckets == 1);
  // 6.7 G parameters in buckets of 40 M; each but the first pays 14 hops inside and 1 outside.
  const double parameters = in_buckets.gradients.in(kByte) / s.job.precision.reduced_gradient;
  CHECK(in_buckets.buckets == std::ceil(parameters / 40e6));
  const GroupLinks links = s.cost_model().data_links({16, 1});
  const Seconds ring = 14 * links.intra_hop + links.inter_hop;
  CHECK((in_buckets.reduce - at_once.reduce).in(1_us) ==
        Approx((in_buckets.buckets - 1) * ring.in(1_us)));
  // At ZeRO-0 the buckets are DDP's, which hide their latency.
  const StageTraffic ddp = reduce(0);
  CHECK(ddp.buckets == std::ceil(parameters / (25 * 1024 * 1024 / 2.0)));
  CHECK((whole - ddp.reduce).in(1_us) == Approx((in_buckets.buckets - 1) * ring.in(1_us)));
}

TEST_CASE("DDP reduces during the backward, a ZeRO-1 without DDP after it") {
  Mixture s = mixture("7b");
  s.framework.reduces_in_ddp = true;
  s.calibration.dp_overlap = 1;
  s.calibration.overlap_slowdown = 0;
  const auto exposed = [&](int zero) {
    return of_one_stage(s, zero, [](const StageModel& model, const Stage& all) {
      StageTimes times;
      times.backward = 1000_s;
      return model.reduction(all, times) / model.traffic(all).reduce;
    });
  };
  CHECK(exposed(0) < 0.01);  // the last of its buckets
  CHECK(exposed(1) == Approx(1));
}
