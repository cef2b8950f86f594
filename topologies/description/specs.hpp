// Specifications of a GPU, a node and the fabric above it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/units.hpp"
#include "core/plan/job.hpp"

namespace echelon {

/// Data-sheet numbers of one GPU. Rates are dense peaks (no sparsity); a rate of zero means that
/// the GPU has no such units.
struct GpuSpec {
  std::string name;  ///< "H100-SXM5-80GB"
  Bytes memory;      ///< memory that a program can allocate on an otherwise empty device
  BytesPerSecond hbm;
  FlopsPerSecond fp64, fp32, tf32, bf16, fp16, fp8;
  int sms = 0;
  double boost_mhz = 0;
  double watts = 0;  ///< board power (TDP); 0: unknown
  Bytes l2;
  Seconds launch;  ///< host time of one kernel launch
  double compute_capability = 0;
  bool peer_access = true;  ///< its driver lets GPUs of a node read each other's memory over PCIe
  std::string family;  ///< whose calibrations apply: "hopper"; "" where the description names none

  /// Dense peak for GEMMs with inputs of `dtype` (fp32 inputs use tf32 if available), or zero.
  [[nodiscard]] FlopsPerSecond peak(Dtype dtype) const;
  /// The format whose rate that is: "tf32" for fp32 inputs where it is available.
  [[nodiscard]] std::string_view peak_format(Dtype dtype) const;
};

/// One tier of the fabric above the node: the number of units of the tier below, and the bandwidth
/// lost by crossing it.
struct FabricTier {
  std::string name;             ///< "nvlink-rack", "leaf", "spine"
  int multiplicity = 1;         ///< units of the tier below inside one unit of this tier
  double oversubscription = 1;  ///< ≥ 1: bandwidth from below / bandwidth to the tier above
  Seconds latency;              ///< one-way latency it adds to the tiers below
};

/// Storage bandwidth per GPU where a description has none: 2 TB/s sustained for a cluster of 24,000
/// GPUs. Source: Llama 3 (arXiv 2407.21783, section 3.3.1), the storage of its training cluster.
inline constexpr BytesPerSecond kStorageBandwidthPerGpu{2e12 / 24e3};

/// The network that a node's cards (NICs) speak. `tcpx` is Google's GPUDirect-TCPX and -TCPXO.
enum class NicKind { infiniband, roce, efa, tcpx, slingshot, ethernet };
inline constexpr std::array kNicKinds = {NicKind::infiniband, NicKind::roce,
                                         NicKind::efa,        NicKind::tcpx,
                                         NicKind::slingshot,  NicKind::ethernet};
[[nodiscard]] std::string_view name_of(NicKind kind);

struct NodeSpec {
  std::string name;
  int gpus = 0;
  std::string interconnect;  ///< "nvswitch", "nvlink-mesh", "nvlink-bridge", "pcie"
  BytesPerSecond gpu_link;   ///< one GPU, one direction, sum of its in-node links
  int nics = 0;
  BytesPerSecond nic;               ///< one NIC, one direction
  std::optional<NicKind> nic_kind;  ///< nothing: the description does not say
  Bytes cpu_memory;
  BytesPerSecond pcie;  ///< GPU to host, one direction
  std::optional<Bytes> nvme;
  /// To the storage of training data and checkpoints, one direction.
  std::optional<BytesPerSecond> storage;
  int cores = 0;  ///< CPU cores that compute instead of GPUs: the "GPUs" are ranks that share them;
                  ///< 0: real GPUs

  /// Ranks of this node that compute concurrently; further ranks take turns.
  [[nodiscard]] int at_once() const { return cores > 0 && cores < gpus ? cores : gpus; }

  /// Whether the NICs are of the kind that NVIDIA's driver mlx5 serves, ConnectX. Assumed where the
  /// description does not say, and of all RoCE.
  [[nodiscard]] bool has_mlx5() const {
    return !nic_kind || *nic_kind == NicKind::infiniband || *nic_kind == NicKind::roce;
  }
};

}  // namespace echelon
