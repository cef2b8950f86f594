#include "tests/support/catch.hpp"
#include "topologies/topology.hpp"
#include <cstdio>

using namespace echelon;

TEST_CASE("all load") {
  for (const auto& name : cluster_catalog()) {
    const auto one = ClusterTopology::load(name, 0);
    if (!one.ok()) { FAIL_CHECK(one.error().message()); continue; }
    const auto cluster = one->resized(one->node().gpus == 4 ? 288 : 64);
    if (!cluster.ok()) { FAIL_CHECK(cluster.error().message()); continue; }
    std::printf("== %s D=%d\n", name.c_str(), cluster->domain_gpus());
    for (auto [r, s] : {std::pair{8, 1}, {2,1}, {2,4}, {4,2}, {16, 1}, {8, 8}, {32, 2}, {3, 8}, {5, 3}, {4,72},{72,4},{144,2}}) {
      auto g = cluster->group(r, s);
      std::printf("r%d s%d: per %d dom %d intra %.1f inter %.2f p2p %.2f lat %.2f/%.2f sharing %d\n", r, s, g.ranks_per_domain, g.domains, g.intra.in(1_GBps), g.inter.in(1_GBps), g.inter_per_rank.in(1_GBps), g.intra_latency.in(1_us), g.inter_latency.in(1_us), g.sharing_groups);
    }
  }
}
