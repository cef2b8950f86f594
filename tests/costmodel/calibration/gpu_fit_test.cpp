// The fit recovers the rates that GPU times were generated with.
#include "costmodel/calibration/fit/gpu.hpp"

#include <cmath>

#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "costmodel/time/rates.hpp"
#include "tests/support/catch.hpp"
#include "topologies/import/this_machine.hpp"
#include "topologies/import/wiring.hpp"

using namespace echelon;

namespace {

GpuFacts four_gpus() {
  GpuFacts gpu;
  gpu.name = "NVIDIA H200";
  gpu.gpus = 4;
  gpu.memory = 139.8 * 1_GiB;
  gpu.sms = 132;
  gpu.compute_capability = 9;
  gpu.l2 = 50_MB;
  gpu.clock_mhz = 1980;
  gpu.context = 700_MiB;
  gpu.communicator = 90_MiB;
  gpu.peer = 250_MiB;
  gpu.attention = "cuDNN 9.19.0, deterministic backward";
  gpu.attention_parts = 256_MiB;
  gpu.attention_deterministic = true;
  gpu.nccl = 22809;
  return gpu;
}

ClusterTopology machine_of(const GpuFacts& gpu) {
  WiredMachine machine;
  machine.name = kThisMachineGpus;
  machine.summary = "a test";
  machine.gpu = gpu;
  machine.wiring.source = "a test";
  for (int i = 0; i < gpu.gpus; ++i) machine.wiring.gpus.push_back({0, std::nullopt, 18});
  return ClusterTopology::parse(description_of(machine).value(), "a test", 0).value();
}

double d(std::int64_t n) { return static_cast<double>(n); }

void add_products(const DeviceRates& r, std::vector<Measurement>& all) {
  for (const std::int64_t rows : {2048, 8192, 16384}) {
    for (const auto& [in, out] :
         {std::pair<std::int64_t, std::int64_t>(768, 3072), {4096, 12288}, {11008, 4096}}) {
      const auto traffic = [](std::int64_t m, std::int64_t n, std::int64_t k, double more) {
        return Bytes{2 * (d(m) * d(k) + d(k) * d(n) + d(m) * d(n)) + more};
      };
      all.push_back({"gemm nt",
                     1,
                     1,
                     {rows, out, in},
                     gemm_time(d(rows), d(out), d(in), traffic(rows, out, in, 0), r)});
      all.push_back(
          {"gemm tn",
           1,
           1,
           {out, in, rows},
           gemm_time(d(out), d(in), d(rows), traffic(out, in, rows, 8 * d(out) * d(in)), r)});
    }
  }
}

void add_attention(const DeviceRates& r, std::vector<Measurement>& all) {
  for (const std::int64_t s : {512, 2048, 8192}) {
    const double q = 32 * 128;
    const double kv = 8 * 128;
    const double tokens = 2 * d(s);
    const Flops work{2 * tokens * (d(s) / 2) * 2 * q};
    const std::vector<std::int64_t> shape{s, 32, 128, 8, 2};
    all.push_back({"attention forward", 1, 1, shape,
                   attention_time(work, Bytes{2 * tokens * (2 * q + 2 * kv)}, d(s), 1,
                                  r.attention_forward, r)});
    all.push_back({"attention backward", 1, 1, shape,
                   attention_time(2.5 * work, Bytes{2 * tokens * (5 * q + 4 * kv)}, d(s), 3,
                                  r.attention_backward, r)});
  }
}

void add_bandwidth(const Calibration& c, const DeviceRates& r, std::vector<Measurement>& all) {
  const std::vector<std::int64_t> shape{16384, 4096};
  const double numbers = 16384.0 * 4096;
  for (const auto& [what, each] : {std::pair("norm forward", 2.0),
                                   {"norm backward", 4.0},
                                   {"gelu forward", 2.0},
                                   {"gelu backward", 3.0},
                                   {"swiglu forward", 3.0},
                                   {"swiglu backward", 5.0}}) {
    all.push_back({what, 1, 1, shape, elementwise_time(Bytes{2 * each * numbers}, 1, r)});
  }
  all.push_back({"clear and adam", 1, 1, {1 << 20}, Bytes{38.0 * (1 << 20)} / r.optimizer});
  all.push_back({"clear and adam", 1, 1, {1 << 10}, Seconds{1e-9}});  // fits into a cache
  all.push_back({"empty kernel", 1, 1, {256}, c.kernel_fixed});
  all.push_back({"kernel after a copy to host", 1, 1, {16}, c.kernel_fixed + c.host_wait});
  for (const std::int64_t layers : {1, 2}) {
    const std::vector<std::int64_t> chunk{layers, 1024, 1024, 8};
    all.push_back({"host of layers forward", 1, 1, chunk, d(layers) * c.host_layer_forward});
    all.push_back({"host of layers backward", 1, 1, chunk, d(layers) * c.host_layer_backward});
  }
  for (const std::int64_t count : {4, 16, 64}) {
    all.push_back({"empty step", 4, 1, {count}, c.step_fixed + d(count) * 3_us});
  }
}

Measurements measured_with(const Calibration& c, const ClusterTopology& cluster) {
  const DeviceRates r = device_rates(cluster.gpu(), c, Dtype::bf16);
  Measurements out;
  out.gpu = four_gpus();
  add_products(r, out.all);
  add_attention(r, out.all);
  add_bandwidth(c, r, out.all);
  // Farther apart than half of the GPUs: reported, but not a group of the cost model.
  out.all.push_back({"send_recv", 2, 1, {1 << 26, 3}, 1_s});
  for (const std::int64_t bytes : {std::int64_t{1} << 20, std::int64_t{1} << 26}) {
    for (const char* what : {"all_reduce", "all_gather", "reduce_scatter"}) {
      for (const int ranks : {2, 4}) {
        out.all.push_back({what,
                           ranks,
                           1,
                           {bytes},
                           collective_time(*collective_named(what), Bytes{d(bytes)},
                                           apply(cluster.group({ranks, 1}), c))});
      }
    }
    for (const std::int64_t distance : {1, 2}) {
      const GroupLinks links = apply(cluster.group({2, static_cast<int>(distance)}), c);
      out.all.push_back(
          {"send_recv", 2, 1, {bytes, distance}, send_receive(Bytes{d(bytes)}, links)});
    }
  }
  return out;
}

}  // namespace

