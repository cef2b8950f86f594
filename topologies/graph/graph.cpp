#include "topologies/graph/graph.hpp"

#include <algorithm>
#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/property_map/function_property_map.hpp>
#include <functional>
#include <limits>
#include <utility>

#include "core/base/expects.hpp"

namespace echelon {

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::gpu: return "gpu";
    case DeviceKind::nvswitch: return "nvswitch";
    case DeviceKind::pcie_switch: return "pcie-switch";
    case DeviceKind::socket: return "socket";
    case DeviceKind::nic: return "nic";
    case DeviceKind::fabric: return "fabric";
  }
  return "";
}

TopologyGraph::TopologyGraph(const MachineDescription& machine, int domain_gpus,
                             std::int64_t domains)
    : machine_(machine), gpus_(domain_gpus), domains_(domains) {
  const int each = machine.node.gpus;
  EXPECTS(domain_gpus >= 1 && (domain_gpus <= each || domain_gpus % each == 0),
          "a domain is part of a node or whole nodes");
  const int nodes = (domain_gpus + each - 1) / each;
  for (int node = 0; node < nodes; ++node) add_node(node, std::min(domain_gpus, each));
  if (machine.interconnect == Interconnect::nvswitch) {
    const DeviceId fabric = add(DeviceKind::nvswitch, 0, domains);
    for (const DeviceId gpu : gpu_ids_) connect(gpu, fabric, machine.link, 1, true);
  }
  add_fabric();
}

DeviceId TopologyGraph::add(DeviceKind kind, int node, std::int64_t times) {
  const int index = counts_[static_cast<std::size_t>(kind)]++;
  std::string name = std::string(name_of(kind)) + std::to_string(index);
  const DeviceId id = boost::add_vertex(Device{kind, index, node, std::move(name), times}, graph_);
  up_.push_back(id);
  return id;
}

void TopologyGraph::connect(DeviceId a, DeviceId b, BytesPerSecond bandwidth, int count,
                            bool nvlink) {
  boost::add_edge(a, b, Link{bandwidth, count, nvlink}, graph_);
}

/// Adds one node: sockets, switches, GPUs, their links, NICs. Only its first `gpus` GPUs are in
/// use.
void TopologyGraph::add_node(int node, int gpus) {
  const PcieTree& pcie = machine_.pcie;
  const auto in_use = static_cast<std::size_t>(gpus);
  std::vector<DeviceId> sockets;
  for (int i = 0; i < pcie.sockets; ++i) {
    sockets.push_back(add(DeviceKind::socket, node, domains_));
    for (int other = 0; other < i; ++other) {
      connect(sockets[static_cast<std::size_t>(other)], sockets.back(), pcie.socket_link);
    }
  }
  std::vector<DeviceId> switches;
  for (const int socket : pcie.switch_socket) {
    switches.push_back(add(DeviceKind::pcie_switch, node, domains_));
    up_.back() = sockets[static_cast<std::size_t>(socket)];
    connect(switches.back(), up_.back(), pcie.switch_uplink);
  }
  const std::size_t first = gpu_ids_.size();
  for (std::size_t i = 0; i < in_use; ++i) {
    gpu_ids_.push_back(add(DeviceKind::gpu, node, domains_));
    up_.back() = pcie.gpu_switch[i] ? switches[static_cast<std::size_t>(*pcie.gpu_switch[i])]
                                    : sockets[static_cast<std::size_t>(pcie.gpu_socket[i])];
    connect(gpu_ids_.back(), up_.back(), pcie.gpu_link, 1, pcie.c2c);
  }
  for (const GpuLink& link : machine_.links) {
    if (link.a >= gpus || link.b >= gpus) continue;
    connect(gpu_ids_[first + static_cast<std::size_t>(link.a)],
            gpu_ids_[first + static_cast<std::size_t>(link.b)], machine_.link * link.count,
            link.count, true);
  }
  add_nics(node, gpus, sockets, switches);
}

