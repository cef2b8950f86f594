// Grouped products and quantised products next to published benchmarks.
#include <string>

#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/rates.hpp"
#include "tests/support/catch.hpp"
#include "topologies/topology.hpp"

using namespace echelon;

namespace {

DeviceRates rates(const char* cluster, Dtype dtype) {
  const GpuSpec gpu = ClusterTopology::load(cluster, 8).value().gpu();
  const Framework framework = find_framework("megatron-core").value();
  Calibration prior = prior_calibration(gpu, framework).value();
  prior.power_reference = 0;  // the tables give ratios, or rates of this very GPU
  return device_rates(gpu, prior, dtype);
}

/// The twelve products of a dense layer, 15,872 rows, hidden 4096, FFN 16384, and the casts of
/// their inputs.
Seconds dense_layer(const DeviceRates& r, double cast) {
  const double rows = 15872;
  const double h = 4096;
  const double shapes[][2] = {{3 * h, h}, {h, h}, {4 * h, h}, {h, 4 * h}};
  Seconds sum;
  for (const auto& [n, k] : shapes) {
    sum += gemm_time(rows, n, k, Bytes{2 * (rows * k + k * n + rows * n)}, r) +
           gemm_time(rows, k, n, Bytes{2 * (rows * k + k * n + rows * n)}, r) +
           gemm_time(k, n, rows, Bytes{2 * (rows * k + k * n + rows * n)}, r);
    if (cast > 0) sum += elementwise_time(Bytes{cast * rows * (k + n)}, 2, r);
  }
  return sum;
}

}  // namespace

TEST_CASE("grouped products reach DeepGEMM's published rates on H800") {
  // TFLOPS of fp8, experts x rows: README.md of DeepGEMM at 327ec92.
  const struct {
    double n, k, experts, rows, tflops;
  } published[] = {{4096, 7168, 4, 8192, 1346}, {4096, 7168, 2, 512, 1040},
                   {4096, 7168, 4, 256, 932},   {7168, 2048, 4, 8192, 1214},
                   {7168, 2048, 2, 512, 916},   {7168, 2048, 4, 256, 815}};
  const DeviceRates r = rates("dgx-h800", Dtype::fp8);
  for (const auto& [n, k, experts, rows, tflops] : published) {
    CAPTURE(n, rows);
    const Bytes traffic{experts * (rows * k + k * n + 2 * rows * n)};
    const Seconds time = gemm_time(rows, n, k, traffic, r, experts);
    CHECK(experts * 2 * rows * n * k / time.in(1_s) / 1e12 == Approx(tflops).epsilon(0.12));
  }
}

TEST_CASE("few rows per expert are slower than as many rows of one product") {
  const DeviceRates r = rates("dgx-h800", Dtype::bf16);
  const auto time = [&](double experts) {
    return gemm_time(4096 / experts, 4096, 4096, Bytes{}, r, experts);
  };
  CHECK(time(16) > 1.2 * time(1));
}

TEST_CASE("DeepSeek's casts move 5.1 bytes per element, read and written once per pass") {
  // arXiv 2412.19437, section 3.5.2: 2 bytes read, 1 written forward; 1 read, 1 written backward;
  // a scale of 4 bytes per 128 values with each of the three.
  const PrecisionRecipe own = find_precision("fp8:deepseek-v3").value();
  CHECK(own.cast == Approx(2 + 1 + 1 + 1 + 3 * 4.0 / 128));
  CHECK(find_precision("fp8:blockwise").value().cast == kBlockwiseCast);
}

TEST_CASE("quantised products are as much faster as TransformerEngine's benchmark says") {
  // Speed-ups over bf16 with the casts in them: TransformerEngine d0067d0d,
  // docs/examples/gemm_profiling, H200 NVL and B300.
  const struct {
    const char* cluster;
    double rate, cast, speedup;
  } published[] = {{"dgx-h200", 1, kDelayedCast, 1.69},
                   {"dgx-h200", 1, kCurrentCast, 1.58},
                   {"dgx-h200", 1, kBlockwiseCast, 1.40},
                   {"dgx-h200", 1, 0, 1.90},
                   {"dgx-b300", 1, kDelayedCast, 1.64},
                   {"dgx-b300", 1, kCurrentCast, 1.39},
                   {"dgx-b300", 1, 0, 1.92},
                   {"dgx-b300", kMxfp8Rate, kMxfp8Cast, 1.42},
                   {"dgx-b300", kMxfp8Rate, 0, 1.83},
                   {"dgx-b300", kNvfp4Rate, kNvfp4Cast, 1.98},
                   {"dgx-b300", kNvfp4Rate, 0, 3.48}};
  for (const auto& [cluster, rate, cast, speedup] : published) {
    CAPTURE(cluster, rate, cast);
    DeviceRates narrow = rates(cluster, Dtype::fp8);
    narrow.gemm *= rate;
    const Seconds wide = dense_layer(rates(cluster, Dtype::bf16), 0);
    CHECK(wide / dense_layer(narrow, cast) == Approx(speedup).epsilon(0.10));
  }
}
