#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/topologies/support.hpp"
#include "topologies/description/description.hpp"

using namespace echelon;

namespace {

/// Per domain, the groups of one pattern with a member in it, as local GPUs, by enumeration.
std::map<int, std::vector<Group>> by_domain(int ranks, int stride, int domain, int gpus) {
  std::map<int, std::map<int, Group>> members;
  int number = 0;
  for (int block = 0; block + ranks * stride <= gpus; block += ranks * stride) {
    for (int j = 0; j < stride; ++j, ++number) {
      for (int i = 0; i < ranks; ++i) {
        const int rank = block + j + i * stride;
        members[rank / domain][number].push_back(rank % domain);
      }
    }
  }
  std::map<int, std::vector<Group>> result;
  for (auto& [at, groups] : members) {
    for (auto& [id, group] : groups) result[at].push_back(std::move(group));
  }
  return result;
}

struct Explicit {
  double intra = 1e9;
  double inter = 1e9;
};

/// The same from the graph: every domain with its groups, link by link.
Explicit from_graph(const ClusterTopology& cluster, int ranks, int stride) {
  Explicit worst;
  std::map<std::vector<Group>, Explicit> seen;
  for (const auto& [at, groups] : by_domain(ranks, stride, cluster.domain_gpus(), cluster.gpus())) {
    auto [entry, fresh] = seen.try_emplace(groups);
    if (fresh) {
      entry->second = {gbps(cluster.graph().group_bandwidth(groups)),
                       gbps(cluster.graph().fair_egress(groups))};
    }
    worst.intra = std::min(worst.intra, entry->second.intra);
    worst.inter = std::min(worst.inter, entry->second.inter);
  }
  return worst;
}

}  // namespace

TEST_CASE("eight data-parallel groups of a node share its NICs") {
  const ClusterTopology cluster = cluster_of("dgx-h100", 64);
  const GroupNetwork dp = cluster.group({8, 8});
  CHECK(dp.domains == 8);
  CHECK(dp.ranks_per_domain == 1);
  CHECK(dp.sharing_groups == 8);
  CHECK(gbps(dp.inter) == Approx(400.0 / 8));
  CHECK(gbps(dp.inter_per_rank) == Approx(50));
}

TEST_CASE("a tensor-parallel ring over two whole nodes has all their NICs") {
  const ClusterTopology cluster = cluster_of("dgx-h100", 64);
  const GroupNetwork tp = cluster.group({16, 1});
  CHECK(tp.domains == 2);
  CHECK(tp.ranks_per_domain == 8);
  CHECK(tp.sharing_groups == 1);
  CHECK(gbps(tp.inter) == Approx(400));
}

TEST_CASE("one rank stays in its domain") {
  const GroupNetwork one = cluster_of("dgx-h100", 64).group({1, 8});
  CHECK(one.domains == 1);
  CHECK(one.ranks_per_domain == 1);
}

TEST_CASE("a rank of a p4d sends at half the NIC's rate while its neighbour sends") {
  const ClusterTopology cluster = cluster_of("aws-p4d", 64);
  CHECK(gbps(cluster.group({8, 8}).inter_per_rank) == Approx(6.25));
  CHECK(gbps(cluster.group({64, 1}).inter_per_rank) == Approx(12.5));
}

TEST_CASE("a rack of 72 is one domain") {
  const ClusterTopology cluster = cluster_of("gb200-nvl72", 288);
  CHECK(cluster.domain_gpus() == 72);
  CHECK(cluster.gpus_per_node() == 4);
  CHECK(cluster.nodes() == 72);
  CHECK(cluster.group({72, 1}).domains == 1);
  CHECK(gbps(cluster.group({72, 1}).intra) == Approx(900));
  CHECK(gbps(cluster.group({4, 72}).inter) == Approx(50));
  CHECK(gbps(cluster.group({288, 1}).inter) == Approx(72 * 50));
}

TEST_CASE("a GPU of Vera Rubin and of Helios reaches all its cards and the memory of its CPU") {
  const ClusterTopology rubin = cluster_of("vr-nvl72", 288);
  CHECK(gbps(rubin.group({72, 1}).intra) == Approx(1500));
  CHECK(rubin.group({72, 1}).domains == 1);
  CHECK(gbps(rubin.group({4, 72}).inter) == Approx(200));
  CHECK(gbps(rubin.host_link()) == Approx(450));  // LPDDR5X of Vera: 600 of a GPU
  CHECK(gbps(cluster_of("gb300-nvl72", 288).host_link()) == Approx(256));
  const ClusterTopology helios = cluster_of("helios", 288);
  CHECK(gbps(helios.group({72, 1}).intra) == Approx(1800));
  CHECK(helios.group({72, 1}).domains == 1);
  CHECK(gbps(helios.group({4, 72}).inter) == Approx(300));
  CHECK(gbps(helios.host_link()) == Approx(121));
}

