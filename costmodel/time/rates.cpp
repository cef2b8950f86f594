#include "costmodel/time/rates.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace echelon {
namespace {

struct Tile {
  double rows, columns, efficiency;
};
constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 128, 0.94}, {128, 64, 0.8}};

double tile_utilisation(double m, double n, double sms, const Tile& tile, double groups) {
  const double tiles = groups * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
  const double waves = std::ceil(tiles / sms);
  return tile.efficiency * groups * m * n / (waves * sms * tile.rows * tile.columns);
}

}  // namespace

double power_factor(const GpuSpec& gpu, const Calibration& calibration) {
  constexpr double kExponent = 0.24;
  const double tflops = gpu.peak(Dtype::bf16).in(1_TFLOPS);
  if (gpu.watts <= 0 || tflops <= 0 || calibration.power_reference <= 0) return 1;
  return std::pow(gpu.watts / tflops / calibration.power_reference, kExponent);
}

AttentionSpeed attention_speed(const GpuSpec& gpu) {
  constexpr std::array kDoubled{10.3, 10.7};
  constexpr double kExposed = 0.67;
  const bool doubled = std::ranges::any_of(kDoubled, [&](double capability) {
    return std::abs(gpu.compute_capability - capability) < 0.01;
  });
  if (!doubled) return {};
  const auto faster = [](double share) {
    return (1 + kExposed * share) / (1 + kExposed * share / 2);
  };
  return {faster(1.0), faster(0.4)};
}

AttentionSpeed attention_speed(const GpuSpec& gpu, const Framework& framework) {
  constexpr AttentionSpeed kNewOnHopper{0.73 / 0.38, 0.62 / 0.30};
  constexpr double kHopper = 9;
  constexpr double kBlackwell = 10;
  if (framework.kernels != KernelLibrary::torch) return {};
  const double capability = gpu.compute_capability;
  if (framework.attention == AttentionKernels::flash_1) return {0.40 / 0.64, 0.30 / 0.52};
  const bool hopper = capability >= kHopper && capability < kBlackwell;
  if (framework.attention == AttentionKernels::newest && hopper) return kNewOnHopper;
  if (framework.attention == AttentionKernels::flash_2 && capability >= kBlackwell) {
    return {1 / kNewOnHopper.forward, 1 / kNewOnHopper.backward};
  }
  return {};
}

DeviceRates device_rates(const GpuSpec& gpu, const Calibration& calibration, Dtype dtype) {
  const Dtype wide = dtype == Dtype::fp8 ? Dtype::bf16 : dtype;
  const double speed = calibration.kernel_speed_factor * power_factor(gpu, calibration);
  const FlopsPerSecond half = gpu.peak(wide) * speed;
  const double narrow = dtype == Dtype::fp8 ? calibration.fp8_efficiency : 1.0;
  const double double_width = dtype == Dtype::fp64 ? calibration.fp64_efficiency : 1.0;
  const FlopsPerSecond kernels = half * double_width;
  const AttentionSpeed attention = attention_speed(gpu);
  return {.gemm = gpu.peak(dtype) * speed * calibration.gemm_efficiency * narrow * double_width,
          .gemm_ramp = calibration.gemm_ramp * (dtype == Dtype::fp8 ? calibration.fp8_ramp : 1.0),
          .attention_forward = kernels * calibration.attention_forward * attention.forward,
          .attention_backward = kernels * calibration.attention_backward * attention.backward,
          .attention_ramp = calibration.attention_ramp,
          .attention_overhead = calibration.attention_overhead,
          .memory = gpu.hbm * calibration.kernel_speed_factor * calibration.memory_efficiency *
                    double_width,
          .optimizer = gpu.hbm * calibration.optimizer_efficiency,
          .kernel_fixed = calibration.kernel_fixed / calibration.kernel_speed_factor,
          .sms = static_cast<double>(std::max(1, gpu.sms))};
}

double gemm_utilisation(double m, double n, double k, double sms, double ramp, double groups) {
  if (sms <= 1) return 1 / (1 + ramp * (1 / m + 1 / n + 1 / k));
  double best = 0;
  for (const Tile& tile : kTiles) {
    if (const double u = tile_utilisation(m, n, sms, tile, groups); u > best) best = u;
  }
  constexpr double kHalfRows = 90;
  if (groups > 1) best *= m / (m + kHalfRows);
  return best * k / (k + ramp);
}

Seconds gemm_time(double m, double n, double k, Bytes traffic, const DeviceRates& rates,
                  double groups) {
  const double u = gemm_utilisation(m, n, k, rates.sms, rates.gemm_ramp, groups);
  const Seconds math = Flops{groups * 2 * m * n * k} / (rates.gemm * u);
  return std::max(math, traffic / rates.memory) + rates.kernel_fixed;
}

Seconds attention_time(Flops work, Bytes traffic, double span, int kernels, FlopsPerSecond rate,
                       const DeviceRates& rates) {
  const double ramp = span / (span + rates.attention_ramp);
  return std::max(work / (rate * ramp), traffic / rates.memory) +
         rates.attention_overhead * (traffic / rates.memory) + kernels * rates.kernel_fixed;
}

Seconds elementwise_time(Bytes traffic, int kernels, const DeviceRates& rates) {
  return traffic / rates.memory + kernels * rates.kernel_fixed;
}

Seconds exposed_beside(Seconds comm, Seconds cover, const Calibration& c, bool overlaps) {
  const Seconds hidden = overlaps ? std::min(comm, c.dp_overlap * cover) : Seconds{};
  return comm - hidden + c.overlap_slowdown * hidden;
}

}  // namespace echelon
