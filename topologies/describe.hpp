// Values for `plan topo list|show|check`; the report renders them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

/// One entry of the list of clusters.
struct ClusterSummary {
  std::string name;
  std::vector<std::string> aliases;
  std::string summary;  ///< one sentence
  std::string gpu;
  int gpus_per_node = 0;
  std::int64_t domain_gpus = 0;     ///< GPUs of one NVLink domain or PCIe box
  std::string interconnect;         ///< "nvswitch", "nvlink-mesh", "nvlink-bridge", "pcie"
  int nics = 0;                     ///< per node
  BytesPerSecond nic;               ///< one NIC, one direction
  std::vector<std::string> fabric;  ///< names of the tiers, from the node outwards
};
[[nodiscard]] ClusterSummary summary_of(const MachineDescription& machine);
/// The catalog, sorted by name.
[[nodiscard]] std::vector<ClusterSummary> list_clusters();

struct GpuSummary {
  std::string name;  ///< the name used for "gpu" in a cluster file
  std::vector<std::string> aliases;
  GpuSpec spec;
};
/// The GPU catalog, sorted by name.
[[nodiscard]] std::vector<GpuSummary> list_gpus();

/// Rates derived from the graph of a description.
struct DerivedRates {
  BytesPerSecond domain_egress;     ///< out of one domain while all its GPUs send
  BytesPerSecond gpu_egress;        ///< share of the GPU with the smallest share
  BytesPerSecond domain_bisection;  ///< half of a domain to the other half
  BytesPerSecond ring;              ///< per rank, a ring over one whole domain
};

/// The contents of a description: each number with unit and source, in the order of the file.
struct ClusterDetails {
  ClusterSummary summary;
  std::vector<Fact> facts;
  DerivedRates rates;
};
/// A catalog name, an alias, or a path.
[[nodiscard]] Result<ClusterDetails> describe_cluster(std::string_view name_or_path);

struct CheckReport {
  ClusterSummary summary;
  std::vector<std::string> verified;  ///< verified properties
  std::vector<std::string> warnings;  ///< valid, but probably unintended
};
/// Reads a description and reports what was verified. An unusable description is an error.
[[nodiscard]] Result<CheckReport> check_cluster(std::string_view name_or_path);

}  // namespace echelon
