// Costs of experts in addition to their GEMMs: kernel launches of the host and dispatch.
// Over 400 lines because all cases build on the same two mixtures.
#include <array>

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/collectives/expert_exchange.hpp"
#include "costmodel/time/host_shares.hpp"
#include "costmodel/time/rates.hpp"
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
StageTimes middle_stage(const Mixture& s, int dense, int moe, int recomputed = 0,
                        CudaGraphs graphs = CudaGraphs::none, bool overlap_ep = false) {
  ParallelPlan p;
  p.cuda_graphs = graphs;
  p.overlap_ep = overlap_ep;
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
  s.framework.product_per_expert = false;
  s.job.sequence = 128;  // the device is done long before the host
  s.calibration.host_layer_forward = 1000_ms;
  s.calibration.host_layer_backward = 2000_ms;
  s.calibration.host_experts = 500_ms;
  const StageTimes dense = middle_stage(s, 3, 0);
  CHECK(dense.forward.in(1_ms) == Approx(3 * 1000));
  CHECK(dense.backward.in(1_ms) == Approx(3 * 2000));
  const StageTimes experts = middle_stage(s, 0, 3);
  CHECK(experts.forward.in(1_ms) == Approx(3 * (1000 + 0.4 * 500)));
  CHECK(experts.backward.in(1_ms) == Approx(3 * (2000 + 0.6 * 500)));
  const StageTimes again = middle_stage(s, 0, 3, 2);  // two forwards more
  CHECK((again.backward - experts.backward).in(1_ms) == Approx(2 * (1000 + 0.4 * 500)));
}

TEST_CASE("if the device is slower than the host, launches of experts cost nothing") {
  Mixture s = mixture("deepseek-v3");
  s.calibration.host_layer_forward = s.calibration.host_layer_backward = Seconds{};
  s.calibration.host_experts = 1_us;
  CHECK(middle_stage(s, 0, 3).host == Seconds{});
}

TEST_CASE("CUDA graphs of layers leave half of a layer of experts, and the MLP beside overlap") {
  Mixture s = mixture("deepseek-v3");
  s.framework.product_per_expert = false;
  s.job.sequence = 128;
  s.calibration.host_layer_forward = 1000_ms;
  s.calibration.host_layer_backward = 2000_ms;
  s.calibration.host_experts = 500_ms;
  const auto forward = [&](CudaGraphs graphs, int dense, int moe) {
    return middle_stage(s, dense, moe, 0, graphs).forward.in(1_ms);
  };
  CHECK(forward(CudaGraphs::layers, 0, 3) == Approx(3 * (500 + 0.4 * 250)));
  CHECK(forward(CudaGraphs::layers, 3, 0) == Approx(3 * 50));
  CHECK(middle_stage(s, 3, 0, 0, CudaGraphs::layers, true).forward.in(1_ms) == Approx(3 * 500));
  CHECK(forward(CudaGraphs::full_iteration, 0, 3) < 3 * 500);
}

TEST_CASE("every local expert adds launches of its own, more with quantised tensors and biases") {
  const Framework megatron = find_framework("megatron-core").value();
  MixtureOfExperts moe{.experts = 128, .experts_per_token = 8};
  const auto launches = [&](const char* precision, int ep, HostShares shares = {}) {
    return expert_launches(megatron, moe, find_precision(precision).value(), ep, shares);
  };
  CHECK(launches("bf16", 16) == Approx(1.0));  // the profile: 8 experts
  CHECK(launches("bf16", 8) == Approx(1.48));
  CHECK(launches("fp8:bf16-gradients", 8) == Approx(0.52 + 18 * 0.16));
  CHECK(launches("mxfp8:bf16-gradients", 8) == Approx(0.52 + 14 * 0.16));
  CHECK(launches("bf16", 16, {0.5, 0.5, 1}) == Approx(0.26 + 0.48));  // CUDA graphs of layers
  moe.expert_bias = true;
  CHECK(launches("bf16", 16) == Approx(0.52 + 14 * 0.08));
  const Framework torchtitan = find_framework("torchtitan").value();  // one grouped kernel
  CHECK(expert_launches(torchtitan, moe, find_precision("bf16").value(), 1, {}) == 1);
}

