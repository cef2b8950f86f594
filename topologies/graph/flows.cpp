// Bandwidth out of a set of GPUs: maximum flows through the PCIe tree and the network cards.
#include <algorithm>
#include <boost/graph/push_relabel_max_flow.hpp>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/expects.hpp"
#include "topologies/graph/graph.hpp"

namespace echelon {

namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using Edge = Traits::edge_descriptor;
using Vertex = Traits::vertex_descriptor;
struct Pipe {
  std::int64_t capacity = 0;
  std::int64_t residual = 0;
  Edge reverse;
};
using PipeGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Pipe>;

/// More than the bandwidth of any GPU link, and small enough that the sum over a domain fits 63
/// bits.
constexpr std::int64_t kUnlimited = std::int64_t{1} << 50;

/// A flow network with capacities in whole bytes per second.
class Flow {
 public:
  explicit Flow(std::size_t vertices)
      : graph_(vertices + 2), source_(vertices), sink_(vertices + 1) {}

  Vertex add_vertex() { return boost::add_vertex(graph_); }
  Edge pipe(Vertex from, Vertex to, std::int64_t capacity) {
    const Edge forward = boost::add_edge(from, to, Pipe{capacity, 0, {}}, graph_).first;
    const Edge back = boost::add_edge(to, from, Pipe{0, 0, {}}, graph_).first;
    graph_[forward].reverse = back;
    graph_[back].reverse = forward;
    return forward;
  }
  void limit(Edge edge, std::int64_t capacity) { graph_[edge].capacity = capacity; }
  [[nodiscard]] Vertex source() const { return source_; }
  [[nodiscard]] Vertex sink() const { return sink_; }

  /// Goldberg and Tarjan's push-relabel algorithm, as in Boost.Graph.
  std::int64_t maximum() {
    return boost::push_relabel_max_flow(graph_, source_, sink_, boost::get(&Pipe::capacity, graph_),
                                        boost::get(&Pipe::residual, graph_),
                                        boost::get(&Pipe::reverse, graph_),
                                        boost::get(boost::vertex_index, graph_));
  }
  /// After maximum(): the source side of the minimum cut nearest to the sink (all vertices from
  /// which the sink cannot be reached through pipes with residual capacity).
  [[nodiscard]] std::vector<bool> source_side() const {
    std::vector<std::vector<Vertex>> into(boost::num_vertices(graph_));
    for (const Edge edge : boost::make_iterator_range(boost::edges(graph_))) {
      if (graph_[edge].residual > 0) {
        into[boost::target(edge, graph_)].push_back(boost::source(edge, graph_));
      }
    }
    std::vector<bool> source_side(into.size(), true);
    std::vector<Vertex> framework{sink_};
    source_side[sink_] = false;
    while (!framework.empty()) {
      const Vertex at = framework.back();
      framework.pop_back();
      for (const Vertex from : into[at]) {
        if (!source_side[from]) continue;
        source_side[from] = false;
        framework.push_back(from);
      }
    }
    return source_side;
  }

 private:
  PipeGraph graph_;
  Vertex source_;
  Vertex sink_;
};

std::int64_t whole(BytesPerSecond bandwidth) { return std::llround(bandwidth.in(kBytePerSecond)); }
BytesPerSecond rate(std::int64_t bytes) { return BytesPerSecond{static_cast<double>(bytes)}; }

}  // namespace

/// Bandwidth out of the domain, one direction, if only these GPUs send.
///
///   maximum flow  source → GPU → its nearest NICs through the PCIe tree → sink
///
/// It is limited by shared switches, uplinks, slots and NICs; GPUs do not forward each other's
/// traffic.
/// Source: max-flow min-cut (Ford and Fulkerson 1956).
/// Checked by: tests/topologies/graph/graph_test.cpp.
BytesPerSecond TopologyGraph::egress(const Group& gpus) const {
  return fair_egress(std::span(&gpus, 1));
}

