// ClusterTopology: the described machine. Numbers come from a description file; each has a source.
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

/// What a group of ranks `first, first + stride, …` sees of the network when every other group of
/// the same kind communicates at the same time. Raw rates; the cost model applies efficiencies.
struct GroupNetwork {
  int ranks = 1;
  int ranks_per_domain = 1;  ///< members inside one NVLink domain (or PCIe box), its fullest one
  int domains = 1;           ///< domains the group touches
  BytesPerSecond intra;      ///< per rank and direction inside a domain, shared groups accounted
  BytesPerSecond inter;      ///< of the whole group out of one domain and direction, after NIC
                             ///< sharing with concurrent groups and fabric oversubscription
  BytesPerSecond inter_per_rank;  ///< a single rank's point-to-point rate to another domain, when
                                  ///< its peers of the other groups send at the same time
  Seconds intra_latency;          ///< one hop inside the domain
  bool switch_reduces = false;    ///< the domain's switch adds and multicasts (NVSwitch since H100)
  Seconds inter_latency;   ///< one hop between domains, for the farthest tier the group spans
  int sharing_groups = 1;  ///< groups of this kind active in one domain at once
};

class TopologyGraph;        // topologies/graph/graph.hpp: the Boost.Graph view
struct MachineDescription;  // topologies/description/description.hpp: what the file says, with
                            // sources

class ClusterTopology {
 public:
  /// A catalog name or a path to a description file. `gpus` ≤ 0 takes the description's own size.
  /// Up to one node any size is valid; above it a multiple of the node (the two neighbours offered)
  /// and at most what the description states.
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
  [[nodiscard]] int domain_gpus() const;  ///< GPUs of one NVLink domain (rack for NVL72)
  [[nodiscard]] const GpuSpec& gpu() const;
  [[nodiscard]] const NodeSpec& node() const;
  [[nodiscard]] const std::vector<FabricTier>& tiers() const;  ///< from the node outwards
  [[nodiscard]] int rails() const;  ///< leaf planes the NICs are wired in; 0: none
  [[nodiscard]] const MachineDescription& machine() const;
  [[nodiscard]] std::optional<Dollars> price_per_gpu_hour() const;
  [[nodiscard]] std::optional<Seconds> mtbf_per_node() const;
  /// The same machine with another number of GPUs (same rules as load). Cheap when the domain in
  /// use stays the same size.
  [[nodiscard]] Result<ClusterTopology> resized(std::int64_t gpus) const;
  /// The same machine with other NIC bandwidth per node, one direction, spread over its NICs (a
  /// measured table's own network). The slots of the NICs are taken to be wide enough.
  [[nodiscard]] ClusterTopology with_node_network(BytesPerSecond per_node) const;
  /// The same machine with other GPUs in the same places: what if they computed faster?
  [[nodiscard]] ClusterTopology with_gpu(GpuSpec gpu) const;

  /// Cheap (no allocation, no graph walk): called hundreds of thousands of times by the search.
  /// ranks ≥ 1, stride ≥ 1; ranks·stride ≤ gpus() is not required to be aligned. The numbers are
  /// those of the group worst off (placement.hpp) and equal what graph() computes link by link.
  ///
  ///   intra           group_bandwidth() of the graph with all groups of this kind active
  ///   inter           regular placement: fair_egress() of the graph; otherwise the fewest members
  ///                   in a domain × one GPU's share when all GPUs send
  ///   inter_per_rank  fair_egress() of the min(stride, domain) GPUs at the end of a domain,
  ///                   or of those at the beginning that receive, the lesser
  ///   both inter      ÷ Π oversubscription of the network tiers crossed
  ///   inter_latency   NIC + Σ latency of the network tiers crossed
  ///
  /// Assumes: ranks in order fill domains; all groups of the kind communicate at once.
  /// Checked by: tests/topologies/graph/group_test.cpp.
  [[nodiscard]] GroupNetwork group(RankGroup of) const;

  /// The Boost.Graph view of one node and the fabric tiers above it.
  [[nodiscard]] const TopologyGraph& graph() const;

 private:
  struct State;
  explicit ClusterTopology(std::shared_ptr<const State> state);
  static Result<ClusterTopology> build(std::shared_ptr<const MachineDescription> machine,
                                       std::int64_t gpus, const State* reuse);
  /// Immutable, so copies share it: the search copies clusters by the thousand.
  std::shared_ptr<const State> state_;
};

/// Names of the cluster catalog, sorted.
[[nodiscard]] std::vector<std::string> cluster_catalog();

}  // namespace echelon
