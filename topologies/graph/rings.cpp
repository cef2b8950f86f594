// Rings over the GPUs of a group, and the bandwidth of groups that communicate concurrently.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "core/base/expects.hpp"
#include "topologies/graph/graph.hpp"

namespace echelon {

namespace {

constexpr int kExactRing = 16;  ///< up to this size the best ring is found exactly
constexpr int kExactPacking = 8;

using Counts = std::vector<std::vector<int>>;  ///< links between members of a group, symmetric

/// The lexicographically first Hamiltonian cycle from member 0 along `neighbours` (a bit set per
/// member), or none. Dynamic programming over visited sets (Held and Karp 1962): ends[V] is the set
/// of members at which a path from 0 through exactly V can end. O(2^n · n), n ≤ 16.
std::optional<std::vector<int>> hamiltonian_cycle(const std::vector<unsigned>& neighbours) {
  const auto n = static_cast<int>(neighbours.size());
  const unsigned all = (1u << n) - 1;
  std::vector<unsigned> ends(std::size_t{1} << n, 0);
  ends[1] = 1;
  for (unsigned visited = 1; visited <= all; visited += 2) {
    for (unsigned left = ends[visited]; left != 0; left &= left - 1) {
      const auto at = static_cast<std::size_t>(std::countr_zero(left));
      for (unsigned next = neighbours[at] & ~visited; next != 0; next &= next - 1) {
        const unsigned bit = next & (~next + 1);
        ends[visited | bit] |= bit;
      }
    }
  }
  std::vector<int> cycle{0};
  unsigned candidates = ends[all] & neighbours[0];
  for (unsigned visited = all; visited != 1;) {
    if (candidates == 0) return std::nullopt;
    const int at = std::countr_zero(candidates);
    cycle.push_back(at);
    visited &= ~(1u << at);
    candidates = ends[visited] & neighbours[static_cast<std::size_t>(at)];
  }
  return cycle;
}

void remove_links(Counts& counts, const std::vector<int>& cycle, int links) {
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const auto a = static_cast<std::size_t>(cycle[i]);
    const auto b = static_cast<std::size_t>(cycle[(i + 1) % cycle.size()]);
    counts[a][b] -= links;
    counts[b][a] -= links;
  }
}

int ring_limit(const Counts& counts) {
  int limit = 1 << 20;
  for (const std::vector<int>& row : counts) {
    int degree = 0;
    for (const int count : row) degree += count;
    limit = std::min(limit, degree / 2);
  }
  return limit;
}

int packed_rings(Counts& counts, const std::vector<int>& at_least);

/// Extends `path` to every cycle not smaller than `at_least`, and packs further cycles in addition
/// to each.
int extended(Counts& counts, std::vector<int>& path, const std::vector<int>& at_least, int limit) {
  const std::size_t n = counts.size();
  const auto last = static_cast<std::size_t>(path.back());
  if (path.size() == n) {
    if (counts[last][0] < 1 || path < at_least) return 0;
    remove_links(counts, path, 1);
    const int rings = 1 + packed_rings(counts, path);
    remove_links(counts, path, -1);
    return rings;
  }
  int best = 0;
  for (std::size_t next = 1; next < n && best < limit; ++next) {
    const bool used = std::find(path.begin(), path.end(), static_cast<int>(next)) != path.end();
    if (used || counts[last][next] < 1) continue;
    path.push_back(static_cast<int>(next));
    best = std::max(best, extended(counts, path, at_least, limit));
    path.pop_back();
  }
  return best;
}

/// The maximum number of link-disjoint Hamiltonian cycles, by exhaustive search in lexicographic
/// order.
int packed_rings(Counts& counts, const std::vector<int>& at_least) {
  const int limit = ring_limit(counts);
  if (limit == 0) return 0;
  std::vector<int> path{0};
  return extended(counts, path, at_least, limit);
}

}  // namespace

/// The order of `ranks` (global, any domain) in a ring: ranks of a domain stay together, domains
/// are in ascending order, and the order inside a domain has the widest bottleneck.
///
///   max over cyclic orders of min over neighbours of bandwidth(a, b)
///
/// exactly for up to 16 GPUs with different links (threshold over the distinct bandwidths +
/// Hamiltonian cycle by dynamic programming), in ascending order beyond. Ties: lexicographic.
///
/// Assumes: hops of one ring do not share links; group_bandwidth() accounts for those that do.
/// Checked by: tests/topologies/graph/graph_test.cpp against brute force.
std::vector<int> TopologyGraph::ring(std::vector<int> ranks) const {
  std::sort(ranks.begin(), ranks.end());
  std::vector<int> order;
  for (std::size_t i = 0; i < ranks.size();) {
    const int base = ranks[i] / gpus_ * gpus_;
    Group local;
    for (; i < ranks.size() && ranks[i] < base + gpus_; ++i) local.push_back(ranks[i] - base);
    for (const int gpu : local_ring(local)) order.push_back(base + gpu);
  }
  return order;
}

