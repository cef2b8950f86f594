// Calibration: the rates that no data sheet gives. The only place of fitted numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "core/plan/cost.hpp"
#include "costmodel/calibration/memory_band.hpp"

namespace echelon {

/// Rates of one (GPU, framework) pair. Efficiencies are fractions of the data-sheet peak.
/// Every rate has an entry in `sources`; shipped files are costmodel/catalog/calibrations/*.json.
struct Calibration {
  std::string name;
  std::string gpu_family;  ///< "hopper", "ampere" ... or a full GPU name
  std::string framework;   ///< framework it speaks of, or "any"
  Evidence evidence = Evidence::extrapolated;
  std::string fitted_to;  ///< the runs behind it, or "data sheets and published benchmarks"
  /// The GPU family without rates of its own to which those of `gpu_family` are applied: "rubin".
  /// "": none. Not part of a file.
  std::string stands_in_for{};

  // Device
  double kernel_speed_factor =
      1;                         ///< rates of GEMMs, attention and element-wise kernels times this
  double moe_speed_factor = 1;   ///< … of the routed experts times this: what their shapes do not
                                 ///< say of permutations and grouped GEMMs
  double gemm_efficiency = 0;    ///< large GEMM, of the dense peak, before tile quantisation
  double power_reference = 0;    ///< board power per bf16 peak of the GPU it belongs to, W per
                                 ///< TFLOP/s; 0: power plays no part (rates.hpp)
  double fp8_efficiency = 1;     ///< … times this for fp8 inputs
  double fp64_efficiency = 1;    ///< … and all rates but the optimizer's times this in fp64
  double gemm_ramp = 0;          ///< depth k at which a GEMM reaches half of that (rates.hpp)
  double fp8_ramp = 1;           ///< … of a GEMM with fp8 inputs times this
  Seconds kernel_fixed;          ///< device time of an empty kernel, paid by every kernel
  double attention_forward = 0;  ///< flash attention, causal FLOPs counted, of the bf16 peak
  double attention_backward = 0;
  double attention_ramp = 0;      ///< sequence length at which attention reaches half of that
  double attention_overhead = 0;  ///< further HBM traffic of rotary attention, in units of what its
                                  ///< kernels read and write: rotation in 32 bits, copies
  double memory_efficiency = 0;   ///< element-wise kernels, of the HBM peak
  double optimizer_efficiency = 0;  ///< optimizer passes, of the HBM peak

  // Host
  Seconds host_layer_forward;  ///< host work to launch one layer forward
  Seconds host_layer_backward;
  Seconds host_experts;  ///< more of it for a layer of experts, forward and backward together
  Seconds host_wait;  ///< a GPU's idle time when the host reads what it computed before launching
                      ///< more: from the end of the copy until the next kernel begins
  BytesPerSecond host_memory;  ///< host memory bandwidth of one node, for offloaded optimizers
  Seconds host_instruction;    ///< the executor's own work per instruction of the compute queue,
                               ///< where the cores that compute do it
  Seconds step_fixed;          ///< per step: data, logging, synchronisation
  double straggler_per_doubling = 0;  ///< step time lost per doubling of the nodes

  // Network
  double link_efficiency = 0;  ///< of the in-domain link (NVLink, PCIe)
  double nic_efficiency = 0;
  Seconds collective_base;       ///< fixed time of one collective
  Seconds intra_hop;             ///< per ring step inside a domain
  Seconds inter_hop;             ///< per ring step between domains, the fabric's own latency on top
  double switch_efficiency = 0;  ///< of the in-domain link left, when the switch adds (NVLS)
  Seconds switch_base;           ///< fixed time of a reduction in the switch, one way in and out
  // How the latency of a network measured in the job itself is felt (costmodel/cost_model.hpp,
  // MeasuredNetwork):
  double layer_latency_factor =
      1;  ///< by the host, per step between domains of a layer's collectives
  double ring_latency_factor = 0;  ///< data-parallel rings: per step inside a domain
  double bulk_latency_factor = 1;  ///< … and between domains of a stalling network
  double host_latency_factor =
      1;                    ///< there by the host, per ring step, an eighth of the measured one
  Seconds dp_rank_latency;  ///< per data-parallel rank of a reduction in DDP or all at once
  double dp_overlap = 0;    ///< share of the backward pass that data-parallel traffic can use
  double tp_overlap = 0;    ///< share of the paired GEMM that a tensor-parallel collective can use
  double overlap_slowdown = 0;  ///< compute time lost per second of overlapped communication

  // Memory outside our own tensors
  double allocator_reserve = 0;  ///< kept by the caching allocator, of activations and buffers
  double pending_collective_share =
      0;          ///< share of Framework::pending_collective_buffers that has not come back
  Bytes context;  ///< CUDA context and libraries
  /// More than that in figures of nvidia-smi: blocks that the allocator caches and would return
  /// before it runs out of memory. No part of what a plan needs.
  Bytes nvidia_smi_cache;
  Bytes nccl_per_communicator;
  Bytes nccl_per_peer;  ///< more of one that exchanges parts, for a peer behind an NVSwitch
  Bytes gemm_workspace;
  Bytes attention_parts;  ///< what attention's deterministic backward is to work in (largest_part);
                          ///< 0: it needs nothing
  double attention_deterministic = 0;  ///< 1: cuDNN's backward is deterministic at any size
                                       ///< (ECHELON_DETERMINISTIC=1), and was when it was measured

  // Honesty
  double time_band =
      0;  ///< β: 80 % of measured steps lie between step / (1 + β) and step · (1 + β)
  /// How far the memory that runs need lies from the predicted one; none: memory_band_of() assumes.
  std::optional<MemoryBand> memory_band{};

  struct Source {
    std::string field;
    std::string text;
  };
  std::vector<Source> sources;

  /// The GPU family and framework of the calibration that its file extends, where rates are taken
  /// from it.
  struct Parent {
    std::string gpu_family;
    std::string framework;
  };
  std::optional<Parent> parent{};
};

/// Widening of the band for software or GPUs without their own calibration: such models err by
/// 12-20 % on a framework left out of the fit, 15-40 % on a GPU left out.
inline constexpr double kUnseenBand = 0.2;

}  // namespace echelon
