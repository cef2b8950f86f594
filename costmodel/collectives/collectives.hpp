// Time of the collectives over a described network. Formulas, no fitted numbers.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/base/units.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "topologies/topology.hpp"

namespace echelon {

enum class CollectiveKind {
  none,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send_recv
};
/// All but `none`, in the order they are listed.
[[nodiscard]] std::span<const CollectiveKind> all_collectives();
/// "all_reduce"; nothing for `none`.
[[nodiscard]] std::string_view name_of(CollectiveKind kind);
/// From such a name, or from that of an nccl-tests program ("alltoall", "sendrecv").
[[nodiscard]] std::optional<CollectiveKind> collective_named(std::string_view name);
/// nccl-tests' bus bandwidth / algorithm bandwidth: 2(n − 1)/n, (n − 1)/n or 1.
/// Source: nccl-tests doc/PERFORMANCE.md.
[[nodiscard]] double bus_factor(CollectiveKind kind, int ranks);

/// A group's network with efficiencies applied: the input of the formulas below.
struct GroupLinks {
  int ranks = 1;
  int ranks_per_domain = 1;
  int domains = 1;
  BytesPerSecond intra;  ///< per rank and direction inside a domain
  BytesPerSecond inter;  ///< whole group, out of one domain
  BytesPerSecond inter_per_rank;
  BytesPerSecond intra_exchange;  ///< per rank, in all-to-alls of all groups of the pattern
  BytesPerSecond inter_exchange;  ///< …, of what leaves the domain
  BytesPerSecond in_switch;       ///< all-reduce by the domain's switch; 0: not supported
  Seconds base;                   ///< fixed per collective
  Seconds intra_hop;
  Seconds inter_hop;
  Seconds switch_base;  ///< fixed per reduction in the switch
};
/// in_switch = intra · R/(R + 1) · switch_efficiency for more than two ranks R of a domain: each
/// sends its S to be reduced and S/R to be multicast. Source: NCCL 2.28 src/graph/search.cc (a head
/// counts twice) and tuning.cc (nvlsEfficiency).
[[nodiscard]] GroupLinks apply(const GroupNetwork& network, const Calibration& calibration);

/// A collective by one algorithm: latencies that cannot be avoided, and bytes over the slowest
/// link.
struct Transfer {
  Seconds base;
  Seconds latency;  ///< L, of all steps
  Seconds wire;     ///< X
  /// t = base + L + X + 2·min(√(L·X), L), for small messages base + (√L + √X)²
  ///
  /// A protocol that waits for less (LL) or a larger chunk buys latency with bandwidth: it takes
  /// (1 + x)·L + (1 + 1/x)·X for some x, the best x is √(X/L), and that minimum is the formula.
  /// Equally the best number of chunks of a pipeline. Source: Hockney's pipelined model; NCCL's LL,
  /// LL128 and Simple (arXiv 2507.04786). Checked by:
  /// tests/costmodel/collectives/collective_accuracy_test.cpp.
  [[nodiscard]] Seconds time() const;
};

/// L of `traversals` trips round a ring that orders the ranks domain by domain:
///   traversals · [(n − N)·α_intra + (N − 1)·α_inter],  n ranks, N domains
/// Source: NCCL 2.28 src/graph/tuning.cc, ring latency (k = N − 1 network hops per n − 1 steps).
[[nodiscard]] Seconds ring_latency(const GroupLinks& links, int traversals);

/// Ring all-gather of `total` bytes (each rank ends with all of them):
///   L = one trip,  X = (n − 1)/n · S / B,   B = min(intra, inter)
/// Source: nccl-tests doc/PERFORMANCE.md, "AllGather". The same for a reduce-scatter, its mirror.
[[nodiscard]] Transfer ring_all_gather(Bytes total, const GroupLinks& links);
/// Ring all-reduce: L = two trips, X = 2(n − 1)/n · S / B.
/// Source: nccl-tests doc/PERFORMANCE.md, "AllReduce".
[[nodiscard]] Transfer ring_all_reduce(Bytes payload, const GroupLinks& links);
/// Double binary tree over domains, chain inside a domain:
///   L = 2[(R − 1)·α_intra + ⌊log2 N⌋·α_inter],  X = max(2·S / intra, d·S / inter) / 0.92
/// d = 0, 1, 2 for 1, 2, more domains: of two domains one is the leaf, and sends once.
/// Source: NCCL 2.28 src/graph/tuning.cc, tree latency, bandwidth and the factor 0.92.
[[nodiscard]] Transfer tree_all_reduce(Bytes payload, const GroupLinks& links);
/// Reduced in the domain's switch (NVLS), a tree of them over domains (NVLSTree):
///   L = α_switch + 2⌊log2 N⌋·α_inter,  X = max(S / in_switch, d·S / inter)
/// Only with links.in_switch. Source: NCCL 2.28 src/graph/tuning.cc, NVLS and NVLSTree.
[[nodiscard]] Transfer switch_all_reduce(Bytes payload, const GroupLinks& links);
/// Ring broadcast: L = one trip, X = S / B.
[[nodiscard]] Transfer ring_broadcast(Bytes payload, const GroupLinks& links);
/// All-to-all of `total` bytes held by each rank (n − 1 of n leave it):
///   L = ⌈(n − 1)/8⌉·α_intra (+ α_inter),  X = max(S·(R−1)/n / intra_exchange,
///                                            S·(n−R)/n / inter_exchange)
/// Source: NCCL grouped send/recv, eight peers at a time; bound by injection per rank.
[[nodiscard]] Transfer direct_all_to_all(Bytes total, const GroupLinks& links);
/// One message between neighbours of the group: L and X of the slower kind of hop it has.
[[nodiscard]] Transfer direct_send(Bytes payload, const GroupLinks& links);

/// The times below are of the fastest algorithm, and zero for one rank.
[[nodiscard]] Seconds all_reduce(Bytes payload, const GroupLinks& links);
[[nodiscard]] Seconds all_gather(Bytes total, const GroupLinks& links);
[[nodiscard]] Seconds reduce_scatter(Bytes total, const GroupLinks& links);
[[nodiscard]] Seconds all_to_all(Bytes total, const GroupLinks& links);
[[nodiscard]] Seconds send_receive(Bytes payload, const GroupLinks& links);
[[nodiscard]] Seconds collective_time(CollectiveKind kind, Bytes payload, const GroupLinks& links);

/// The fastest algorithm and its terms; `kind` is not `none`, the group has at least two ranks.
struct ChosenCollective {
  Transfer transfer;
  std::string_view algorithm;  ///< "ring", "tree", "nvls", "direct"
  /// "ll" while half the bandwidth or more goes into short waits (L ≥ X), "ll128" while more than
  /// the 1/15 of it that LL128's flags cost (√(L/X) > 1/15), else "simple". Only "simple" in the
  /// switch; messages outside a collective know no "ll128".
  std::string_view protocol;
};
[[nodiscard]] ChosenCollective chosen_collective(CollectiveKind kind, Bytes payload,
                                                 const GroupLinks& links);

/// Lower bound of every algorithm on these links at data-sheet rates (`links` without
/// efficiencies):
///   bytes that must leave a rank / its links, bytes that must leave a domain / its NICs
/// In-switch reduction halves the bytes of an all-reduce. No latency.
/// Source: Patarasuk & Yuan, JPDC 69 (2009) for 2(n − 1)/n and (n − 1)/n.
[[nodiscard]] Seconds collective_bound(CollectiveKind kind, Bytes payload,
                                       const GroupNetwork& network);

}  // namespace echelon
