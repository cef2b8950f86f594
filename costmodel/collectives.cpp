#include "costmodel/collectives.hpp"

#include <algorithm>
#include <bit>

namespace echelon {
namespace {

/// Latency of a ring over one level only.
Seconds level_latency(int members, Seconds hop) { return (members - 1) * hop; }

BytesPerSecond ring_bandwidth(const GroupLinks& g) {
  return g.domains > 1 ? (g.ranks_per_domain > 1 ? std::min(g.intra, g.inter) : g.inter) : g.intra;
}

/// (n − 1)/n of `total` through a ring of rate `rate`.
Seconds ring_share(Bytes total, int ranks, BytesPerSecond rate) {
  return total * ((ranks - 1.0) / ranks) / rate;
}

/// Gather (or, mirrored, scatter) inside domains and between them, one after the other.
Seconds two_level_gather(Bytes total, const GroupLinks& g) {
  return g.base + level_latency(g.ranks_per_domain, g.intra_hop) +
         level_latency(g.domains, g.inter_hop) + ring_share(total, g.ranks_per_domain, g.intra) +
         ring_share(total, g.domains, g.inter);
}

bool has_two_levels(const GroupLinks& g) { return g.domains > 1 && g.ranks_per_domain > 1; }

}  // namespace

GroupLinks apply(const GroupNetwork& network, const Calibration& calibration) {
  return {.ranks = network.ranks,
          .ranks_per_domain = network.ranks_per_domain,
          .domains = network.domains,
          .intra = network.intra * calibration.link_efficiency,
          .inter = network.inter * calibration.nic_efficiency,
          .inter_per_rank = network.inter_per_rank * calibration.nic_efficiency,
          .base = calibration.collective_base,
          .intra_hop = calibration.intra_hop + network.intra_latency,
          .inter_hop = calibration.inter_hop + network.inter_latency};
}

Seconds ring_latency(const GroupLinks& g, int traversals) {
  const int network_hops = g.domains - 1;
  return traversals * ((g.ranks - 1 - network_hops) * g.intra_hop + network_hops * g.inter_hop);
}

Seconds ring_all_gather(Bytes total, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  return g.base + ring_latency(g, 1) + ring_share(total, g.ranks, ring_bandwidth(g));
}

Seconds ring_reduce_scatter(Bytes total, const GroupLinks& g) { return ring_all_gather(total, g); }

Seconds ring_all_reduce(Bytes payload, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  return g.base + ring_latency(g, 2) + 2 * ring_share(payload, g.ranks, ring_bandwidth(g));
}

Seconds tree_all_reduce(Bytes payload, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  const int depth = std::bit_width(static_cast<unsigned>(g.domains)) - 1;
  return g.base + 2 * (level_latency(g.ranks_per_domain, g.intra_hop) + depth * g.inter_hop) +
         2 * (payload / ring_bandwidth(g));
}

Seconds hierarchical_all_reduce(Bytes payload, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  if (!has_two_levels(g)) return ring_all_reduce(payload, g);
  return g.base + 2 * level_latency(g.ranks_per_domain, g.intra_hop) +
         2 * level_latency(g.domains, g.inter_hop) +
         2 * ring_share(payload, g.ranks_per_domain, g.intra) +
         2 * ring_share(payload, g.domains, g.inter);
}

Seconds all_reduce(Bytes payload, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  return std::min({ring_all_reduce(payload, g), tree_all_reduce(payload, g),
                   hierarchical_all_reduce(payload, g)});
}

Seconds all_gather(Bytes total, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  const Seconds flat = ring_all_gather(total, g);
  return has_two_levels(g) ? std::min(flat, two_level_gather(total, g)) : flat;
}

Seconds reduce_scatter(Bytes total, const GroupLinks& g) { return all_gather(total, g); }

Seconds all_to_all(Bytes total, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  const double n = g.ranks;
  const Bytes local = total * ((g.ranks_per_domain - 1) / n);
  const Bytes remote = total * ((n - g.ranks_per_domain) / n);
  Seconds transfer = g.ranks_per_domain > 1 ? local / g.intra : Seconds{};
  if (g.domains > 1) transfer = std::max(transfer, remote / g.inter_per_rank);
  return g.base + (n - 1) * g.intra_hop + (g.domains > 1 ? g.inter_hop : Seconds{}) + transfer;
}

Seconds send_receive(Bytes payload, const GroupLinks& g) {
  if (g.ranks <= 1) return Seconds{};
  if (g.domains > 1) return g.inter_hop + payload / g.inter_per_rank;
  return g.intra_hop + payload / g.intra;
}

}  // namespace echelon
