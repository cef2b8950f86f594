// Time of the collectives over a described network. Formulas, no fitted numbers.
#pragma once

#include "core/calibration.hpp"
#include "core/units.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// A group's network with efficiencies applied: what the formulas below need.
struct GroupLinks {
  int ranks = 1;
  int ranks_per_domain = 1;
  int domains = 1;
  BytesPerSecond intra;  ///< per rank and direction inside a domain
  BytesPerSecond inter;  ///< whole group, out of one domain
  BytesPerSecond inter_per_rank;
  Seconds base;  ///< fixed per collective
  Seconds intra_hop;
  Seconds inter_hop;
};
[[nodiscard]] GroupLinks apply(const GroupNetwork& network, const Calibration& calibration);

/// Latency of `traversals` trips round a ring that orders the ranks domain by domain:
///   traversals · [(n − N)·α_intra + (N − 1 or N)·α_inter],  n ranks, N domains
/// Source: NCCL 2.28 src/graph/tuning.cc, ring latency (k = N − 1 network hops per n − 1 steps).
[[nodiscard]] Seconds ring_latency(const GroupLinks& links, int traversals);

/// Ring all-gather of `total` bytes (each rank ends with all of them):
///   t = base + (n−1 steps of latency) + (n − 1)/n · S / B,   B = min(intra, inter)
/// Source: nccl-tests doc/PERFORMANCE.md, "AllGather". Returns 0 for one rank.
[[nodiscard]] Seconds ring_all_gather(Bytes total, const GroupLinks& links);
/// Ring reduce-scatter of `total` bytes held by each rank: the mirror image of the all-gather.
[[nodiscard]] Seconds ring_reduce_scatter(Bytes total, const GroupLinks& links);
/// Ring all-reduce: t = base + 2(n−1 steps) + 2(n − 1)/n · S / B.
/// Source: nccl-tests doc/PERFORMANCE.md, "AllReduce".
[[nodiscard]] Seconds ring_all_reduce(Bytes payload, const GroupLinks& links);
/// Double binary tree over domains, chain inside a domain:
///   t = base + 2[(R − 1)·α_intra + ⌊log2 N⌋·α_inter] + 2·S / B
/// Source: NCCL 2.28 src/graph/tuning.cc, tree latency and bandwidth (factor 0.5 of the bus).
[[nodiscard]] Seconds tree_all_reduce(Bytes payload, const GroupLinks& links);
/// Reduce-scatter inside the domain, all-reduce between domains on 1/R of the data per rank,
/// all-gather inside:  2(R−1)/R · S/intra + 2(N−1)/N · S/inter  + latencies of the three phases.
[[nodiscard]] Seconds hierarchical_all_reduce(Bytes payload, const GroupLinks& links);
/// The fastest of ring, tree and hierarchical.
[[nodiscard]] Seconds all_reduce(Bytes payload, const GroupLinks& links);
/// The fastest of the flat ring and the two-level (inside, then between domains) forms.
[[nodiscard]] Seconds all_gather(Bytes total, const GroupLinks& links);
[[nodiscard]] Seconds reduce_scatter(Bytes total, const GroupLinks& links);
/// All-to-all of `total` bytes held by each rank (n − 1 of n leave it):
///   t = base + (n − 1)·α + max(S·(R−1)/n / intra, S·(n−R)/n / inter_per_rank)
/// Source: NCCL grouped send/recv; bound by injection per rank.
[[nodiscard]] Seconds all_to_all(Bytes total, const GroupLinks& links);
/// One message between neighbours of the group: α + S/B of the slower of the two kinds of hop used.
[[nodiscard]] Seconds send_receive(Bytes payload, const GroupLinks& links);

}  // namespace echelon
