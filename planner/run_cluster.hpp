// The machine a row of a table ran on, as far as the row describes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/calibration.hpp"
#include "core/result.hpp"
#include "core/units.hpp"
#include "planner/runs_io.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// `gpus` GPUs of the row's kind: links by GPU name, node size from gpus_per_node, node network
/// from nic_gbps_per_node. What the row leaves out and matters is filled in with what that GPU is
/// usually sold with and told in `inferred`. Error: a GPU we have no description of.
[[nodiscard]] Result<ClusterTopology> cluster_of(const RunRow& row, std::int64_t gpus,
                                                 std::vector<std::string>& inferred);

/// Two rows with the same key run on the same machine.
[[nodiscard]] std::string cluster_key(const RunRow& row, std::int64_t gpus);

/// The network the job itself measured: an all-reduce over several nodes had this bus bandwidth.
/// The ring leaves each node at that rate, so it is the node's network; dividing by the share of
/// the described rate that `calibration` expects makes the priced all-reduce take the measured
/// time. Never more than the row's NICs (3.2 Tbit/s when it does not say). Unchanged without a
/// measurement, or inside one node.
/// Source: nccl-tests doc/PERFORMANCE.md, "Bus bandwidth".
[[nodiscard]] ClusterTopology with_measured_network(ClusterTopology cluster, const RunRow& row,
                                                    const Calibration& calibration);

/// Latency of one ring step, from the bus bandwidths that the job itself measured:
///
///   α = S/n · (1/max(B_ag, B_rs) − 1/B₀)
///
///   S   1.07 GB, the size the tables' jobs measured with     n   GPUs of the job
///   B₀  226 GB/s, what the ring reaches where latency does not count
///
/// Nothing without an all-gather and a reduce-scatter figure. May be below 0 inside one node.
/// Source: fitted to the nanotron rows of tests/validation/runs.csv (n ≥ 128: 29-38 µs).
/// Checked by: tests/planner/run_flags_test.cpp.
[[nodiscard]] std::optional<Seconds> measured_ring_step(const RunRow& row);
/// Above 75 µs per ring step: healthy jobs show 29-38 µs, the others 106-305 µs and more.
[[nodiscard]] bool has_slow_network(const RunRow& row);

}  // namespace echelon