Group TopologyGraph::local_ring(const Group& group) const {
  const std::size_t n = group.size();
  if (n <= 3 || n > kExactRing || machine_.interconnect == Interconnect::nvswitch) return group;
  std::vector<std::vector<BytesPerSecond>> wide(n, std::vector<BytesPerSecond>(n));
  std::vector<BytesPerSecond> thresholds;
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      wide[a][b] = wide[b][a] = pair_bandwidth(group[a], group[b]);
      thresholds.push_back(wide[a][b]);
    }
  }
  std::sort(thresholds.rbegin(), thresholds.rend());
  thresholds.erase(std::unique(thresholds.begin(), thresholds.end()), thresholds.end());
  for (const BytesPerSecond threshold : thresholds) {
    std::vector<unsigned> neighbours(n, 0);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        if (a != b && wide[a][b] >= threshold) neighbours[a] |= 1u << b;
      }
    }
    if (const auto cycle = hamiltonian_cycle(neighbours)) {
      Group ring;
      for (const int member : *cycle) ring.push_back(group[static_cast<std::size_t>(member)]);
      return ring;
    }
  }
  EXPECTS(false, "GPUs of one node are always connected");
  return group;
}

int TopologyGraph::nvlink_count(int a, int b) const {
  int count = 0;
  for (const auto edge : boost::make_iterator_range(boost::out_edges(gpu(a), graph_))) {
    if (boost::target(edge, graph_) == gpu(b)) count += graph_[edge].count;
  }
  return count;
}

/// Bandwidth between two GPUs of a node: their own links, or the PCIe tree if it is wider.
BytesPerSecond TopologyGraph::pair_bandwidth(int a, int b) const {
  const BytesPerSecond own = machine_.link * nvlink_count(a, b);
  const std::vector<Hop> route = peer_route(a, b);
  if (route.empty()) return own;
  return std::max(own, std::ranges::min(route, {}, &Hop::bandwidth).bandwidth);
}

/// Bandwidth of each ring while all run concurrently: the hops that cross a link of the PCIe tree
/// in the same direction share it equally; links between two GPUs belong to one ring.
std::vector<BytesPerSecond> TopologyGraph::ring_bandwidths(std::span<const Group> rings) const {
  std::map<std::pair<DeviceId, DeviceId>, int> load;
  std::vector<std::vector<Hop>> shared(rings.size());
  std::vector<std::optional<BytesPerSecond>> slowest(rings.size());
  const auto cross = [&](std::size_t ring, BytesPerSecond link) {
    slowest[ring] = slowest[ring] ? std::min(*slowest[ring], link) : link;
  };
  for (std::size_t r = 0; r < rings.size(); ++r) {
    for (std::size_t i = 0; i < rings[r].size(); ++i) {
      const int a = rings[r][i];
      const int b = rings[r][(i + 1) % rings[r].size()];
      const BytesPerSecond own = machine_.link * nvlink_count(a, b);
      if (own >= pair_bandwidth(a, b)) {
        cross(r, own);
        continue;
      }
      for (const Hop& hop : peer_route(a, b)) {
        ++load[{hop.from, hop.to}];
        shared[r].push_back(hop);
      }
    }
  }
  for (std::size_t r = 0; r < rings.size(); ++r) {
    for (const Hop& hop : shared[r]) {
      cross(r, hop.bandwidth / load[{hop.from, hop.to}]);
    }
  }
  std::vector<BytesPerSecond> bandwidth;
  for (const std::optional<BytesPerSecond>& each : slowest) {
    EXPECTS(each, "a ring has links");
    bandwidth.push_back(*each);
  }
  return bandwidth;
}

