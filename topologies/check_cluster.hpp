// The findings of `plan topo check`; the report shows them.
#pragma once

#include <string>
#include <vector>

#include "topologies/topology.hpp"

namespace echelon {

/// The findings on a description that was read without an error.
struct ClusterCheck {
  std::vector<std::string> verified;  ///< verified properties
  std::vector<std::string> warnings;  ///< valid, but probably unintended
};
/// Checks the description of `cluster`, one NVLink domain of it link by link.
[[nodiscard]] ClusterCheck check_cluster(const ClusterTopology& cluster);

}  // namespace echelon
