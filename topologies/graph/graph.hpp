// TopologyGraph: one NVLink domain expanded to devices and links, and the fabric above it by
// multiplicity. Its size is independent of the size of the cluster.
#pragma once

#include <array>
#include <boost/graph/adjacency_list.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

enum class DeviceKind { gpu, nvswitch, pcie_switch, socket, nic, fabric };
[[nodiscard]] std::string_view name_of(DeviceKind kind);

struct Device {
  DeviceKind kind = DeviceKind::gpu;
  int index = 0;           ///< among devices of its kind in the domain (a fabric tier: its number)
  int node = 0;            ///< node inside the domain; 0 for fabric
  std::string name;        ///< "gpu3", "nic0", "leaf"
  std::int64_t times = 1;  ///< number of occurrences in the cluster
};

struct Link {
  BytesPerSecond bandwidth;  ///< one direction; both directions have it simultaneously
  int count = 1;             ///< parallel links summed in `bandwidth`
  bool nvlink = false;
};

using DeviceGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, Device, Link>;
using DeviceId = boost::graph_traits<DeviceGraph>::vertex_descriptor;

struct WidestPath {
  BytesPerSecond bandwidth;       ///< bandwidth of its narrowest link
  std::vector<DeviceId> devices;  ///< from, ..., to
};

/// GPU indices are local to the domain, 0 .. gpus()-1; a *group* lists the GPUs of one
/// communicator.
using Group = std::vector<int>;

class TopologyGraph {
 public:
  /// The first `domain_gpus` GPUs of a domain of `machine` (part of a node, or whole nodes), as one
  /// of `domains` in the cluster.
  TopologyGraph(const MachineDescription& machine, int domain_gpus, std::int64_t domains);

  [[nodiscard]] const DeviceGraph& devices() const { return graph_; }
  [[nodiscard]] int gpus() const { return gpus_; }
  [[nodiscard]] int gpus_per_node() const { return machine_.node.gpus; }
  [[nodiscard]] DeviceId gpu(int local) const { return gpu_ids_[static_cast<std::size_t>(local)]; }
  [[nodiscard]] DeviceId nic(int local) const { return nic_ids_[static_cast<std::size_t>(local)]; }
  [[nodiscard]] bool has_nvswitch() const {
    return machine_.interconnect == Interconnect::nvswitch;
  }
  [[nodiscard]] int nics() const { return static_cast<int>(nic_ids_.size()); }

  /// The path whose narrowest link is widest; among equals the one with the fewest hops.
  [[nodiscard]] WidestPath widest_path(DeviceId from, DeviceId to) const;

  // Documented in rings.cpp.
  [[nodiscard]] std::vector<int> ring(std::vector<int> ranks) const;
  [[nodiscard]] BytesPerSecond group_bandwidth(std::span<const Group> groups) const;
  [[nodiscard]] BytesPerSecond exchange_bandwidth(std::span<const Group> groups) const;

  // Documented in flows.cpp.
  [[nodiscard]] BytesPerSecond egress(const Group& gpus) const;
  [[nodiscard]] BytesPerSecond fair_egress(std::span<const Group> groups) const;
  [[nodiscard]] int groups_sharing_nics(std::span<const Group> groups) const;
  [[nodiscard]] BytesPerSecond domain_bisection() const;
  [[nodiscard]] BytesPerSecond cluster_bisection() const;

 private:
  struct Hop {  ///< one direction of one link of the PCIe tree
    DeviceId from;
    DeviceId to;
    BytesPerSecond bandwidth;
  };
  void add_node(int node, int gpus);
  void add_nics(int node, int gpus, std::span<const DeviceId> sockets,
                std::span<const DeviceId> switches);
  void add_fabric();
  DeviceId add(DeviceKind kind, int node, std::int64_t times);
  void connect(DeviceId a, DeviceId b, BytesPerSecond bandwidth, int count = 1,
               bool nvlink = false);
  [[nodiscard]] std::vector<Hop> tree_route(DeviceId from, DeviceId to) const;
  [[nodiscard]] std::vector<Hop> peer_route(int from, int to) const;
  [[nodiscard]] std::vector<int> nearest_nics(int gpu) const;
  [[nodiscard]] int nvlink_count(int a, int b) const;
  [[nodiscard]] BytesPerSecond pair_bandwidth(int a, int b) const;
  [[nodiscard]] Group local_ring(const Group& group) const;
  [[nodiscard]] std::vector<BytesPerSecond> ring_bandwidths(std::span<const Group> rings) const;
  [[nodiscard]] int disjoint_rings(const Group& group) const;

  MachineDescription machine_;
  DeviceGraph graph_;
  int gpus_ = 0;
  std::array<int, 6> counts_{};  ///< devices of each kind
  std::int64_t domains_ = 1;
  std::vector<DeviceId> gpu_ids_;
  std::vector<DeviceId> nic_ids_;
  std::vector<NicPlace> nic_places_;  ///< with GPU indices of the domain
  std::vector<DeviceId> up_;          ///< parent in the PCIe tree; a root is its own parent
};

}  // namespace echelon