TEST_CASE("a graph of the whole step fuses the experts' activation and casts with their products") {
  Mixture s = mixture("deepseek-v3");
  s.job.precision = find_precision("mxfp8:bf16-gradients").value();
  ParallelPlan plan;
  plan.ep = plan.dp = 16;
  plan.zero = 1;
  plan.shard_group = 16;
  const LayerCosts apart = s.cost_model().sharding_costs(plan).moe;
  plan.cuda_graphs = CudaGraphs::full_iteration;
  const LayerCosts fused = s.cost_model().sharding_costs(plan).moe;
  CHECK(fused.forward.device < 0.95 * apart.forward.device);
  CHECK(fused.saved == apart.saved);
  CHECK(s.cost_model().sharding_costs(plan).dense.forward.device ==
        s.cost_model().sharding_costs(sharding_of(plan)).dense.forward.device);
}

TEST_CASE("biases of experts cost Megatron-Core 64 bytes per number of their results, and bounds") {
  Mixture s = mixture("gpt-oss-120b");
  const auto device = [&] {
    return s.cost_model().sharding_costs(LayerSharding{.microbatch = 1, .ep = 16}).moe;
  };
  const LayerCosts with = device();
  s.model.moe.expert_bias = false;
  const LayerCosts without = device();
  const double rows = 4096.0 * 4;
  // The bounds on gate and up: 11.5 bytes per byte of both, in 10 kernels.
  const Bytes moved{64 * rows * s.model.hidden + 11.5 * 2 * 2 * rows * 2880};
  const DeviceRates rates = device_rates(s.cluster.gpu(), s.calibration, Dtype::bf16);
  const Seconds added =
      with.forward.device - without.forward.device + with.backward.device - without.backward.device;
  const Seconds expected =
      (moved / rates.memory + (2 + 10) * rates.kernel_fixed) / s.calibration.moe_speed_factor;
  CHECK(added / expected == Approx(1));
}

TEST_CASE("beside an overlapped exchange a single stage keeps one layer more") {
  const Mixture s = mixture("qwen3-30b");
  const auto activations = [&](bool overlap) {
    ParallelPlan plan;
    plan.ep = plan.dp = plan.shard_group = 16;
    plan.zero = 1;
    plan.dispatcher = Dispatcher::hybridep;
    plan.overlap_ep = overlap;
    const CostModel cost_model = s.cost_model();
    const ShardingCosts costs = cost_model.sharding_costs(plan);
    const StageModel model(cost_model, plan, costs);
    return model.memory({.index = 0, .layers = {0, s.model.layers}}).activations;
  };
  const Bytes layer =
      s.cost_model().sharding_costs(LayerSharding{.microbatch = 1, .ep = 16}).moe.saved;
  CHECK((activations(true) - activations(false)) / layer == Approx(1).epsilon(0.01));
}

TEST_CASE("a prediction module costs the last stage a layer of experts and the head once more") {
  Mixture s = mixture("deepseek-v3");
  const LayerSharding sharding{.microbatch = 1, .ep = 16};
  const ShardingCosts without = s.cost_model().sharding_costs(sharding);
  s.model.prediction_modules = 1;
  const ShardingCosts with = s.cost_model().sharding_costs(sharding);
  const Seconds least = without.head_forward.device + without.moe.forward.device;
  const Seconds added = with.head_forward.device - without.head_forward.device;
  CHECK(added > least);
  CHECK(added < 1.25 * least);  // … and a projection of two hidden vectors to one
  const double h = s.model.hidden;
  CHECK(with.head_parameters_last - without.head_parameters_last ==
        Approx(without.moe.parameters + 2 * h * h + 3 * h));
  CHECK(with.head_experts == without.moe.experts);
  const double own = with.head_parameters - without.head_parameters + 16 * with.head_experts;
  CHECK(own / 1e9 == Approx(11.5).epsilon(0.015));  // README_WEIGHTS.md of DeepSeek-V3
  CHECK(with.moe.forward.device == without.moe.forward.device);
}