/// Adds the NICs next to GPUs in use, and those attached to a socket for all its GPUs.
void TopologyGraph::add_nics(int node, int gpus, std::span<const DeviceId> sockets,
                             std::span<const DeviceId> switches) {
  const auto idle = [gpus](int gpu) { return gpu >= gpus; };
  for (const NicPlace& nic : machine_.nics) {
    if (!nic.gpus.empty() && std::all_of(nic.gpus.begin(), nic.gpus.end(), idle)) continue;
    nic_ids_.push_back(add(DeviceKind::nic, node, domains_));
    up_.back() = nic.pcie_switch ? switches[static_cast<std::size_t>(*nic.pcie_switch)]
                                 : sockets[static_cast<std::size_t>(nic.socket)];
    connect(nic_ids_.back(), up_.back(), machine_.pcie.nic_link);
    NicPlace inside = nic;
    for (int& gpu : inside.gpus) gpu += node * machine_.node.gpus;
    nic_places_.push_back(std::move(inside));
  }
}

/// Adds one device per network tier. The link out of a tier carries the total bandwidth of the
/// units below it, divided by the tier's oversubscription.
void TopologyGraph::add_fabric() {
  std::int64_t units = domains_;
  std::vector<DeviceId> below = nic_ids_;
  BytesPerSecond each = machine_.node.nic;  // of a link out of a unit below
  BytesPerSecond total = each * static_cast<double>(nic_ids_.size());  // of all those of a unit
  for (std::size_t t = static_cast<std::size_t>(machine_.nvlink_tiers);
       t < machine_.tiers.size() && !nic_ids_.empty(); ++t) {
    const FabricTier& tier = machine_.tiers[t];
    const std::int64_t size = std::min<std::int64_t>(tier.multiplicity, units);
    units = (units + tier.multiplicity - 1) / tier.multiplicity;
    const DeviceId id = add(DeviceKind::fabric, 0, units);
    graph_[id].name = tier.name;
    for (const DeviceId from : below) connect(from, id, each);
    below.assign(1, id);
    total *= static_cast<double>(size) / tier.oversubscription;
    each = total;
  }
}

/// The path from `from` to `to` whose narrowest link is as wide as possible:
///
///   max over paths of min over links of bandwidth
///
/// by Dijkstra's algorithm with (max, min) in place of (min, +); among the widest paths the one
/// with the fewest links (breadth-first search over the links at least that wide).
///
/// Source: M. Pollack, "The maximum capacity through a network", Operations Research 8 (1960).
/// Assumes: no other traffic. The path from a device to itself has infinite bandwidth.
/// Checked by: tests/topologies/graph/graph_test.cpp.
WidestPath TopologyGraph::widest_path(DeviceId from, DeviceId to) const {
  const std::size_t size = boost::num_vertices(graph_);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  std::vector<double> width(size, 0);
  std::vector<double> weight;
  const auto index = boost::get(boost::vertex_index, graph_);
  const auto bandwidth = boost::make_function_property_map<DeviceGraph::edge_descriptor>(
      [this](DeviceGraph::edge_descriptor e) { return graph_[e].bandwidth.in(kBytePerSecond); });
  std::vector<DeviceId> previous(size);
  boost::dijkstra_shortest_paths(
      graph_, from,
      boost::weight_map(bandwidth)
          .distance_map(boost::make_iterator_property_map(width.begin(), index))
          .predecessor_map(boost::make_iterator_property_map(previous.begin(), index))
          .distance_compare(std::greater<double>())
          .distance_combine([](double a, double b) { return std::min(a, b); })
          .distance_inf(0.0)
          .distance_zero(kInfinite));

  const double widest = width[to];
  const auto wide = [this, widest](DeviceGraph::edge_descriptor e) {
    return graph_[e].bandwidth.in(kBytePerSecond) >= widest;
  };
  const boost::filtered_graph<DeviceGraph, std::function<bool(DeviceGraph::edge_descriptor)>> kept(
      graph_, wide);
  for (DeviceId id = 0; id < size; ++id) previous[id] = id;
  boost::breadth_first_search(
      kept, from,
      boost::visitor(boost::make_bfs_visitor(boost::record_predecessors(
          boost::make_iterator_property_map(previous.begin(), index), boost::on_tree_edge()))));
  WidestPath path{BytesPerSecond{widest}, {to}};
  while (path.devices.back() != from) path.devices.push_back(previous[path.devices.back()]);
  std::reverse(path.devices.begin(), path.devices.end());
  return path;
}

