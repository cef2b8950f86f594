#include "costmodel/time/rates.hpp"

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("a GEMM of whole waves and unlimited depth uses every core") {
  CHECK(gemm_utilisation(256 * 132, 128, 1e9, 132, 192) == Approx(1.0).epsilon(1e-6));
}

TEST_CASE("one tile more than a wave wastes almost a wave") {
  const double full = gemm_utilisation(256 * 132, 128, 1e9, 132, 0);
  const double over = gemm_utilisation(256 * 133, 128, 1e9, 132, 0);
  CHECK(over < 0.78 * full);
}

TEST_CASE("utilisation is positive and at most one, and a shallow GEMM is slow") {
  for (const double m : {1.0, 100.0, 4096.0}) {
    for (const double k : {1.0, 64.0, 8192.0}) {
      const double u = gemm_utilisation(m, 777, k, 108, 128);
      CHECK(u > 0);
      CHECK(u <= 1);
    }
  }
  CHECK(gemm_utilisation(4096, 4096, 128, 108, 128) ==
        Approx(gemm_utilisation(4096, 4096, 1e12, 108, 128) / 2));
}

TEST_CASE("a processor core multiplies blocks of any size, and pays for every number it moves") {
  CHECK(gemm_utilisation(64, 3072, 768, 1, 0) == 1);
  // Half of it where packing costs as much as the products; whichever of the three is small.
  for (const auto& [m, n, k] : {std::tuple{10.0, 1e9, 1e9}, {1e9, 10.0, 1e9}, {1e9, 1e9, 10.0}}) {
    CHECK(gemm_utilisation(m, n, k, 1, 10) == Approx(0.5));
  }
  CHECK(gemm_utilisation(40, 40, 40, 1, 10) == Approx(1 / 1.75));
}

TEST_CASE("fp64 has its own peak and efficiency") {
  GpuSpec rank;
  rank.hbm = 50_GBps;
  rank.fp32 = 0.2_TFLOPS;
  rank.fp64 = 0.1_TFLOPS;
  Calibration c;
  c.gemm_efficiency = c.attention_forward = c.memory_efficiency = c.optimizer_efficiency = 0.5;
  c.fp64_efficiency = 0.4;
  const DeviceRates single = device_rates(rank, c, Dtype::fp32);
  const DeviceRates wide = device_rates(rank, c, Dtype::fp64);
  CHECK(wide.gemm / single.gemm == Approx(0.2));
  CHECK(wide.attention_forward / single.attention_forward == Approx(0.2));
  CHECK(wide.memory / single.memory == Approx(0.4));
  CHECK(wide.optimizer / single.optimizer == Approx(1));
}

TEST_CASE("of two boards with one peak the one with less power is slower") {
  GpuSpec strong;
  strong.hbm = 3350_GBps;
  strong.bf16 = 989_TFLOPS;
  strong.watts = 700;
  GpuSpec weak = strong;
  weak.watts = 500;
  Calibration c;
  c.gemm_efficiency = c.attention_forward = c.memory_efficiency = 0.5;
  CHECK(power_factor(weak, c) == 1);  // of an unknown reference
  c.power_reference = 700 / 989.0;
  CHECK(power_factor(strong, c) == Approx(1));
  CHECK(power_factor(weak, c) == Approx(0.922).epsilon(0.001));
  const DeviceRates slow = device_rates(weak, c, Dtype::bf16);
  const DeviceRates fast = device_rates(strong, c, Dtype::bf16);
  CHECK(slow.gemm / fast.gemm == Approx(0.922).epsilon(0.001));
  CHECK(slow.attention_forward / fast.attention_forward == Approx(0.922).epsilon(0.001));
  CHECK(slow.memory == fast.memory);
  weak.watts = 0;  // unknown
  CHECK(power_factor(weak, c) == 1);
}

TEST_CASE("fp8 GEMMs have a ramp of their own") {
  GpuSpec gpu;
  gpu.hbm = 3350_GBps;
  gpu.bf16 = 989_TFLOPS;
  gpu.fp8 = 1979_TFLOPS;
  Calibration c;
  c.gemm_ramp = 200;
  c.fp8_ramp = 1.5;
  CHECK(device_rates(gpu, c, Dtype::bf16).gemm_ramp == Approx(200));
  CHECK(device_rates(gpu, c, Dtype::fp8).gemm_ramp == Approx(300));
}

TEST_CASE("a thin GEMM is bound by memory") {
  DeviceRates rates;
  rates.gemm = 989_TFLOPS;
  rates.memory = 3000_GBps;
  rates.sms = 132;
  CHECK(gemm_time(8, 8192, 8192, 134_MB, rates).in(1_us) == Approx(134e6 / 3000e9 * 1e6));
}

TEST_CASE("every kernel pays its fixed time") {
  DeviceRates rates;
  rates.memory = 1000_GBps;
  rates.kernel_fixed = 3_us;
  CHECK(elementwise_time(1_MB, 2, rates).in(1_us) == Approx(1 + 6));
}