TEST_CASE("groups of 32 and 64 of a job on 256 GPUs of racks of 72 stay inside a rack") {
  for (const char* name : {"gb200-nvl72", "gb300-nvl72", "aws-p6e-gb200", "azure-ndgb200v6",
                           "gcp-a4x", "oci-gb200", "oci-gb300", "vr-nvl72", "helios"}) {
    INFO(name);
    const ClusterTopology cluster = cluster_of(name, 256);
    CHECK(cluster.domain_gpus() == 64);
    CHECK(cluster.group({32, 1}).domains == 1);
    CHECK(cluster.group({64, 1}).domains == 1);
    CHECK(cluster.group({4, 64}).domains == 4);
    CHECK(cluster.resized(288)->domain_gpus() == 72);
    CHECK(cluster.resized(72)->domain_gpus() == 72);
    CHECK(cluster.resized(76)->group({76, 1}).domains == 2);
  }
}

TEST_CASE("a leaf over racks in part holds as many racks as over whole ones") {
  const auto latency = [](int gpus, RankGroup group) {
    return cluster_of("gb200-nvl72", gpus).group(group).inter_latency.in(1_us);
  };
  CHECK(latency(1024, {512, 1}) == Approx(2.5 + 0.2));  // 8 of 16 racks of 64, under one leaf
  CHECK(latency(1024, {1024, 1}) == Approx(2.5 + 0.2 + 0.4));
}

TEST_CASE("a part of a rack is one domain for any number of trays") {
  const ClusterTopology cluster = cluster_of("gb200-nvl72", 32);
  CHECK(cluster.domain_gpus() == 32);
  CHECK(cluster.group({32, 1}).domains == 1);
}

TEST_CASE("a part of a node is one domain with only its own links") {
  const ClusterTopology quad = cluster_of("dgx-v100", 4);
  CHECK(quad.gpus_per_node() == 4);
  CHECK(quad.nodes() == 1);
  CHECK(quad.group({4, 1}).domains == 1);
  CHECK(gbps(quad.group({4, 1}).intra) ==
        Approx(4 * 25));  // two rings through the quad, each in both directions
}

TEST_CASE("the farthest tier of a group determines its latency and its bandwidth") {
  const ClusterTopology cluster = cluster_of(machine_path("full-mesh"), 128);
  const GroupNetwork leaf = cluster.group({2, 8});    // two nodes under one leaf
  const GroupNetwork spine = cluster.group({16, 8});  // sixteen nodes, spine 2 : 1
  CHECK(gbps(leaf.inter) == Approx(50));
  CHECK(gbps(spine.inter) == Approx(25));
  CHECK(gbps(spine.inter_per_rank) == Approx(25));
  CHECK(leaf.inter_latency.in(1_us) == Approx(2.5 + 0.2));
  CHECK(spine.inter_latency.in(1_us) == Approx(2.5 + 0.2 + 0.5));
}

TEST_CASE("a group on two leaves crosses the spine") {
  const ClusterTopology cluster = cluster_of(machine_path("full-mesh"), 96);
  CHECK(gbps(cluster.group({3, 8}).inter) == Approx(25));  // three nodes on leaves of two
}

TEST_CASE(
    "a group shorter than a leaf still crosses the spine when its blocks do not tile the leaf") {
  const ClusterTopology cluster = cluster_of(machine_path("full-mesh"), 96);
  const GroupNetwork straddling = cluster.group({3, 4});  // ranks 12, 16, 20: leaves of 16 GPUs
  CHECK(straddling.inter_latency.in(1_us) == Approx(2.5 + 0.2 + 0.5));
  CHECK(gbps(straddling.inter) == Approx(25));
}

TEST_CASE("the point-to-point rate is that of the slower edge of a domain") {
  const ClusterTopology cluster = cluster_of(machine_path("odd"), 24);
  // GPUs 4 and 5 send through 16 GB/s each; 0 and 1 receive through one slot of 20.
  CHECK(gbps(cluster.group({12, 2}).inter_per_rank) == Approx(10));
}