TEST_CASE("dispatch and combine go by the plan's dispatcher") {
  Mixture s = mixture("deepseek-v3");
  LayerSharding sharding{.microbatch = 1, .ep = 16};
  const auto exposed = [&](Dispatcher dispatcher) {
    sharding.dispatcher = dispatcher;
    const LayerCosts layer = s.cost_model().sharding_costs(sharding).moe;
    CHECK(s.cost_model().exchange_time(sharding).in(1_us) ==
          Approx((layer.forward.exposed[Axis::ep] + layer.backward.exposed[Axis::ep]).in(1_us)));
    return layer.forward.exposed[Axis::ep];
  };
  // 2 bytes of 4,096 tokens' 7,168 values: to 8 experts each, half of them on the other node at 50
  // GB/s; or to all of 16 ranks, 15 of them others.
  const double values = 2.0 * 4096 * 7168;
  CHECK(exposed(Dispatcher::alltoall).in(1_s) == Approx(2 * values * 8 / 2 / 50e9).epsilon(0.01));
  const GroupLinks links = s.cost_model().links({16, 1});
  CHECK(exposed(Dispatcher::allgather).in(1_us) ==
        Approx((2 * all_gather(Bytes{16 * values}, links)).in(1_us)));
  const Seconds once =
      expert_exchange(Dispatcher::deepep, s.model.moe, Bytes{8 * values}, 1, links);
  CHECK(exposed(Dispatcher::deepep).in(1_us) == Approx(2 * once.in(1_us)));
  CHECK(once < Seconds{values * 8 / 2 / 50e9});
}

TEST_CASE("the exchange of layers that are an MLP alone has its price") {
  Mixture s = mixture("nemotron-3-nano-30b-a3b");
  LayerSharding sharding{.microbatch = 1, .ep = 16};
  const auto exchange = [&](Dispatcher dispatcher) {
    sharding.dispatcher = dispatcher;
    return s.cost_model().exchange_time(sharding);
  };
  const LayerCosts mean = s.cost_model().sharding_costs(sharding).moe;
  const Seconds exposed = mean.forward.exposed[Axis::ep] + mean.backward.exposed[Axis::ep];
  CHECK(exchange(Dispatcher::alltoall) * (23.0 / 52) / exposed == Approx(1));
  CHECK(exchange(Dispatcher::deepep) < exchange(Dispatcher::alltoall));
}

TEST_CASE("a framework that dispatches in fp8 sends half of it there, and all of it back") {
  Mixture s = mixture("deepseek-v3");
  const LayerSharding sharding{.microbatch = 1, .ep = 16, .dispatcher = Dispatcher::deepep};
  const auto exchange = [&] { return s.cost_model().exchange_time(sharding); };
  const Seconds wide = exchange();
  s.framework.fp8_dispatch = true;
  CHECK(exchange() == wide);  // a job in bf16
  s.job.precision = find_precision("fp8").value();
  CHECK(exchange() / wide == Approx((1 + (1 + 4.0 / 128) / 2) / 2).epsilon(0.01));
}

TEST_CASE("only the routed experts run at the pace of experts") {
  Mixture s = mixture("deepseek-v3");
  const LayerSharding sharding{.microbatch = 1, .ep = 16};
  const auto device = [&](LayerKind kind) {
    return s.cost_model().sharding_costs(sharding).of(kind).forward.device;
  };
  const Seconds dense = device(LayerKind::dense);
  const Seconds moe = device(LayerKind::moe);
  s.calibration.moe_speed_factor = 0.5;
  CHECK(device(LayerKind::dense) == dense);
  CHECK(device(LayerKind::moe) > moe);
  CHECK(device(LayerKind::moe) < 1.8 * moe);  // attention and shared experts take as long
}

TEST_CASE("shared experts hide as much of the exchange as they take") {
  Mixture s = mixture("deepseek-v3");
  s.calibration.dp_overlap = 1;
  s.calibration.overlap_slowdown = 0;
  const auto exposed_and_device = [&](bool shared) {
    const LayerSharding sharding{.microbatch = 1, .ep = 16, .overlap_shared = shared};
    const LayerCosts layer = s.cost_model().sharding_costs(sharding).moe;
    CHECK(layer.alone_forward + layer.alone_backward == Seconds{});  // its own microbatch's
    return std::array{layer.forward.exposed[Axis::ep], layer.backward.exposed[Axis::ep],
                      layer.forward.device, layer.backward.device};
  };
  const auto before = exposed_and_device(false);
  const auto beside = exposed_and_device(true);
  const std::array hidden{before[0] - beside[0], before[1] - beside[1]};
  CHECK(before[2] == beside[2]);
  CHECK(before[3] == beside[3]);
  s.model.moe.shared_ffn_hidden = 0;
  const auto without = exposed_and_device(true);
  CHECK(without[0] == before[0]);
  // The exchange over two nodes takes longer than the shared experts, which hide in it.
  CHECK(hidden[0] / (before[2] - without[2]) == Approx(1).epsilon(1e-6));
  CHECK(hidden[1] / (before[3] - without[3]) == Approx(1).epsilon(1e-6));
  s.model = load_model("deepseek-v3").value();
  s.calibration.dp_overlap = 0.5;
  CHECK((before[0] - exposed_and_device(true)[0]) / hidden[0] == Approx(0.5));
}

