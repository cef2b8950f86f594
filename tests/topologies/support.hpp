// Shared by the topology tests.
#pragma once

#include <string>

#include "tests/support/catch.hpp"
#include "topologies/graph.hpp"
#include "topologies/topology.hpp"

namespace echelon {

inline std::string machine_path(const std::string& name) {
  return std::string(ECHELON_SOURCE_DIR) + "/tests/topologies/machines/" + name + ".json";
}

inline ClusterTopology cluster_of(const std::string& name, std::int64_t gpus) {
  Result<ClusterTopology> cluster = ClusterTopology::load(name, gpus);
  if (!cluster) FAIL(cluster.error().message());
  return *cluster;
}

inline double gbps(BytesPerSecond rate) { return rate.in(1_GBps); }

}  // namespace echelon