TEST_CASE("the closed form equals the graph for every regular group") {
  for (const auto& [name, gpus] :
       std::vector<std::pair<std::string, int>>{{"dgx-h100", 48},
                                                {"dgx-a100", 48},
                                                {"dgx-v100", 48},
                                                {"aws-p3dn", 48},
                                                {"aws-p4d", 48},
                                                {"aws-p5", 48},
                                                {"gcp-a3-high", 48},
                                                {"a100-pcie", 48},
                                                {"rtx-4090", 48},
                                                {"l40s", 48},
                                                {"gb200-nvl72", 144},
                                                {"dgx-v100", 4},
                                                {machine_path("lab-box"), 24},
                                                {machine_path("odd"), 36},
                                                {machine_path("minimal"), 2},
                                                {machine_path("full-mesh"), 16}}) {
    const ClusterTopology cluster = cluster_of(name, gpus);
    const int domain = cluster.domain_gpus();
    for (int stride = 1; stride <= gpus; ++stride) {
      for (int ranks = 2; ranks * stride <= gpus; ++ranks) {
        const int block = ranks * stride;
        if (gpus % block != 0) continue;
        const bool inside = domain % block == 0;
        const bool through = block % domain == 0 && (stride >= domain || domain % stride == 0);
        if (!inside && !through) continue;
        INFO(name << " ranks " << ranks << " stride " << stride);
        const GroupNetwork closed = cluster.group({ranks, stride});
        const Explicit expected = from_graph(cluster, ranks, stride);
        CHECK(gbps(closed.intra) == Approx(expected.intra));
        if (!inside && !cluster.tiers().empty() && cluster.tiers().back().oversubscription <= 1) {
          CHECK(gbps(closed.inter) == Approx(expected.inter));
        }
      }
    }
  }
}

TEST_CASE("the closed form never exceeds the graph for an irregular group") {
  for (const std::string name : {"dgx-h100", "dgx-a100", "aws-p4d", "gcp-a3-high"}) {
    const ClusterTopology cluster = cluster_of(name, 48);
    for (int stride = 1; stride <= 24; ++stride) {
      for (int ranks = 2; ranks * stride <= 48; ++ranks) {
        INFO(name << " ranks " << ranks << " stride " << stride);
        const GroupNetwork closed = cluster.group({ranks, stride});
        if (closed.domains == 1) continue;
        CHECK(gbps(closed.inter) <= from_graph(cluster, ranks, stride).inter * (1 + 1e-9));
        CHECK(closed.inter > BytesPerSecond{});
      }
    }
  }
}

TEST_CASE("an irregular group has its members' NICs if each GPU has its own") {
  const ClusterTopology cluster = cluster_of("dgx-h100", 24);
  for (int stride = 1; stride <= 12; ++stride) {
    for (int ranks = 2; ranks * stride <= 24; ++ranks) {
      const GroupNetwork closed = cluster.group({ranks, stride});
      if (closed.domains == 1) continue;
      int min_members = ranks;  // over the groups that leave a domain
      for (int block = 0; block + ranks * stride <= 24; block += ranks * stride) {
        for (int j = 0; j < stride; ++j) {
          std::map<int, int> members;
          for (int i = 0; i < ranks; ++i) ++members[(block + j + i * stride) / 8];
          if (static_cast<int>(members.size()) != closed.domains) continue;
          for (const auto& [at, count] : members) min_members = std::min(min_members, count);
        }
      }
      INFO("ranks " << ranks << " stride " << stride);
      CHECK(gbps(closed.inter) == Approx(50.0 * min_members));
    }
  }
}

TEST_CASE("another network per node is spread over the NICs") {
  const ClusterTopology slow = cluster_of("dgx-h100", 64).with_node_network(100_GBps);
  CHECK(gbps(slow.node().nic) == Approx(12.5));
  CHECK(gbps(slow.group({8, 8}).inter) == Approx(12.5));
  CHECK(gbps(slow.group({64, 1}).inter) == Approx(100));
}

TEST_CASE("another network is limited by the slots of the GPUs, but not by those of the NICs") {
  const ClusterTopology fast = cluster_of(machine_path("odd"), 12).with_node_network(90_GBps);
  CHECK(gbps(fast.group({12, 1}).inter) == Approx(30 + 16 + 16));
}

TEST_CASE("resizing from a part of a node to many nodes creates new tables") {
  const Result<ClusterTopology> whole = cluster_of("dgx-v100", 2).resized(64);
  REQUIRE(whole.ok());
  CHECK(gbps(whole->group({16, 1}).intra) == Approx(150));
  CHECK(gbps(whole->group({8, 8}).inter) == Approx(6.25));
}

TEST_CASE("resizing is equivalent to loading that size") {
  const ClusterTopology loaded = cluster_of("selene", 1024);
  const Result<ClusterTopology> resized = cluster_of("selene", 8).resized(1024);
  REQUIRE(resized.ok());
  CHECK(resized->nodes() == 128);
  CHECK(resized->group({128, 8}).inter_latency == loaded.group({128, 8}).inter_latency);
  CHECK(resized->group({128, 8}).inter == loaded.group({128, 8}).inter);
  CHECK(cluster_of("selene", 1024).resized(12).ok() == false);
}