/// The largest bandwidth out of the domain that all `groups` can have at the same time (the
/// smallest share under max-min fairness).
///
///   max f  such that the flow network with  source → group (f) → its GPUs → nearest NICs → sink
///          carries f for every group
///
/// Found by discrete Newton steps on f: while some groups get less than f, the minimum cut
/// identifies them, and f becomes the capacity of their cut divided by their number. Each step
/// drops at least one group, so the iteration terminates. A group may split its traffic arbitrarily
/// over its own GPUs, as a ring collective does (each channel leaves through another GPU).
///
/// Source: Megiddo, "Optimal flows in networks with multiple sources and sinks" (1974).
/// Checked by: tests/topologies/graph/graph_test.cpp, tests/topologies/graph/group_test.cpp.
BytesPerSecond TopologyGraph::fair_egress(std::span<const Group> groups) const {
  if (nic_ids_.empty() || groups.empty()) return {};
  Flow flow(boost::num_vertices(graph_));
  std::map<std::pair<DeviceId, DeviceId>, bool> added;  // directed hops of the tree already added
  std::map<int, bool> open;
  std::vector<Vertex> heads;
  std::vector<Edge> inlets;
  for (const Group& group : groups) {
    heads.push_back(flow.add_vertex());
    inlets.push_back(flow.pipe(flow.source(), heads.back(), 0));
    for (const int local : group) {
      flow.pipe(heads.back(), gpu(local), kUnlimited);
      for (const int card : nearest_nics(local)) {
        open[card] = true;
        for (const Hop& hop : tree_route(gpu(local), nic(card))) {
          if (!std::exchange(added[{hop.from, hop.to}], true)) {
            flow.pipe(hop.from, hop.to, whole(hop.bandwidth));
          }
        }
      }
    }
  }
  for (const auto& [card, used] : open) flow.pipe(nic(card), flow.sink(), whole(machine_.node.nic));

  const auto count = static_cast<std::int64_t>(groups.size());
  auto share = static_cast<std::int64_t>(open.size()) * whole(machine_.node.nic) / count;
  while (share > 0) {
    for (const Edge inlet : inlets) flow.limit(inlet, share);
    const std::int64_t carried = flow.maximum();
    if (carried == share * count) break;
    const std::vector<bool> short_side = flow.source_side();
    const auto short_groups =
        std::count_if(heads.begin(), heads.end(), [&](Vertex head) { return short_side[head]; });
    EXPECTS(short_groups > 0, "a flow below its demand has a cut below the groups");
    share = (carried - share * (count - short_groups)) / short_groups;
  }
  return rate(share);
}

/// The maximum number of groups that share a NIC as one of the nearest of their GPUs; 0 without
/// NICs.
int TopologyGraph::groups_sharing_nics(std::span<const Group> groups) const {
  std::vector<int> users(nic_ids_.size(), 0);
  for (const Group& group : groups) {
    std::vector<bool> used(nic_ids_.size(), false);
    for (const int local : group) {
      for (const int card : nearest_nics(local)) used[static_cast<std::size_t>(card)] = true;
    }
    for (std::size_t i = 0; i < used.size(); ++i) users[i] += used[i] ? 1 : 0;
  }
  return users.empty() ? 0 : *std::max_element(users.begin(), users.end());
}

/// Bandwidth from the first half of the domain's GPUs to the second half, one direction: maximum
/// flow over all links inside the domain (NVLink and PCIe), not over the network.
/// Assumes: the halves in rank order are the narrowest balanced cut (true for sockets and racks).
/// Zero for one GPU. Checked by: tests/topologies/graph/graph_test.cpp.
BytesPerSecond TopologyGraph::domain_bisection() const {
  if (gpus_ < 2) return {};
  Flow flow(boost::num_vertices(graph_));
  const auto inside = [this](DeviceId id) {
    return graph_[id].kind != DeviceKind::nic && graph_[id].kind != DeviceKind::fabric;
  };
  for (const auto edge : boost::make_iterator_range(boost::edges(graph_))) {
    const DeviceId a = boost::source(edge, graph_);
    const DeviceId b = boost::target(edge, graph_);
    if (!inside(a) || !inside(b)) continue;
    flow.pipe(a, b, whole(graph_[edge].bandwidth));
    flow.pipe(b, a, whole(graph_[edge].bandwidth));
  }
  for (int local = 0; local < gpus_ / 2; ++local) flow.pipe(flow.source(), gpu(local), kUnlimited);
  for (int local = (gpus_ + 1) / 2; local < gpus_; ++local) {
    flow.pipe(gpu(local), flow.sink(), kUnlimited);
  }
  return rate(flow.maximum());
}

/// Bandwidth from one half of the cluster's domains to the other, one direction: maximum flow
/// through the NICs of half the domains and the tiers above, up to the tier that joins the halves.
///
///   domains/2 · egress / Π oversubscription of the tiers left upward
///
/// One domain: domain_bisection(). Checked by: tests/topologies/graph/graph_test.cpp.
BytesPerSecond TopologyGraph::cluster_bisection() const {
  if (domains_ < 2) return domain_bisection();
  Group all;
  for (int local = 0; local < gpus_; ++local) all.push_back(local);
  BytesPerSecond through = egress(all);  // of one domain; all domains have the same flow
  Flow flow(machine_.tiers.size() + 1);
  Vertex at = 0;
  flow.pipe(flow.source(), at, whole(through));
  std::int64_t units = domains_;
  for (std::size_t t = static_cast<std::size_t>(machine_.nvlink_tiers);
       t < machine_.tiers.size() && units > 1; ++t) {
    flow.pipe(at, at + 1, whole(through));
    ++at;
    units = (units + machine_.tiers[t].multiplicity - 1) / machine_.tiers[t].multiplicity;
    through /= machine_.tiers[t].oversubscription;  // of what leaves it upward
  }
  flow.pipe(at, flow.sink(), kUnlimited);
  return rate(flow.maximum()) * std::floor(static_cast<double>(domains_) / 2);
}

}  // namespace echelon
