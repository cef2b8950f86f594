// Shared by the topology tests.
#pragma once

#include <initializer_list>
#include <string>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "topologies/graph/graph.hpp"
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

/// Checks that `text` contains every part, and shows the text otherwise.
inline void check_contains(const std::string& text, std::initializer_list<std::string> parts) {
  INFO(text);
  for (const std::string& part : parts) {
    INFO("should contain: " << part);
    CHECK(text.find(part) != std::string::npos);
  }
}

inline double gbps(BytesPerSecond rate) { return rate.in(1_GBps); }

}  // namespace echelon
