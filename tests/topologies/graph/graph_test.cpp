#include "topologies/graph/graph.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/topologies/support.hpp"

using namespace echelon;

namespace {

double bandwidth(const TopologyGraph& graph, std::vector<Group> groups) {
  return gbps(graph.group_bandwidth(groups));
}

Group all_of(const TopologyGraph& graph) {
  Group all(static_cast<std::size_t>(graph.gpus()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::size_t count(const TopologyGraph& graph, DeviceKind kind) {
  std::size_t found = 0;
  for (const DeviceId id : boost::make_iterator_range(boost::vertices(graph.devices()))) {
    if (graph.devices()[id].kind == kind) ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("a DGX H100 node is 8 GPUs, a switch, 2 sockets, 8 PCIe switches, 8 NICs") {
  const ClusterTopology cluster = cluster_of("dgx-h100", 64);
  const TopologyGraph& graph = cluster.graph();
  CHECK(count(graph, DeviceKind::gpu) == 8);
  CHECK(count(graph, DeviceKind::nvswitch) == 1);
  CHECK(count(graph, DeviceKind::socket) == 2);
  CHECK(count(graph, DeviceKind::pcie_switch) == 8);
  CHECK(count(graph, DeviceKind::nic) == 8);
  CHECK(count(graph, DeviceKind::fabric) == 3);
}

TEST_CASE("the graph of 100,000 GPUs is as large as that of 1,000") {
  const ClusterTopology small = cluster_of("dgx-h100", 1'000);
  const ClusterTopology large = cluster_of("dgx-h100", 100'000);
  CHECK(boost::num_vertices(small.graph().devices()) ==
        boost::num_vertices(large.graph().devices()));
  CHECK(boost::num_edges(small.graph().devices()) == boost::num_edges(large.graph().devices()));
}

TEST_CASE("the widest path between two GPUs of a node is the NVSwitch") {
  const ClusterTopology cluster = cluster_of("dgx-a100", 16);
  const WidestPath path =
      cluster.graph().widest_path(cluster.graph().gpu(0), cluster.graph().gpu(5));
  CHECK(gbps(path.bandwidth) == Approx(300));
  REQUIRE(path.devices.size() == 3);
  CHECK(cluster.graph().devices()[path.devices[1]].kind == DeviceKind::nvswitch);
}

TEST_CASE("without NVLink the widest path crosses the slow link between the sockets") {
  const ClusterTopology cluster = cluster_of("rtx-4090", 8);
  const TopologyGraph& graph = cluster.graph();
  CHECK(gbps(graph.widest_path(graph.gpu(0), graph.gpu(1)).bandwidth) == Approx(31.5));
  CHECK(gbps(graph.widest_path(graph.gpu(0), graph.gpu(7)).bandwidth) == Approx(16));
}

TEST_CASE("on a cube mesh the widest path relays over the double links") {
  const ClusterTopology cluster = cluster_of("dgx-v100", 8);
  const TopologyGraph& graph = cluster.graph();
  const WidestPath path = graph.widest_path(graph.gpu(0), graph.gpu(1));
  CHECK(gbps(path.bandwidth) == Approx(50));  // the direct link has 25
  CHECK(path.devices.size() > 2);
}

TEST_CASE("the widest path to a NIC is as wide as the narrowest link on it") {
  const ClusterTopology cluster = cluster_of(machine_path("odd"), 6);
  const TopologyGraph& graph = cluster.graph();
  CHECK(gbps(graph.widest_path(graph.gpu(0), graph.nic(0)).bandwidth) == Approx(16));
}

TEST_CASE("a ring keeps the ranks of a node together") {
  const ClusterTopology cluster = cluster_of("dgx-h100", 32);
  CHECK(cluster.graph().ring({17, 3, 9, 1, 25, 8}) == std::vector<int>{1, 3, 8, 9, 17, 25});
}

TEST_CASE("the ring on a cube mesh has the best bottleneck of all orders") {
  const ClusterTopology cluster = cluster_of("dgx-v100", 8);
  const TopologyGraph& graph = cluster.graph();
  const auto link = [&](int a, int b) {
    double best = 0;
    for (const auto e :
         boost::make_iterator_range(boost::out_edges(graph.gpu(a), graph.devices()))) {
      if (boost::target(e, graph.devices()) != graph.gpu(b)) continue;
      best = std::max(best, gbps(graph.devices()[e].bandwidth));
    }
    // Through the PCIe tree: x16 slots, 6 GB/s between the sockets.
    return std::max(best, a / 4 == b / 4 ? 15.75 : 6.0);
  };
  const auto bottleneck = [&](const std::vector<int>& order) {
    double narrowest = 1e9;
    for (std::size_t i = 0; i < order.size(); ++i) {
      narrowest = std::min(narrowest, link(order[i], order[(i + 1) % order.size()]));
    }
    return narrowest;
  };
  for (const Group& group : std::vector<Group>{{0, 1, 2, 3, 4, 5, 6, 7},
                                               {0, 1, 4, 6},
                                               {0, 2, 5, 7},
                                               {1, 3, 4, 6, 7},
                                               {0, 1, 2, 3, 6, 7}}) {
    Group order = group;
    double best = 0;
    do {
      best = std::max(best, bottleneck(order));
    } while (std::next_permutation(order.begin() + 1, order.end()));
    CHECK(bottleneck(graph.ring(group)) == Approx(best));
  }
}

TEST_CASE("three rings used both ways fill all six links of a V100") {
  const ClusterTopology cluster = cluster_of("dgx-v100", 8);
  CHECK(bandwidth(cluster.graph(), {all_of(cluster.graph())}) == Approx(6 * 25));
}

TEST_CASE("a pair on a mesh uses the links between its GPUs") {
  const ClusterTopology cluster = cluster_of("dgx-v100", 8);
  CHECK(bandwidth(cluster.graph(), {{0, 3}}) == Approx(50));
  CHECK(bandwidth(cluster.graph(), {{0, 1}}) == Approx(25));
}

TEST_CASE("a pair without a common NVLink falls back to PCIe") {
  const ClusterTopology cluster = cluster_of("dgx-v100", 8);
  CHECK(bandwidth(cluster.graph(), {{0, 7}}) == Approx(6));
}

TEST_CASE("eight fully joined GPUs have three link-disjoint rings") {
  const ClusterTopology cluster = cluster_of(machine_path("full-mesh"), 8);
  CHECK(bandwidth(cluster.graph(), {all_of(cluster.graph())}) == Approx(6 * 64));
}

TEST_CASE("pairs across the sockets of a PCIe box share the link between them") {
  const ClusterTopology cluster = cluster_of("a100-pcie", 8);
  const TopologyGraph& graph = cluster.graph();
  CHECK(bandwidth(graph, {{0, 4}}) == Approx(16));
  CHECK(bandwidth(graph, {{0, 4}, {1, 5}}) == Approx(8));
  CHECK(bandwidth(graph, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}) == Approx(4));
  CHECK(bandwidth(graph, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}) == Approx(31.5));
}

TEST_CASE("a bridge serves only its own pair") {
  const ClusterTopology cluster = cluster_of(machine_path("lab-box"), 4);
  CHECK(bandwidth(cluster.graph(), {{0, 1}, {2, 3}}) == Approx(100));
  CHECK(bandwidth(cluster.graph(), {{0, 2}}) == Approx(16));
  CHECK(bandwidth(cluster.graph(), {{0, 2}, {1, 3}}) == Approx(8));
  CHECK(bandwidth(cluster.graph(), {{0, 1, 2, 3}}) == Approx(16));
}

TEST_CASE("one GPU sends through its own NICs, all GPUs through all NICs") {
  const ClusterTopology cluster = cluster_of("dgx-h100", 16);
  CHECK(gbps(cluster.graph().egress({0})) == Approx(50));
  CHECK(gbps(cluster.graph().egress(all_of(cluster.graph()))) == Approx(400));
}

TEST_CASE("two GPUs of a p4d share the NIC of their PCIe switch") {
  const ClusterTopology cluster = cluster_of("aws-p4d", 16);
  const TopologyGraph& graph = cluster.graph();
  CHECK(gbps(graph.egress({0})) == Approx(12.5));
  CHECK(gbps(graph.egress({0, 1})) == Approx(12.5));
  CHECK(gbps(graph.egress({0, 2})) == Approx(25));
  const std::vector<Group> both{{0}, {1}};
  CHECK(gbps(graph.fair_egress(both)) == Approx(6.25));
  CHECK(graph.groups_sharing_nics(both) == 2);
}

TEST_CASE("the PCIe slot of a GPU limits its egress through two NICs") {
  const ClusterTopology cluster = cluster_of("dgx-a100", 16);
  CHECK(gbps(cluster.graph().egress({0})) == Approx(31.5));  // two NICs of 25 on one x16 gen 4
}

TEST_CASE("the worst group's share is max-min fair when NICs are unevenly placed") {
  const ClusterTopology cluster = cluster_of(machine_path("odd"), 6);
  const TopologyGraph& graph = cluster.graph();
  // GPUs 0-3 share one slot of 20 GB/s; 4 and 5 have 16 GB/s each.
  CHECK(gbps(graph.egress(all_of(graph))) == Approx(20 + 16 + 16));
  const std::vector<Group> singles{{0}, {1}, {2}, {3}, {4}, {5}};
  CHECK(gbps(graph.fair_egress(singles)) == Approx(5));
  const std::vector<Group> triples{{0, 1, 4}, {2, 3, 5}};
  CHECK(gbps(graph.fair_egress(triples)) == Approx(26));
}

TEST_CASE("a far NIC is reached over the link between the sockets") {
  const ClusterTopology cluster = cluster_of("aws-p3dn", 16);
  CHECK(gbps(cluster.graph().egress({0})) == Approx(12.5));
  CHECK(gbps(cluster.graph().egress({7})) == Approx(10));
}

TEST_CASE("a part of a node has only the NICs next to it") {
  const ClusterTopology half = cluster_of("dgx-h100", 4);
  CHECK(half.graph().nics() == 4);
  CHECK(gbps(half.graph().egress({0, 1, 2, 3})) == Approx(200));
}

TEST_CASE("the bisection of a node is half its GPUs' links, that of a PCIe box its socket link") {
  CHECK(gbps(cluster_of("dgx-h100", 8).graph().domain_bisection()) == Approx(4 * 450 + 22));
  CHECK(gbps(cluster_of("a100-pcie", 8).graph().domain_bisection()) == Approx(16));
}

TEST_CASE("the bisection across nodes is half the NICs, divided by the crossed oversubscription") {
  CHECK(gbps(cluster_of("dgx-h100", 64).graph().cluster_bisection()) == Approx(4 * 400));
  CHECK(gbps(cluster_of(machine_path("full-mesh"), 16).graph().cluster_bisection()) == Approx(400));
  CHECK(gbps(cluster_of(machine_path("full-mesh"), 64).graph().cluster_bisection()) ==
        Approx(4 * 400 / 2.0));
}

TEST_CASE("the link into a tier carries the bandwidth below it, divided by its oversubscription") {
  const ClusterTopology cluster = cluster_of(machine_path("full-mesh"), 128);
  const TopologyGraph& graph = cluster.graph();
  std::vector<DeviceId> tiers;
  for (const DeviceId id : boost::make_iterator_range(boost::vertices(graph.devices()))) {
    if (graph.devices()[id].kind == DeviceKind::fabric) tiers.push_back(id);
  }
  REQUIRE(tiers.size() == 2);
  CHECK(gbps(graph.widest_path(graph.nic(0), tiers[0]).bandwidth) == Approx(50));
  CHECK(gbps(graph.widest_path(tiers[0], tiers[1]).bandwidth) == Approx(2 * 400 / 2.0));
  CHECK(graph.devices()[tiers[0]].times == 8);  // 16 nodes, two under each leaf
  CHECK(graph.devices()[tiers[1]].times == 1);
}
