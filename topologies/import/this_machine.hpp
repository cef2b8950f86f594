// This machine as a cluster: ranks that share its CPU cores, and the name of the cluster of its
// GPUs.
#pragma once

#include <cstdint>
#include <string>

#include "topologies/topology.hpp"

namespace echelon {

/// Properties of this machine as visible to the program.
struct HostFacts {
  int cores = 1;  ///< cores that the program may use
  double clock_ghz = 0;
  std::string clock_source;    ///< "sysfs: cpuinfo_max_freq", "assumed: ..."
  double flops_per_cycle = 0;  ///< fp32, per core
  std::string simd_source;     ///< "assumed: two fused multiply-adds of 8 lanes, for AVX2"
  Bytes memory;                ///< of the machine, or the program's limit
};

inline constexpr const char* kThisMachine = "this-machine";
/// The machine's GPUs, which `plan calibrate --backend cuda` detects and describes in a file. The
/// name differs from kThisMachine because a machine with GPUs also has CPU cores.
inline constexpr const char* kThisMachineGpus = "this-machine-gpus";
/// Name of the "GPU" that represents a rank on CPU cores.
inline constexpr const char* kCpuRank = "cpu";
inline constexpr int kMaxRanksHere = 64;

/// Cores of one rank if `ranks` ranks share the machine: ⌊cores / ranks⌋, at least one.
[[nodiscard]] int cores_of_rank(const HostFacts& host, std::int64_t ranks);

/// This machine with `ranks` ranks; `ranks` ≤ 0: one per core. The rates of a rank hold while it
/// runs:
///
///   FLOP/s     t · clock · flops per cycle,   t = cores_of_rank
///   bandwidth  t · 50 GB/s
///   memory     7/8 of the machine's / ranks
///   link       copies at the bandwidth of one core
///
/// Ranks in excess of the cores take turns (NodeSpec::cores, priced in
/// costmodel/time/step_time.cpp). The numbers are nominal; a calibration gives the achieved
/// fraction. Error: more than 64 ranks.
[[nodiscard]] Result<ClusterTopology> this_machine(const HostFacts& host, std::int64_t ranks);

}  // namespace echelon