/// The hops from one device to another through the PCIe tree (and the link between sockets); none
/// if they are in different nodes.
std::vector<TopologyGraph::Hop> TopologyGraph::tree_route(DeviceId from, DeviceId to) const {
  const auto chain = [this](DeviceId id) {
    std::vector<DeviceId> ids{id};
    while (up_[ids.back()] != ids.back()) ids.push_back(up_[ids.back()]);
    return ids;
  };
  std::vector<DeviceId> rise = chain(from);
  std::vector<DeviceId> fall = chain(to);
  if (graph_[from].node != graph_[to].node) return {};
  while (rise.size() > 1 && fall.size() > 1 && rise[rise.size() - 2] == fall[fall.size() - 2]) {
    rise.pop_back();
    fall.pop_back();
  }
  if (rise.back() == fall.back()) fall.pop_back();
  rise.insert(rise.end(), fall.rbegin(), fall.rend());
  std::vector<Hop> hops;
  for (std::size_t i = 0; i + 1 < rise.size(); ++i) {
    const auto [edge, found] = boost::edge(rise[i], rise[i + 1], graph_);
    EXPECTS(found, "the PCIe tree has no link between neighbours");
    hops.push_back({rise[i], rise[i + 1], graph_[edge].bandwidth});
  }
  return hops;
}

/// The hops of NCCL's transfers between two GPUs of a node through the PCIe tree, at the rates that
/// these leave of it. Without peer access the sender writes into host memory and the receiver reads
/// from there, and a slot carries half of what it does with peer access.
/// Source of the half: all-reduces of nccl-tests. RTX 5090 with the stock driver reach 35 GB/s of
/// bus bandwidth on 4 GPUs and 28 on 8 (NVIDIA/nccl issue 1639), 0.71 and 0.57 of the 49 GB/s that
/// PCIe 5 gives with peer access; A100 PCIe 8 GB/s without and 21 with it (issue 841), 0.38.
/// Assumes: a host with enough memory bandwidth. Virtual machines with A40 reached 4 GB/s.
/// Checked by: tests/topologies/graph/group_test.cpp.
std::vector<TopologyGraph::Hop> TopologyGraph::peer_route(int from, int to) const {
  constexpr double kThroughHost = 0.5;
  std::vector<Hop> route = tree_route(gpu(from), gpu(to));
  if (machine_.pcie.peer_access || route.empty()) return route;
  route.front().bandwidth *= kThroughHost;
  route.back().bandwidth *= kThroughHost;
  return route;
}

/// The NICs that a GPU sends through: those listed next to it or on the same switch, else those of
/// its socket, else those of its node.
/// Source: NCCL 2.28 src/graph/topo.h path types (PIX/PXB before PHB before SYS).
std::vector<int> TopologyGraph::nearest_nics(int gpu) const {
  const DeviceId id = this->gpu(gpu);
  const auto socket_of = [this](DeviceId at) {
    while (up_[at] != at) at = up_[at];
    return at;
  };
  std::vector<int> nearest;
  int best = 4;
  for (int i = 0; i < nics(); ++i) {
    const DeviceId card = nic(i);
    if (graph_[card].node != graph_[id].node) continue;
    const std::vector<int>& listed_gpus = nic_places_[static_cast<std::size_t>(i)].gpus;
    const bool listed = std::find(listed_gpus.begin(), listed_gpus.end(), gpu) != listed_gpus.end();
    const bool same_switch =
        up_[id] == up_[card] && graph_[up_[id]].kind == DeviceKind::pcie_switch;
    const int distance = listed || same_switch ? 1 : socket_of(id) == socket_of(card) ? 2 : 3;
    if (distance < best) nearest.clear();
    best = std::min(best, distance);
    if (distance == best) nearest.push_back(i);
  }
  return nearest;
}

}  // namespace echelon
