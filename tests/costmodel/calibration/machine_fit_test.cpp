// The fit recovers the rates that measurements were generated with.
#include "costmodel/calibration/fit/machine.hpp"

#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "costmodel/time/rates.hpp"
#include "tests/support/catch.hpp"
#include "topologies/import/this_machine.hpp"

using namespace echelon;

namespace {

ClusterTopology machine() {
  HostFacts host;
  host.cores = 2;
  host.clock_ghz = 3;
  host.clock_source = host.simd_source = "test";
  host.flops_per_cycle = 32;
  host.memory = 8_GB;
  return this_machine(host, 2).value();
}

/// The measurements of a machine with these rates.
std::vector<Measurement> measured_with(const Calibration& c, const GpuSpec& rank) {
  const DeviceRates r = device_rates(rank, c, Dtype::fp32);
  std::vector<Measurement> all;
  for (const std::int64_t width : {128, 256, 512}) {
    for (const std::int64_t rows : {64, 256, 1024}) {
      const std::vector<std::int64_t> shape{rows, 4 * width, width};
      const auto d = [](std::int64_t n) { return static_cast<double>(n); };
      all.push_back({"gemm nt", 2, 1, shape, gemm_time(d(rows), d(4 * width), d(width), {}, r)});
      all.push_back({"gemm tn",
                     2,
                     1,
                     {4 * width, width, rows},
                     gemm_time(d(4 * width), d(width), d(rows), {}, r)});
    }
  }
  for (const std::int64_t s : {64, 256, 1024}) {
    const double n = static_cast<double>(s);
    const Flops work{2 * n * (n / 2) * 2 * 256};
    const double ramp = n / (n + c.attention_ramp);
    all.push_back({"attention forward", 2, 1, {s, 8, 32}, work / (r.attention_forward * ramp)});
    all.push_back(
        {"attention backward", 2, 1, {s, 8, 32}, 2.5 * work / (r.attention_backward * ramp)});
  }
  all.push_back({"clear and adam", 2, 1, {1 << 20}, Bytes{32.0 * (1 << 20)} / r.optimizer});
  all.push_back({"clear and adam", 2, 1, {1 << 10}, Seconds{1e-9}});  // fits into a cache
  for (const std::int64_t bytes : {1 << 10, 1 << 16, 1 << 22}) {
    GroupLinks links;
    links.ranks = links.ranks_per_domain = 2;
    links.intra = links.intra_exchange = 50_GBps * c.link_efficiency;
    links.base = c.collective_base;
    all.push_back(
        {"all_reduce", 2, 1, {bytes}, all_reduce(Bytes{static_cast<double>(bytes)}, links)});
  }
  for (const char* what : {"layers forward", "layers backward"}) {
    for (const std::int64_t hidden : {128, 256}) {
      Measurement layers{what, 2, 1, {2, hidden, 256, 1}, 1_s};
      const LayersMeasured parts = price_of(layers, rank, c);
      layers.seconds = parts.gemm + parts.attention + parts.pointwise / r.memory;
      all.push_back(layers);
    }
  }
  for (const Measurement& pass : std::vector<Measurement>(all.end() - 4, all.end())) {
    all.push_back({"fp64 " + pass.what, 2, 1, pass.shape, 2 / c.fp64_efficiency * pass.seconds});
  }
  for (const std::int64_t count : {4, 16, 64}) {
    all.push_back({"empty step",
                   2,
                   1,
                   {count},
                   c.step_fixed + static_cast<double>(count) * c.host_instruction});
  }
  return all;
}

}  // namespace

TEST_CASE("the fit recovers the rates that measurements were generated with") {
  const ClusterTopology cluster = machine();
  const Calibration prior =
      pick_calibration(cluster.gpu(), find_framework("echelon").value()).value();
  Calibration truth = prior;
  truth.gemm_efficiency = 0.62;
  truth.gemm_ramp = 48;
  truth.kernel_fixed = 3_us;
  truth.attention_forward = 0.21;
  truth.attention_backward = 0.13;
  truth.attention_ramp = 90;
  truth.memory_efficiency = 0.11;
  truth.optimizer_efficiency = 0.24;
  truth.fp64_efficiency = 0.17;
  truth.host_instruction = 4.5_us;
  truth.step_fixed = 123_us;
  truth.collective_base = 31_us;
  truth.link_efficiency = 0.17;
  const Calibration found =
      calibrated(measured_with(truth, cluster.gpu()), 1, cluster.gpu(), prior, "a test");
  CHECK(found.gemm_efficiency == Approx(truth.gemm_efficiency).epsilon(0.03));
  CHECK(found.gemm_ramp == Approx(truth.gemm_ramp).epsilon(0.1));
  CHECK(found.kernel_fixed / truth.kernel_fixed == Approx(1).epsilon(0.3));
  CHECK(found.attention_forward == Approx(truth.attention_forward).epsilon(0.03));
  CHECK(found.attention_backward == Approx(truth.attention_backward).epsilon(0.03));
  CHECK(found.attention_ramp == Approx(truth.attention_ramp).epsilon(0.1));
  CHECK(found.memory_efficiency == Approx(truth.memory_efficiency).epsilon(0.1));
  CHECK(found.optimizer_efficiency == Approx(truth.optimizer_efficiency).epsilon(0.001));
  CHECK(found.fp64_efficiency == Approx(truth.fp64_efficiency).epsilon(1e-6));
  CHECK(found.host_instruction / truth.host_instruction == Approx(1).epsilon(1e-6));
  CHECK(found.step_fixed / truth.step_fixed == Approx(1).epsilon(1e-6));
  CHECK(found.collective_base / truth.collective_base == Approx(1).epsilon(0.05));
  CHECK(found.link_efficiency == Approx(truth.link_efficiency).epsilon(0.05));
  CHECK(found.evidence == Evidence::calibrated);
  for (const auto& [key, source] : found.sources) {
    CAPTURE(key);
    CHECK(source.find("no measurement of this computer") == std::string::npos);
  }
  // Ranks with other core counts were not measured: the prior stays.
  const Calibration other =
      calibrated(measured_with(truth, cluster.gpu()), 2, cluster.gpu(), prior, "a test");
  CHECK(other.gemm_efficiency == prior.gemm_efficiency);
}