TEST_CASE("the fit recovers the rates that GPU times were generated with") {
  const ClusterTopology cluster = machine_of(four_gpus());
  const Calibration prior =
      pick_calibration(cluster.gpu(), find_framework("echelon").value()).value();
  Calibration truth = prior;
  truth.gemm_efficiency = 0.66;
  truth.gemm_ramp = 300;
  truth.kernel_fixed = 2_us;
  truth.attention_forward = 0.31;
  truth.attention_backward = 0.22;
  truth.attention_ramp = 700;
  truth.memory_efficiency = 0.7;
  truth.optimizer_efficiency = 0.83;
  truth.host_layer_forward = 75_us;
  truth.host_layer_backward = 130_us;
  truth.host_wait = 13_us;
  truth.step_fixed = 400_us;
  truth.link_efficiency = 0.7 * prior.link_efficiency;
  truth.collective_base = 1.8 * prior.collective_base;
  truth.intra_hop = 1.8 * prior.intra_hop;
  truth.switch_base = 1.8 * prior.switch_base;
  const Calibration found =
      calibrated_gpus(measured_with(truth, cluster), cluster, prior, "a test");
  CHECK(found.kernel_speed_factor == 1);
  CHECK(found.gemm_efficiency == Approx(truth.gemm_efficiency).epsilon(0.03));
  CHECK(found.gemm_ramp == Approx(truth.gemm_ramp).epsilon(0.15));
  CHECK(found.kernel_fixed / truth.kernel_fixed == Approx(1));
  CHECK(found.attention_forward == Approx(truth.attention_forward).epsilon(0.03));
  CHECK(found.attention_backward == Approx(truth.attention_backward).epsilon(0.03));
  CHECK(found.attention_ramp == Approx(truth.attention_ramp).epsilon(0.1));
  CHECK(found.memory_efficiency == Approx(truth.memory_efficiency).epsilon(1e-6));
  CHECK(found.optimizer_efficiency == Approx(truth.optimizer_efficiency).epsilon(1e-6));
  CHECK(found.host_layer_forward / truth.host_layer_forward == Approx(1));
  CHECK(found.host_layer_backward / truth.host_layer_backward == Approx(1));
  CHECK(found.host_wait / truth.host_wait == Approx(1));
  CHECK(found.step_fixed / truth.step_fixed == Approx(1));
  CHECK(found.link_efficiency == Approx(truth.link_efficiency).epsilon(0.05));
  CHECK(found.collective_base / truth.collective_base == Approx(1).epsilon(0.1));
  CHECK(found.context == 700_MiB);
  CHECK(found.nccl_per_communicator == 90_MiB);
  CHECK(found.nccl_per_peer == 250_MiB);
  CHECK(found.attention_parts == 256_MiB);
  CHECK(found.attention_deterministic == 1);
  CHECK(found.host_instruction == prior.host_instruction);
  CHECK(found.nic_efficiency == prior.nic_efficiency);
  CHECK(found.evidence == Evidence::calibrated);
  CHECK(found.name == "this-machine-gpus");
  CHECK(found.framework == "echelon");
}

TEST_CASE("the workspace of cuDNN's backward is not priced where the GPU ran Echelon's kernels") {
  Measurements measured;
  measured.gpu = four_gpus();
  measured.gpu->attention = "Echelon's kernels (cuDNN is not loaded: a test)";
  measured.gpu->attention_parts = Bytes{};
  measured.gpu->attention_deterministic = false;
  const ClusterTopology cluster = machine_of(*measured.gpu);
  Calibration prior = pick_calibration(cluster.gpu(), find_framework("echelon").value()).value();
  prior.attention_parts = 256_MiB;
  CHECK(calibrated_gpus(measured, cluster, prior, "a test").attention_parts == Bytes{});
  measured.gpu->attention.clear();  // attention was not measured
  CHECK(calibrated_gpus(measured, cluster, prior, "a test").attention_parts == 256_MiB);
}

TEST_CASE("rates not measured on GPUs are unchanged, and short shapes are ignored") {
  GpuFacts gpu = four_gpus();
  gpu.gpus = 1;
  gpu.context = gpu.communicator = gpu.attention_parts = Bytes{};
  const ClusterTopology cluster = machine_of(gpu);
  const Calibration prior =
      pick_calibration(cluster.gpu(), find_framework("echelon").value()).value();
  Measurements broken;
  broken.gpu = gpu;
  for (const char* what :
       {"gemm nt", "attention forward", "norm forward", "loss forward", "host of layers forward",
        "copy", "something else", "all_reduce", "clear and adam"}) {
    broken.all.push_back({what, 1, 1, {}, 1_ms});
  }
  const Calibration found = calibrated_gpus(broken, cluster, prior, "a test");
  CHECK(found.gemm_efficiency == prior.gemm_efficiency);
  CHECK(found.attention_forward == prior.attention_forward);
  CHECK(found.context == prior.context);
  CHECK(found.link_efficiency == prior.link_efficiency);
}
