// The machine that a row of a table ran on, as far as the row describes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "costmodel/cost_model.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// `gpus` GPUs of the row's kind: links by GPU name, node size from gpus_per_node, node network
/// from nic_gbps_per_node. Missing values that matter are filled in with the usual ones of systems
/// with that GPU and reported in `inferred`. Error: a GPU without a description.
[[nodiscard]] Result<ClusterTopology> cluster_of(const MeasuredRun& row, std::int64_t gpus,
                                                 std::vector<std::string>& inferred);

/// Two rows with the same key run on the same machine.
[[nodiscard]] std::string cluster_key(const MeasuredRun& row, std::int64_t gpus);

/// Latency of one ring step, from the bus bandwidths that the job itself measured:
///
///   α = S/n · (1/max(B_ag, B_rs) − 1/B₀)
///
///   S   1.07 GB, the size the tables' jobs measured with     n   GPUs of the job
///   B₀  226 GB/s, the ring's bandwidth where latency is negligible
///
/// Nothing without an all-gather and a reduce-scatter figure. May be below 0 inside one node.
/// Source: fitted to the nanotron rows of tests/validation/runs.csv (n ≥ 128: 29-38 µs).
/// Checked by: tests/evaluation/row_quality_test.cpp.
[[nodiscard]] std::optional<Seconds> measured_ring_step(const MeasuredRun& row);
/// The latency between nodes that makes a ring over all n GPUs of N nodes take measured_ring_step()
/// per step: α·n/(N − 1); on one node α itself.
[[nodiscard]] std::optional<Seconds> measured_hop(const MeasuredRun& row);
/// The job's own measurements of its network, or nothing: the bus bandwidth of an all-reduce over
/// several nodes, and measured_hop(), at least 20 µs.
[[nodiscard]] std::optional<MeasuredNetwork> measured_network(const MeasuredRun& row,
                                                              const ClusterTopology& cluster);
/// Whether the network measured by the job stalls (MeasuredNetwork::stalls()); false without a
/// measurement.
[[nodiscard]] bool has_slow_network(const MeasuredRun& row);

}  // namespace echelon