TEST_CASE("more NIC bandwidth is never slower") {
  for (const std::string name : {"dgx-a100", "aws-p4d", "l40s"}) {
    const ClusterTopology cluster = cluster_of(name, 32);
    BytesPerSecond before;
    for (const auto rate : {10_GBps, 50_GBps, 100_GBps, 400_GBps}) {
      const BytesPerSecond now = cluster.with_node_network(rate).group({4, 8}).inter;
      CHECK(now >= before);
      before = now;
    }
  }
}

// Four GPUs of a socket send to four of the other, a seventh of what each sends to each.
TEST_CASE("an all-to-all of a PCIe box crosses the link of its sockets with half of its bytes") {
  const GroupNetwork all = cluster_of("l40s", 8).group({8, 1});
  CHECK(gbps(all.intra_exchange) == Approx(22 / (16.0 / 7)));
  CHECK(gbps(all.intra) > 2 * gbps(all.intra_exchange));
  const GroupNetwork pairs = cluster_of("l40s", 8).group({2, 4});
  CHECK(gbps(pairs.intra_exchange) == Approx(22 / 4.0));
  for (const char* name : {"dgx-h100", "mi300x", "dgx-v100"}) {  // a switch, meshes
    CAPTURE(name);
    const GroupNetwork other = cluster_of(name, 8).group({8, 1});
    CHECK(other.intra_exchange == other.intra);
  }
}

TEST_CASE("in an all-to-all between nodes all GPUs of a node share its NICs") {
  const auto of = [](const char* name, RankGroup group) {
    return gbps(cluster_of(name, 16).group(group).inter_exchange);
  };
  CHECK(of("l40s", {16, 1}) == Approx(50 / 8.0));
  CHECK(of("l40s", {2, 8}) == Approx(50 / 8.0));
  CHECK(of("rtx-4090", {16, 1}) == Approx(12.5 / 8));
  CHECK(of("aws-p4d", {16, 1}) == Approx(50 / 8.0));
  CHECK(of("dgx-a100", {16, 1}) == Approx(25));
  CHECK(of("dgx-h100", {16, 1}) == Approx(50));
  const GroupNetwork neighbours = cluster_of("l40s", 16).group({16, 1});
  CHECK(neighbours.inter_per_rank > neighbours.inter_exchange);  // one GPU sends a message alone
}

TEST_CASE("without peer access GPUs exchange through host memory, at half their slots' rate") {
  const GroupNetwork stock = cluster_of("rtx-5090", 4).group({4, 1});
  CHECK(gbps(stock.intra) == Approx(0.5 * 63));
  CHECK(gbps(cluster_of("rtx-5090", 8).group({8, 1}).intra) == Approx(0.5 * 63));
  CHECK(gbps(stock.intra_exchange) == Approx(0.5 * 63));
  CHECK(gbps(cluster_of("rtx-5090", 2).group({2, 1}).intra) == Approx(0.5 * 63));
  // A bridge needs no slot, and the ring of four crosses two slots.
  CHECK(gbps(cluster_of("rtx-3090", 4).group({2, 1}).intra) == Approx(56.25));
  CHECK(gbps(cluster_of("rtx-3090", 4).group({4, 1}).intra) == Approx(0.5 * 31.5));
  CHECK(gbps(cluster_of("l40s", 4).group({4, 1}).intra) == Approx(31.5));
  // NICs are reached as before.
  CHECK(gbps(cluster_of("rtx-5090", 16).group({2, 8}).inter) == Approx(12.5 / 8));
}

TEST_CASE("a description says whether its GPUs have access to each other, whatever their default") {
  const auto with = [](const std::string& gpu, const std::string& pcie) {
    const std::string text = R"({"schema": 1, "name": "box", "gpu": ")" + gpu +
                             R"(", "node": {"gpus": 4, "interconnect": {"kind": "pcie"}, )"
                             R"("pcie": {"gpu_link": "31.5 GB/s")" +
                             pcie + "}}}";
    return gbps(ClusterTopology::parse(text, "a test", 4).value().group({4, 1}).intra);
  };
  CHECK(with("rtx-4090", "") == Approx(0.5 * 31.5));
  CHECK(with("rtx-4090", R"(, "peer_access": true)") == Approx(31.5));
  CHECK(with("l40s", "") == Approx(31.5));
  CHECK(with("l40s", R"(, "peer_access": false)") == Approx(0.5 * 31.5));
}