TEST_CASE("pace scales every device rate of the layers, and fp8 has an efficiency of its own") {
  GpuSpec gpu;
  gpu.hbm = 3000_GBps;
  gpu.bf16 = 1000_TFLOPS;
  gpu.fp8 = 2000_TFLOPS;
  Calibration c;
  c.kernel_speed_factor = 0.8;
  c.gemm_efficiency = 0.5;
  c.fp8_efficiency = 0.75;
  c.attention_forward = 0.4;
  c.memory_efficiency = 0.9;
  c.kernel_fixed = 4_us;
  const DeviceRates wide = device_rates(gpu, c, Dtype::bf16);
  CHECK(wide.gemm.in(1_TFLOPS) == Approx(1000 * 0.8 * 0.5));
  CHECK(wide.attention_forward.in(1_TFLOPS) == Approx(1000 * 0.8 * 0.4));
  CHECK(wide.memory.in(1_GBps) == Approx(3000 * 0.8 * 0.9));
  CHECK(wide.kernel_fixed.in(1_us) == Approx(4 / 0.8));
  const DeviceRates narrow = device_rates(gpu, c, Dtype::fp8);
  CHECK(narrow.gemm.in(1_TFLOPS) == Approx(2000 * 0.8 * 0.5 * 0.75));
  CHECK(narrow.attention_forward == wide.attention_forward);  // flash attention runs in 16 bits
  CHECK(narrow.memory == wide.memory);
}

TEST_CASE("attention kernels of other generations are faster or slower than those of the runs") {
  Framework torch;
  GpuSpec gpu;
  gpu.compute_capability = 9.0;
  CHECK(attention_speed(gpu, torch).forward == 1);
  torch.attention = AttentionKernels::newest;
  CHECK(attention_speed(gpu, torch).forward == Approx(1.92).epsilon(0.01));
  CHECK(attention_speed(gpu, torch).backward == Approx(2.07).epsilon(0.01));
  gpu.compute_capability = 8.0;
  CHECK(attention_speed(gpu, torch).forward == 1);
  gpu.compute_capability = 10.0;
  CHECK(attention_speed(gpu, torch).forward == 1);
  torch.attention = AttentionKernels::flash_2;
  CHECK(attention_speed(gpu, torch).forward == Approx(1 / 1.92).epsilon(0.01));
  gpu.compute_capability = 9.0;
  CHECK(attention_speed(gpu, torch).forward == 1);
  torch.attention = AttentionKernels::flash_1;
  CHECK(attention_speed(gpu, torch).forward == Approx(0.625));
  torch.kernels = KernelLibrary::megatron;
  CHECK(attention_speed(gpu, torch).forward == 1);
}

TEST_CASE("copies around attention take bytes, and nothing of its products") {
  DeviceRates rates;
  rates.memory = 1000_GBps;
  const FlopsPerSecond rate = 100_TFLOPS;
  const auto time = [&](Bytes traffic) {
    return attention_time(Flops{1e12}, traffic, 4096, 1, rate, rates);
  };
  const Seconds bare = time(1_GB);
  CHECK(bare.in(1_ms) == Approx(10));
  rates.attention_overhead = 2;
  CHECK((time(1_GB) - bare).in(1_ms) == Approx(2));
  CHECK((time(3_GB) - bare).in(1_ms) == Approx(6));
}

TEST_CASE("twice the exponentials speed attention up by what products do not hide of them") {
  GpuSpec gpu;
  gpu.compute_capability = 10.0;
  CHECK(attention_speed(gpu).forward == 1);
  gpu.compute_capability = 10.3;
  CHECK(attention_speed(gpu).forward == Approx(1.25).epsilon(0.005));
  CHECK(attention_speed(gpu).backward == Approx(1.12).epsilon(0.005));
  gpu.compute_capability = 10.7;  // Rubin
  CHECK(attention_speed(gpu).forward == Approx(1.25).epsilon(0.005));
  // What was published: products in fp8 take half the cycles, heads of 192 and 128 1.25 times as
  // many.
  const double exponentials = 2 / 1.25;
  CHECK((1 + 0.67 * exponentials) / (1 + 0.67 * exponentials / 2) == Approx(1.35).epsilon(0.005));
  GpuSpec device;
  device.hbm = 8000_GBps;
  device.sms = 160;
  device.compute_capability = 10.3;
  device.bf16 = 2500_TFLOPS;
  Calibration c;
  c.attention_forward = c.attention_backward = 0.5;
  const DeviceRates fast = device_rates(device, c, Dtype::bf16);
  device.compute_capability = 10.0;
  const DeviceRates plain = device_rates(device, c, Dtype::bf16);
  CHECK(fast.attention_forward / plain.attention_forward == Approx(1.25).epsilon(0.005));
  CHECK(fast.gemm == plain.gemm);
}
