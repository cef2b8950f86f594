// The computer a program runs on as a cluster: ranks that share its processor cores, and the name
// of the one its GPUs are.
#pragma once

#include <cstdint>
#include <string>

#include "topologies/topology.hpp"

namespace echelon {

/// What a program can see of the computer it runs on.
struct HostFacts {
  int cores = 1;  ///< it may use
  double clock_ghz = 0;
  std::string clock_source;    ///< "sysfs: cpuinfo_max_freq", "assumed: ..."
  double flops_per_cycle = 0;  ///< fp32, of one core
  std::string simd_source;     ///< "assumed: two fused multiply-adds of 8 lanes, for AVX2"
  Bytes memory;                ///< of the computer, or what this program may use of it
};

inline constexpr const char* kThisMachine = "this-machine";
/// The computer's GPUs, as `plan calibrate --backend cuda` found and described them in a file.
/// Another name, because a computer with GPUs has processor cores too.
inline constexpr const char* kThisMachineGpus = "this-machine-gpus";
/// Name of the "GPU" that a rank on processor cores is.
inline constexpr const char* kCpuRank = "cpu";
inline constexpr int kMostRanksHere = 64;

/// Cores of one rank when `ranks` of them share the computer: ⌊cores / ranks⌋, one at least.
[[nodiscard]] int cores_of_rank(const HostFacts& host, std::int64_t ranks);

/// The computer for `ranks` ranks; one per core when that is ≤ 0. A rank's rates are those it has
/// while it runs:
///
///   FLOP/s     t · clock · flops per cycle,   t = cores_of_rank
///   bandwidth  t · 50 GB/s
///   memory     7/8 of the computer's / ranks
///   link       copies at the bandwidth of one core
///
/// More ranks than cores take turns (NodeSpec::cores, priced in costmodel/time/step_time.cpp).
/// Nominal numbers: a calibration says what of them is reached. Error: more than 64 ranks.
[[nodiscard]] Result<ClusterTopology> this_machine(const HostFacts& host, std::int64_t ranks);

}  // namespace echelon
