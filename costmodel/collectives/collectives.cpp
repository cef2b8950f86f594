#include "costmodel/collectives/collectives.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

/// Bandwidth is traded for latency only while messages are small: the size of NCCL's chunks is
/// bounded. Between 1 and 4 published tables fit equally well; whole runs on many nodes favour the
/// smallest value.
constexpr double kMostTraded = 1;
constexpr double kTreeEfficiency = 0.92;  ///< NCCL 2.28 src/graph/tuning.cc
constexpr int kPeersAtOnce = 8;           ///< NCCL 2.28 src/enqueue.cc, sends of one batch

struct NamedCollective {
  CollectiveKind kind;
  std::string_view name;
  std::string_view program;  ///< of nccl-tests
};
constexpr std::array<NamedCollective, 6> kNamed = {{
    {CollectiveKind::all_reduce, "all_reduce", "allreduce"},
    {CollectiveKind::all_gather, "all_gather", "allgather"},
    {CollectiveKind::reduce_scatter, "reduce_scatter", "reducescatter"},
    {CollectiveKind::all_to_all, "all_to_all", "alltoall"},
    {CollectiveKind::broadcast, "broadcast", "broadcast"},
    {CollectiveKind::send_recv, "send_recv", "sendrecv"},
}};

BytesPerSecond ring_bandwidth(const GroupLinks& g) {
  return g.domains > 1 ? (g.ranks_per_domain > 1 ? std::min(g.intra, g.inter) : g.inter) : g.intra;
}

/// (n − 1)/n of `total` through a ring.
Seconds ring_share(Bytes total, const GroupLinks& g) {
  return total * ((g.ranks - 1.0) / g.ranks) / ring_bandwidth(g);
}

int tree_depth(int domains) { return std::bit_width(static_cast<unsigned>(domains)) - 1; }

/// Data that a tree sends out of one domain; none from a single domain.
Seconds tree_egress(Bytes payload, const GroupLinks& g) {
  if (g.domains == 1) return Seconds{};
  return (g.domains == 2 ? 1 : 2) * (payload / g.inter);
}

}  // namespace

std::span<const CollectiveKind> all_collectives() {
  static constexpr std::array<CollectiveKind, 6> kAll = {
      CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
      CollectiveKind::all_to_all, CollectiveKind::broadcast,  CollectiveKind::send_recv};
  return kAll;
}

std::string_view name_of(CollectiveKind kind) {
  for (const NamedCollective& named : kNamed) {
    if (named.kind == kind) return named.name;
  }
  return "";
}

std::optional<CollectiveKind> collective_named(std::string_view name) {
  for (const NamedCollective& named : kNamed) {
    if (named.name == name || named.program == name) return named.kind;
  }
  return std::nullopt;
}

double bus_factor(CollectiveKind kind, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  switch (kind) {
    case CollectiveKind::all_reduce: return 2 * share;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all: return share;
    case CollectiveKind::none:
    case CollectiveKind::broadcast:
    case CollectiveKind::send_recv: break;
  }
  return 1;
}

GroupLinks apply(const GroupNetwork& network, const Calibration& calibration) {
  const BytesPerSecond intra = network.intra * calibration.link_efficiency;
  const double members = network.ranks_per_domain;
  const bool adds = network.switch_reduces && network.ranks_per_domain > 2;
  return {.ranks = network.ranks,
          .ranks_per_domain = network.ranks_per_domain,
          .domains = network.domains,
          .intra = intra,
          .inter = network.inter * calibration.nic_efficiency,
          .inter_per_rank = network.inter_per_rank * calibration.nic_efficiency,
          .intra_exchange = network.intra_exchange * calibration.link_efficiency,
          .inter_exchange = network.inter_exchange * calibration.nic_efficiency,
          .in_switch = adds ? intra * (members / (members + 1) * calibration.switch_efficiency)
                            : BytesPerSecond{},
          .base = calibration.collective_base,
          .intra_hop = calibration.intra_hop + network.intra_latency,
          .inter_hop = calibration.inter_hop + network.inter_latency,
          .switch_base = calibration.switch_base};
}

