// For reports: algorithm and protocol of the fastest collective, and the lower bound of all.
#include <algorithm>

#include "core/base/expects.hpp"
#include "costmodel/collectives/collectives.hpp"

namespace echelon {
namespace {

constexpr double kFlagShare = 8.0 / 120.0;  ///< LL128: 8 of 128 bytes are flags

std::string_view protocol_of(const ChosenCollective& chosen) {
  const Seconds latency = chosen.transfer.latency;
  const Seconds wire = chosen.transfer.wire;
  if (chosen.algorithm == "nvls") return "simple";
  if (latency >= wire) return "ll";
  const bool flags_pay = latency > kFlagShare * kFlagShare * wire;
  return flags_pay && chosen.algorithm != "direct" ? "ll128" : "simple";
}

ChosenCollective fastest_all_reduce(Bytes payload, const GroupLinks& links) {
  ChosenCollective best{ring_all_reduce(payload, links), "ring", ""};
  const auto consider = [&](const Transfer& transfer, std::string_view algorithm) {
    if (transfer.time() < best.transfer.time()) best = {transfer, algorithm, ""};
  };
  consider(tree_all_reduce(payload, links), "tree");
  if (links.in_switch > BytesPerSecond{}) consider(switch_all_reduce(payload, links), "nvls");
  return best;
}

ChosenCollective fastest(CollectiveKind kind, Bytes payload, const GroupLinks& links) {
  switch (kind) {
    case CollectiveKind::all_reduce: return fastest_all_reduce(payload, links);
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter: return {ring_all_gather(payload, links), "ring", ""};
    case CollectiveKind::all_to_all: return {direct_all_to_all(payload, links), "direct", ""};
    case CollectiveKind::broadcast: return {ring_broadcast(payload, links), "ring", ""};
    case CollectiveKind::send_recv: return {direct_send(payload, links), "direct", ""};
    case CollectiveKind::none: break;
  }
  EXPECTS(false, "no collective to choose");
  return {};
}

}  // namespace

ChosenCollective chosen_collective(CollectiveKind kind, Bytes payload, const GroupLinks& links) {
  EXPECTS(links.ranks > 1, "a collective of one rank");
  ChosenCollective chosen = fastest(kind, payload, links);
  chosen.protocol = protocol_of(chosen);
  return chosen;
}

Seconds collective_bound(CollectiveKind kind, Bytes payload, const GroupNetwork& network) {
  if (network.ranks <= 1 || kind == CollectiveKind::none) return Seconds{};
  const int members = network.ranks_per_domain;
  const double n = network.ranks;
  double inside = bus_factor(kind, members);  // of the payload, out of a rank
  double outside = bus_factor(kind, network.domains);
  BytesPerSecond out = network.intra;
  BytesPerSecond egress = network.inter;
  if (kind == CollectiveKind::all_reduce && network.switch_reduces) inside /= 2;
  if (kind == CollectiveKind::all_to_all) {
    inside = (members - 1) / n;
    outside = (n - members) / n;
    out = network.intra_exchange;
    egress = network.inter_exchange;
  }
  if (kind == CollectiveKind::send_recv) egress = network.inter_per_rank;
  if (kind == CollectiveKind::send_recv && network.domains > 1) inside = 0;
  const Seconds within = members > 1 ? payload * inside / out : Seconds{};
  return network.domains > 1 ? std::max(within, payload * outside / egress) : within;
}

}  // namespace echelon
