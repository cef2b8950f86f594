// ClusterTopology: the described machine. All numbers come from a description file, each with a
// source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "core/plan/process_grid.hpp"
#include "topologies/description/specs.hpp"

namespace echelon {

/// The network available to a group of ranks `first, first + stride, …` while all other groups of
/// the same pattern communicate. Raw rates; the cost model applies efficiencies.
struct GroupNetwork {
  int ranks = 1;
  int ranks_per_domain = 1;       ///< members inside one NVLink domain (or PCIe box), the maximum
  int domains = 1;                ///< domains the group touches
  BytesPerSecond intra;           ///< per rank and direction inside a domain, with sharing
  BytesPerSecond inter;           ///< of the whole group out of one domain and direction, after NIC
                                  ///< sharing with concurrent groups and fabric oversubscription
  BytesPerSecond inter_per_rank;  ///< point-to-point rate of one rank to another domain, while its
                                  ///< peers of the other groups also send
  BytesPerSecond intra_exchange;  ///< per rank to all others of its domain at once (all-to-all),
                                  ///< while all groups of the pattern do so
  BytesPerSecond inter_exchange;  ///< … to other domains, while all GPUs of its domain do so
  Seconds intra_latency;          ///< one hop inside the domain
  bool switch_reduces = false;    ///< the domain's switch adds and multicasts (NVSwitch since H100)
  Seconds inter_latency;   ///< one hop between domains, for the farthest tier the group spans
  int sharing_groups = 1;  ///< groups of this pattern that are active in one domain
};

class TopologyGraph;        // topologies/graph/graph.hpp: the Boost.Graph view
struct MachineDescription;  // topologies/description/description.hpp: the file's contents

class ClusterTopology {
 public:
  /// Loads a cluster by catalog name or path of a description file. `gpus` ≤ 0: the description's
  /// own size. Up to one node any size is valid; beyond it the size must be a multiple of the node
  /// (errors name the two nearest) and at most the description's maximum.
  [[nodiscard]] static Result<ClusterTopology> load(std::string_view name_or_path,
                                                    std::int64_t gpus);
  [[nodiscard]] static Result<ClusterTopology> parse(std::string_view json, std::string_view where,
                                                     std::int64_t gpus);
  /// `gpus` GPUs of a machine that is already described, under the same rules as load.
  [[nodiscard]] static Result<ClusterTopology> of(MachineDescription machine, std::int64_t gpus);
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const std::string& description() const;
  [[nodiscard]] int gpus() const;
  [[nodiscard]] int gpus_per_node() const;  ///< in use: min(node size, gpus())
  [[nodiscard]] int nodes() const;
  [[nodiscard]] int domain_gpus() const;  ///< in use of one NVLink domain: placement.hpp
  [[nodiscard]] const GpuSpec& gpu() const;
  [[nodiscard]] const NodeSpec& node() const;
  [[nodiscard]] const std::vector<FabricTier>& tiers() const;  ///< from the node outwards
  [[nodiscard]] int rails() const;                             ///< leaf planes of the NICs; 0: none
  [[nodiscard]] const MachineDescription& machine() const;
  /// Between a GPU and its host's memory, one direction, while all GPUs of its PCIe switch or its
  /// CPU copy.
  [[nodiscard]] BytesPerSecond host_link() const;
  /// Of all nodes in use to the storage of training data and checkpoints, one direction: that of
  /// the description, else kStorageBandwidthPerGpu.
  [[nodiscard]] BytesPerSecond storage_bandwidth() const {
    return node().storage ? *node().storage * nodes() : kStorageBandwidthPerGpu * gpus();
  }
  [[nodiscard]] std::optional<Dollars> price_per_gpu_hour() const;
  [[nodiscard]] std::optional<Seconds> mtbf_per_node() const;
  /// The same machine with another number of GPUs (same rules as load). Cheap if the size of the
  /// domain in use does not change.
  [[nodiscard]] Result<ClusterTopology> resized(std::int64_t gpus) const;
  /// The same machine with another NIC bandwidth per node, one direction, spread over its NICs (the
  /// network of a measured table). The slots of the NICs are assumed to be wide enough.
  [[nodiscard]] ClusterTopology with_node_network(BytesPerSecond per_node) const;
  /// The same machine with other GPUs in the same places, for what-if questions.
  [[nodiscard]] ClusterTopology with_gpu(GpuSpec gpu) const;

  /// Cheap (no allocation, no graph walk), since the search calls it hundreds of thousands of
  /// times. `ranks` ≥ 1, `stride` ≥ 1, ranks·stride ≤ gpus(); alignment is not required. The
  /// numbers are those of the group with the worst placement (placement.hpp) and equal the results
  /// of graph(), which works link by link.
  ///
  ///   intra           group_bandwidth() of the graph with all groups of this kind active
  ///   inter           regular placement: fair_egress() of the graph; otherwise the minimum of
  ///   members
  ///                   in a domain × one GPU's share while all GPUs send
  ///   inter_per_rank  fair_egress() of the min(stride, domain) GPUs at the end of a domain,
  ///                   or of the receiving ones at the beginning, whichever is smaller
  ///   intra_exchange  exchange_bandwidth() of the graph with all groups of this kind active
  ///   inter_exchange  fair_egress() of all GPUs of a domain
  ///   all inter       ÷ Π oversubscription of the network tiers left upward
  ///   inter_latency   NIC + Σ latency of the network tiers crossed
  ///
  /// Assumes: ranks fill domains in order; all groups of the pattern communicate concurrently.
  /// Checked by: tests/topologies/graph/group_test.cpp.
  [[nodiscard]] GroupNetwork group(RankGroup of) const;

  /// The Boost.Graph view of one node and the fabric tiers above it.
  [[nodiscard]] const TopologyGraph& graph() const;

 private:
  struct State;
  explicit ClusterTopology(std::shared_ptr<const State> state);
  static Result<ClusterTopology> build(std::shared_ptr<const MachineDescription> machine,
                                       std::int64_t gpus, const State* reuse);
  /// Immutable and shared by copies, since the search copies clusters thousands of times.
  std::shared_ptr<const State> state_;
};

/// Names of the cluster catalog, sorted.
[[nodiscard]] std::vector<std::string> cluster_catalog();

}  // namespace echelon
