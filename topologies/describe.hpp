// What `plan topo list|show|check` tells: values; words and layout are the report's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

/// One line of a list of clusters.
struct ClusterSummary {
  std::string name;
  std::vector<std::string> aliases;
  std::string summary;  ///< one sentence
  std::string gpu;
  int gpus_per_node = 0;
  std::int64_t domain_gpus = 0;     ///< of one NVLink domain or PCIe box
  std::string interconnect;         ///< "nvswitch", "nvlink-mesh", "nvlink-bridge", "pcie"
  int nics = 0;                     ///< per node
  BytesPerSecond nic;               ///< one NIC, one direction
  std::vector<std::string> fabric;  ///< names of the tiers, from the node outwards
};
[[nodiscard]] ClusterSummary summary_of(const MachineDescription& machine);
/// The catalog, sorted by name.
[[nodiscard]] std::vector<ClusterSummary> list_clusters();

struct GpuSummary {
  std::string name;  ///< as "gpu" of a cluster file names it
  std::vector<std::string> aliases;
  GpuSpec spec;
};
/// The GPU catalog, sorted by name.
[[nodiscard]] std::vector<GpuSummary> list_gpus();

/// Rates that follow from a description through its graph.
struct DerivedRates {
  BytesPerSecond domain_egress;     ///< out of one domain, all its GPUs sending
  BytesPerSecond gpu_egress;        ///< one GPU's share of it, the worst GPU's
  BytesPerSecond domain_bisection;  ///< half of a domain to the other half
  BytesPerSecond ring;              ///< per rank, a ring over one whole domain
};

/// Everything one description says, each number with unit and source, in the file's order.
struct ClusterDetails {
  ClusterSummary summary;
  std::vector<Fact> facts;
  DerivedRates rates;
};
/// A catalog name, an alias, or a path.
[[nodiscard]] Result<ClusterDetails> describe_cluster(std::string_view name_or_path);

struct CheckReport {
  ClusterSummary summary;
  std::vector<std::string> verified;  ///< what was found to hold
  std::vector<std::string> warnings;  ///< readable, but probably not meant
};
/// Reads a description and says what was verified. What makes it unusable is an error.
[[nodiscard]] Result<CheckReport> check_cluster(std::string_view name_or_path);

}  // namespace echelon
