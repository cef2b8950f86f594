// Device time of single operators from their shapes: roofline with tile quantisation.
#pragma once

#include "core/base/units.hpp"
#include "core/framework/framework.hpp"
#include "core/plan/job.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// A GPU's rates for one job, peak times efficiency: what the formulas below divide by.
struct DeviceRates {
  FlopsPerSecond gemm;
  double gemm_ramp = 0;
  FlopsPerSecond attention_forward;
  FlopsPerSecond attention_backward;
  double attention_ramp = 0;
  double attention_overhead = 0;
  BytesPerSecond memory;
  BytesPerSecond optimizer;
  Seconds kernel_fixed;
  double sms = 1;
};

/// Clock that a GPU sustains in matrix products, relative to the one whose rates a calibration
/// holds; where data sheets give boards of different power the same peak, the weaker one is slower:
///
///   (W / W₀)^0.24
///
///   W    board power / dense bf16 peak of the GPU
///   W₀   the same of the calibration's GPU (power_reference)
///
/// 1 where either is unknown. Source: MAMF of stas00/ml-engineering compute/accelerator@744d01e:
/// 252.9 of 312 TFLOP/s on A100 PCIe (300 W), 271.2 on A100 SXM4 (400 W); GH200 (900 W) over H100
/// SXM5 (700 W) gives an exponent of 0.17. Checked by: tests/costmodel/time/rates_test.cpp.
[[nodiscard]] double power_factor(const GpuSpec& gpu, const Calibration& calibration);

/// Speed of attention kernels relative to GPUs of the same family, whose special-function units
/// take two cycles for an exponential where those of Blackwell Ultra (compute capability 10.3) and
/// Rubin (10.7) take one:
///
///   (1 + φ·e) / (1 + φ·e/2)
///
///   e   time of the exponentials over that of the products: forward 4·128 FLOPs per exponential
///       with heads of 128, backward 10·128; at 16 exponentials and 8,192 16-bit FLOPs per clock
///       and SM of B200 1 and 0.4
///   φ   share of them that the products do not hide: 0.67, by which fp8 heads of 192 and 128,
///   whose
///       e is 1.6, run 1.35 times as fast
///
/// 1 on other GPUs. Source: NVIDIA, "Making Softmax More Efficient with NVIDIA Blackwell Ultra"
/// (2026-02, as quoted: 4,943 and 10,024 G exponentials/s on GB200 and GB300; DeepSeek-V3's
/// attention in fp8 35 % faster forward). Rubin: 2 times the exponentials of Blackwell in 32 bits
/// (4 in 16) per SM (an article of January 2026, as quoted in
/// forums.developer.nvidia.com/t/rubin-sm-rumours/366967), and as many 16-bit FLOPs: 4 PFLOP/s of
/// 224 SMs are 8,192 per clock at 2.18 GHz. Checked by: tests/costmodel/time/rates_test.cpp.
struct AttentionSpeed {
  double forward = 1;
  double backward = 1;
};
[[nodiscard]] AttentionSpeed attention_speed(const GpuSpec& gpu);

/// Speed of a framework's attention kernels relative to those of the runs that PyTorch's rates were
/// fitted to: on Hopper FlashAttention-2, whose rates FlashAttention-3 exceeds by 0.73/0.38 forward
/// and 0.62/0.30 backward (the two sets of rates in hopper.json and prior-hopper-torchtitan.json,
/// each with its source); on Blackwell cuDNN's, of whose rates FlashAttention-2 reaches half, as on
/// Hopper (assumed). FlashAttention-1 reaches 30-50 and 25-35 % of
/// the A100's peak (arXiv 2307.08691, introduction), 0.40/0.64 and 0.30/0.52 of ampere.json's
/// FlashAttention-2. 1 on other GPUs, and of frameworks with other kernels.
[[nodiscard]] AttentionSpeed attention_speed(const GpuSpec& gpu, const Framework& framework);

/// `dtype` of GEMM inputs; attention and element-wise kernels run in 16 bits (fp8 jobs too).
[[nodiscard]] DeviceRates device_rates(const GpuSpec& gpu, const Calibration& calibration,
                                       Dtype dtype);

/// Share of the tensor cores that work on a GEMM of m × n outputs and depth k:
///
///   u = max over tiles of  e_tile · m·n / (⌈tiles / SMs⌉ · SMs · tile area)   ·   k / (k + k½)
///
/// Tiles 256×128, 128×128 and 128×64 with relative efficiency 1, 0.94 and 0.8; a partial last wave
/// and partial edge tiles are idle cores. The tiles of a grouped GEMM fill the waves together; each
/// of its products has its own weights and rows, which costs another m / (m + 90).
///
/// A single SM stands for processor cores, which multiply blocks of any size, pack both operands
/// and write the result; a number moved costs as much as k½ products:
///
///   u = 1 / (1 + k½ · (1/m + 1/n + 1/k))
///
/// In (0, 1].
/// Source: wave quantisation, NVIDIA "Matrix Multiplication Background" user guide; NeuSight
/// (utilisation falls as 1/waves). Relative tile efficiencies: assumption, replaced by a fit.
/// Rows per expert: DeepGEMM 327ec92, README.md, grouped GEMMs in fp8 on H800: 1346, 1233, 1040,
/// 932 TFLOPS at 8192, 1024, 512, 256 rows of (n, k) = (4096, 7168), 1214, 925, 916, 815 of (7168,
/// 2048). Checked by: tests/costmodel/time/grouped_gemm_test.cpp.
[[nodiscard]] double gemm_utilisation(double m, double n, double k, double sms, double ramp,
                                      double groups = 1);

/// max(2mnk / (rate · u), traffic / HBM) + fixed.
[[nodiscard]] Seconds gemm_time(double m, double n, double k, Bytes traffic,
                                const DeviceRates& rates, double groups = 1);

/// max(work / (rate · s/(s + s½)), traffic / HBM) + fixed per kernel, s the keys one kernel sees.
[[nodiscard]] Seconds attention_time(Flops work, Bytes traffic, double span, int kernels,
                                     FlopsPerSecond rate, const DeviceRates& rates);

/// `kernels` launches that move `traffic` bytes through HBM.
[[nodiscard]] Seconds elementwise_time(Bytes traffic, int kernels, const DeviceRates& rates);

/// `comm` less what `cover` seconds of compute hide, plus what hiding it costs the compute:
///   comm − h + overlap_slowdown · h,   h = min(comm, dp_overlap · cover), 0 without overlap
[[nodiscard]] Seconds exposed_beside(Seconds comm, Seconds cover, const Calibration& c,
                                     bool overlaps);

}  // namespace echelon