Seconds Transfer::time() const {
  const Seconds traded{std::sqrt(latency.in(kSecond)*wire.in(kSecond))};
  return base + latency + wire + 2 * std::min(traded, kMostTraded * latency);
}

Seconds ring_latency(const GroupLinks& g, int traversals) {
  const int network_hops = g.domains - 1;
  return traversals * ((g.ranks - 1 - network_hops) * g.intra_hop + network_hops * g.inter_hop);
}

Transfer ring_all_gather(Bytes total, const GroupLinks& g) {
  return {g.base, ring_latency(g, 1), ring_share(total, g)};
}

Transfer ring_all_reduce(Bytes payload, const GroupLinks& g) {
  return {g.base, ring_latency(g, 2), 2 * ring_share(payload, g)};
}

Transfer tree_all_reduce(Bytes payload, const GroupLinks& g) {
  const Seconds chain = g.ranks_per_domain > 1 ? 2 * (payload / g.intra) : Seconds{};
  return {g.base,
          2 * ((g.ranks_per_domain - 1) * g.intra_hop + tree_depth(g.domains) * g.inter_hop),
          std::max(chain, tree_egress(payload, g)) / kTreeEfficiency};
}

Transfer switch_all_reduce(Bytes payload, const GroupLinks& g) {
  return {g.base, g.switch_base + 2 * tree_depth(g.domains) * g.inter_hop,
          std::max(payload / g.in_switch, tree_egress(payload, g))};
}

Transfer ring_broadcast(Bytes payload, const GroupLinks& g) {
  return {g.base, ring_latency(g, 1), payload / ring_bandwidth(g)};
}

Transfer direct_all_to_all(Bytes total, const GroupLinks& g) {
  const double n = g.ranks;
  const int batches = (g.ranks - 1 + kPeersAtOnce - 1) / kPeersAtOnce;
  Seconds wire = g.ranks_per_domain > 1 ? total * ((g.ranks_per_domain - 1) / n) / g.intra_exchange
                                        : Seconds{};
  if (g.domains > 1) {
    wire = std::max(wire, total * ((n - g.ranks_per_domain) / n) / g.inter_exchange);
  }
  return {g.base, batches * g.intra_hop + (g.domains > 1 ? g.inter_hop : Seconds{}), wire};
}

Transfer direct_send(Bytes payload, const GroupLinks& g) {
  if (g.domains > 1) return {g.base, g.inter_hop, payload / g.inter_per_rank};
  return {g.base, g.intra_hop, payload / g.intra};
}

Seconds all_reduce(Bytes payload, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  const Seconds best =
      std::min(ring_all_reduce(payload, g).time(), tree_all_reduce(payload, g).time());
  if (!(g.in_switch > BytesPerSecond{})) return best;
  return std::min(best, switch_all_reduce(payload, g).time());
}

Seconds all_gather(Bytes total, const GroupLinks& g) {
  return g.ranks <= 1 ? Seconds{} : ring_all_gather(total, g).time();
}

Seconds reduce_scatter(Bytes total, const GroupLinks& g) { return all_gather(total, g); }

Seconds all_to_all(Bytes total, const GroupLinks& g) {
  return g.ranks <= 1 ? Seconds{} : direct_all_to_all(total, g).time();
}

Seconds send_receive(Bytes payload, const GroupLinks& g) {
  return g.ranks <= 1 ? Seconds{} : direct_send(payload, g).time();
}

Seconds collective_time(CollectiveKind kind, Bytes payload, const GroupLinks& links) {
  switch (kind) {
    case CollectiveKind::none: break;
    case CollectiveKind::all_reduce: return all_reduce(payload, links);
    case CollectiveKind::all_gather: return all_gather(payload, links);
    case CollectiveKind::reduce_scatter: return reduce_scatter(payload, links);
    case CollectiveKind::all_to_all: return all_to_all(payload, links);
    case CollectiveKind::broadcast:
      return links.ranks <= 1 ? Seconds{} : ring_broadcast(payload, links).time();
    case CollectiveKind::send_recv: return send_receive(payload, links);
  }
  return Seconds{};
}

}  // namespace echelon