/// The maximum number of rings through all GPUs of the group that share no NVLink; exact for up to
/// 8 GPUs, greedy (a lower bound) for up to 16.
int TopologyGraph::disjoint_rings(const Group& group) const {
  const std::size_t n = group.size();
  Counts counts(n, std::vector<int>(n, 0));
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      if (a != b) counts[a][b] = nvlink_count(group[a], group[b]);
    }
  }
  if (n <= kExactPacking) return packed_rings(counts, {});
  for (int rings = 0;; ++rings) {
    std::vector<unsigned> neighbours(n, 0);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        if (counts[a][b] > 0) neighbours[a] |= 1u << b;
      }
    }
    const auto cycle = n <= kExactRing ? hamiltonian_cycle(neighbours) : std::nullopt;
    if (!cycle) return rings;
    remove_links(counts, *cycle, 1);
  }
}

/// Bandwidth per rank and direction inside the domain, for the slowest group, while all `groups`
/// (disjoint GPUs) run ring collectives concurrently.
///
///   NVSwitch        B = one GPU's NVLink bandwidth (non-blocking switch)
///   NVLink mesh     B = 2·k·b, k link-disjoint rings through the group, each used both ways
///                   (two GPUs: the sum of their links)
///   otherwise       B = min over links of the ring of (bandwidth / hops that cross it)
///
///   b  one NVLink, one direction
///
/// Source: NCCL 2.28 src/graph/search.cc (channels subtract their speed from every link they
/// cross); a ring used in both directions is two channels.
/// Assumes: equal shares of a shared link. A group of one does not limit.
/// Checked by: tests/topologies/graph/graph_test.cpp, tests/topologies/graph/group_test.cpp.
BytesPerSecond TopologyGraph::group_bandwidth(std::span<const Group> groups) const {
  if (machine_.interconnect == Interconnect::nvswitch) return machine_.link;
  std::vector<Group> rings;
  for (const Group& group : groups) {
    if (group.size() > 1) rings.push_back(local_ring(group));
  }
  if (rings.empty()) return machine_.node.gpu_link;
  const std::vector<BytesPerSecond> single = ring_bandwidths(rings);
  std::optional<BytesPerSecond> worst;
  for (std::size_t r = 0; r < rings.size(); ++r) {
    BytesPerSecond bandwidth = single[r];
    if (!machine_.links.empty() && rings[r].size() > 2) {
      bandwidth = std::max(bandwidth, machine_.link * (2.0 * disjoint_rings(rings[r])));
    }
    worst = worst ? std::min(*worst, bandwidth) : bandwidth;
  }
  return *worst;
}

/// Bandwidth out of a rank inside the domain while the ranks of all `groups` exchange equal parts
/// with all others of their group (all-to-all).
///
///   PCIe, bridges   B = min over links and directions of  bandwidth / Σ 1/(m − 1)
///                   over the pairs of ranks whose way crosses it, m members of their group
///   NVSwitch, mesh  group_bandwidth(): a switch blocks nobody, and a mesh passes on through its
///                   GPUs what has no link of its own
///
/// A ring crosses a link between sockets once in each direction, an all-to-all of m ranks with
/// m/2·m/2/(m − 1) times what one sends.
/// Assumes: equal shares of a shared link; two GPUs use their bridge where it is wider.
/// Checked by: tests/topologies/graph/group_test.cpp.
BytesPerSecond TopologyGraph::exchange_bandwidth(std::span<const Group> groups) const {
  const bool tree = machine_.interconnect == Interconnect::pcie ||
                    machine_.interconnect == Interconnect::nvlink_bridge;
  if (!tree) return group_bandwidth(groups);
  std::map<std::pair<DeviceId, DeviceId>, double> load;
  std::optional<BytesPerSecond> worst;
  const auto limit = [&](BytesPerSecond bandwidth) {
    worst = worst ? std::min(*worst, bandwidth) : bandwidth;
  };
  std::vector<Hop> hops;
  for (const Group& group : groups) {
    const double part = 1.0 / std::max(1.0, static_cast<double>(group.size()) - 1);
    for (const int from : group) {
      for (const int to : group) {
        if (from == to) continue;
        const BytesPerSecond own = machine_.link * nvlink_count(from, to);
        if (own >= pair_bandwidth(from, to)) {
          limit(own / part);
          continue;
        }
        for (const Hop& hop : peer_route(from, to)) {
          load[{hop.from, hop.to}] += part;
          hops.push_back(hop);
        }
      }
    }
  }
  for (const Hop& hop : hops) limit(hop.bandwidth / load[{hop.from, hop.to}]);
  return worst ? *worst : machine_.node.gpu_link;
}

}  // namespace echelon