TEST_CASE("an exchange that runs beside another microbatch is exposed where a pass runs alone") {
  Mixture s = mixture("deepseek-v3");
  LayerSharding sharding{.microbatch = 1, .ep = 16, .dispatcher = Dispatcher::deepep};
  const LayerCosts alone = s.cost_model().sharding_costs(sharding).moe;
  sharding.overlap_ep = true;
  const LayerCosts paired = s.cost_model().sharding_costs(sharding).moe;
  CHECK(paired.forward.exposed[Axis::ep] < 0.5 * alone.forward.exposed[Axis::ep]);
  CHECK((paired.forward.exposed[Axis::ep] + paired.alone_forward).in(1_us) ==
        Approx(alone.forward.exposed[Axis::ep].in(1_us)));
  CHECK((paired.backward.exposed[Axis::ep] + paired.alone_backward).in(1_us) ==
        Approx(alone.backward.exposed[Axis::ep].in(1_us)));
  CHECK(paired.forward.device == alone.forward.device);

  // Four stages of two chunks, 16 microbatches: of 32 passes 8 run alone, mean over the ranks.
  s.job.global_batch = 256;
  s.cluster = ClusterTopology::load("dgx-h100", 64).value();
  ParallelPlan p;
  static_cast<LayerSharding&>(p) = sharding;
  p.pp = 4;
  p.vpp = 2;
  p.microbatch_group = 4;
  p.schedule = ScheduleKind::interleaved;
  p.dp = 16;
  const CostModel cost_model = s.cost_model();
  const ShardingCosts costs = cost_model.sharding_costs(sharding);
  const StageModel model(cost_model, p, costs);
  const StageTimes times = model.times({.index = 1, .layers = {0, 1}});
  const Seconds exchange = paired.forward.exposed[Axis::ep] + paired.backward.exposed[Axis::ep];
  const Seconds more = paired.alone_forward + paired.alone_backward;
  CHECK(times.exposed[Axis::ep].in(1_us) == Approx((exchange + 8.0 / 32 * more).in(1_us)));
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

TEST_CASE("what does not depend on how experts are split is the same taken from another sharding") {
  const auto numbers = [](const ShardingCosts& c) {
    std::vector<double> out;
    for (const LayerCosts* layer : {&c.dense, &c.moe}) {
      for (const PassCosts* pass : {&layer->forward, &layer->backward}) {
        out.push_back(pass->total().in(kSecond));
        out.push_back(pass->exposed[Axis::ep].in(kSecond));
      }
      for (const Bytes bytes : {layer->saved, layer->saved_selective, layer->transient}) {
        out.push_back(bytes.in(kByte));
      }
      for (const RecomputedPart& part : layer->modules) out.push_back(part.freed.in(kByte));
      out.push_back(layer->parameters + layer->experts);
      out.push_back((layer->alone_forward + layer->alone_backward).in(kSecond));
    }
    for (const PassCosts* pass :
         {&c.embedding_forward, &c.embedding_backward, &c.head_forward, &c.head_backward}) {
      out.push_back(pass->total().in(kSecond));
    }
    for (const Bytes bytes : {c.layer_input, c.embedding_saved, c.head_saved, c.head_transient}) {
      out.push_back(bytes.in(kByte));
    }
    for (const double count : {c.embedding_parameters, c.head_parameters, c.head_experts}) {
      out.push_back(count);
    }
    return out;
  };
  for (const char* name : {"deepseek-v3", "mixtral-8x7b", "llama4-maverick"}) {
    const Mixture s = mixture(name);
    const CostModel cost_model = s.cost_model();
    ParallelPlan first;
    first.tp = 2;
    first.sequence_parallel = true;
    const ShardingCosts known = cost_model.sharding_costs(first);
    for (const int ep : {1, 2, 8}) {
      for (const bool overlap : {false, true}) {
        for (const CudaGraphs graphs : {CudaGraphs::none, CudaGraphs::full_iteration}) {
          ParallelPlan plan = first;
          plan.ep = ep;
          plan.overlap_ep = overlap && ep > 1;
          plan.cuda_graphs = graphs;
          plan.dispatcher = overlap ? Dispatcher::deepep : Dispatcher::alltoall;
          const ShardingCosts own = cost_model.sharding_costs(plan);
          CHECK(numbers(cost_model.sharding_costs(plan, &known)) == numbers(own));
        }
      }
    }
  }
}
