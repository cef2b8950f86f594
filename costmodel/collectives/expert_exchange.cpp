#include "costmodel/collectives/expert_exchange.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

/// C(n, k), also of no place to choose from.
double choose(int n, int k) {
  if (k < 0 || k > n) return 0;
  double product = 1;
  for (int i = 0; i < k; ++i) product *= static_cast<double>(n - i) / (k - i);
  return product;
}

/// C(room − held, k) / C(room, k): that none of k experts among `room` is one of the `held`.
double missed(int room, int held, int k) {
  double product = 1;
  for (int i = 0; i < k; ++i) {
    product *= static_cast<double>(std::max(0, room - held - i)) / (room - i);
  }
  return product;
}

/// That the place with experts first … first + count − 1 holds one of a token's.
double met(const MixtureOfExperts& moe, int first, int count) {
  const int size = moe.experts / moe.router_groups;
  const int room = size * moe.router_group_topk;
  const int begin = first / size;
  const int end = (first + count - 1) / size + 1;
  // ways[j][c]: choices of j of the place's groups that share c experts with it.
  const auto places = static_cast<std::size_t>(end - begin) + 1;
  std::vector<std::vector<double>> ways(
      places, std::vector<double>(static_cast<std::size_t>(count) + 1, 0.0));
  ways[0][0] = 1;
  for (int group = begin; group < end; ++group) {
    const int shared = std::min(first + count, (group + 1) * size) - std::max(first, group * size);
    for (std::size_t j = places - 1; j > 0; --j) {
      for (int c = count; c >= shared; --c) {
        ways[j][static_cast<std::size_t>(c)] += ways[j - 1][static_cast<std::size_t>(c - shared)];
      }
    }
  }
  const int others = moe.router_groups - (end - begin);
  double missing = 0;
  for (std::size_t j = 0; j < places; ++j) {
    const double rest = choose(others, moe.router_group_topk - static_cast<int>(j));
    for (int c = 0; rest > 0 && c <= count; ++c) {
      const double chosen = ways[j][static_cast<std::size_t>(c)];
      if (chosen > 0) missing += chosen * rest * missed(room, c, moe.experts_per_token);
    }
  }
  return 1 - missing / choose(moe.router_groups, moe.router_group_topk);
}

/// The same of every place where each lies in one group or holds whole ones: j of the n groups that
/// it shares experts with are chosen in C(n, j) ways.
double met_of_whole_groups(const MixtureOfExperts& moe, int count) {
  const int size = moe.experts / moe.router_groups;
  const int shared = std::min(size, count);
  const int groups = count / shared;
  const int room = size * moe.router_group_topk;
  double missing = 0;
  for (int j = 0; j <= groups; ++j) {
    const double rest = choose(moe.router_groups - groups, moe.router_group_topk - j);
    if (rest > 0)
      missing += choose(groups, j) * rest * missed(room, j * shared, moe.experts_per_token);
  }
  return 1 - missing / choose(moe.router_groups, moe.router_group_topk);
}

/// What published benchmarks say of a dispatcher's kernels, in units of plain messages.
struct ExchangeKernels {
  double sms;                     ///< that they hold by default
  double sms_fast;                ///< … where links are faster than those of the benchmarks
  double of_links;                ///< share of the in-domain bandwidth
  BytesPerSecond per_sm;          ///< most that one SM moves inside a domain
  std::array<double, 3> of_nics;  ///< share of the NIC bandwidth between 2, 4, 8 domains
};

/// Tables count a copy to the sender's own domain or rank; it is taken off here.
///
/// DeepEP V1 (docs/legacy.md, H800, 4,096 tokens, hidden 7168, 8 experts of 4 groups): inside a
/// node 153 and 158 of 160 GB/s with 20 SMs; 43/43, 58/57, 51/50 GB/s between 2, 4, 8 nodes, of
/// which 1/2, 3/4, 7/8 cross to another: 21.5, 43, 44 of the 47 GB/s that a plain message has
/// (nccl-tests issues 267, 290). One SM on B200: 348 and 302 GB/s over 16 (HybridEP's README).
///
/// HybridEP (docs/README_Hybrid-EP.md): inside a domain the kernels move 735/674 GB/s (B200, 8
/// ranks, 16 SMs), 764/737 (GB200, 8 ranks), 642/605 (32 ranks), of which 7/8 and 31/32 leave the
/// rank: 590 to 669 of 720 GB/s (in training, Megatron-Core's report, arXiv 2603.07685: 675 and 744
/// us for 64 ranks of GB200, 630 and 570 GB/s); H100 with 16 SMs, whole calls, 54/53, 47/53, 41/47
/// GB/s between 2, 4, 8 nodes: 27, 37, 38 of 47 GB/s. So 16 SMs fill NVLink 5, and what more of
/// them move is not known; NVIDIA's recipes, those for Vera Rubin too, give them 32
/// (Megatron-Bridge@067f987d perf_recipes/_common.py:89), and β stays that of Blackwell.
constexpr ExchangeKernels kDeepEp{20, 20, 0.86, BytesPerSecond{17.8e9}, {0.46, 0.92, 0.94}};
constexpr ExchangeKernels kHybridEp{16, 32, 0.87, BytesPerSecond{40e9}, {0.57, 0.80, 0.82}};

const ExchangeKernels& kernels_of(Dispatcher dispatcher) {
  return dispatcher == Dispatcher::deepep ? kDeepEp : kHybridEp;
}

/// SMs that they hold.
double held_sms(const ExchangeKernels& kernels, const GroupLinks& links) {
  constexpr BytesPerSecond kNvlink5{900e9};
  return links.ranks_per_domain > 1 && links.intra_exchange > kNvlink5 ? kernels.sms_fast
                                                                       : kernels.sms;
}

bool sends_once(Dispatcher dispatcher) {
  return dispatcher == Dispatcher::deepep || dispatcher == Dispatcher::hybridep;
}

/// Between the published numbers of domains on a line over their logarithm.
double share_of_nics(const ExchangeKernels& kernels, int domains) {
  const double at = std::clamp(std::log2(domains) - 1, 0.0, 2.0);
  const auto below = static_cast<std::size_t>(std::min(at, 1.0));
  const double part = at - static_cast<double>(below);
  return (1 - part) * kernels.of_nics[below] + part * kernels.of_nics[below + 1];
}

}  // namespace

double places_met(const MixtureOfExperts& moe, int places) {
  EXPECTS(places >= 1 && moe.experts % places == 0, "places that divide the experts");
  const int count = moe.experts / places;
  const int groups = moe.router_groups;
  if (places % groups == 0 || groups % places == 0) return places * met_of_whole_groups(moe, count);
  double sum = 0;
  for (int place = 0; place < places; ++place) sum += met(moe, place * count, count);
  return sum;
}

TokenCopies copies_per_token(Dispatcher dispatcher, const MixtureOfExperts& moe, int ranks,
                             int domains) {
  const double n = ranks;
  const double members = n / domains;
  const double k = moe.experts_per_token;
  if (!sends_once(dispatcher)) return {k * (members - 1) / n, k * (n - members) / n};
  // Domains of unequal size hold no whole number of experts: then as if experts lay anywhere.
  const bool even = moe.experts % domains == 0;
  const double met = even ? places_met(moe, domains) : std::min<double>(k, domains);
  return {places_met(moe, ranks) * (members - 1) / members, met * (domains - 1.0) / domains};
}

Seconds expert_exchange(Dispatcher dispatcher, const MixtureOfExperts& moe, Bytes payload,
                        double width, const GroupLinks& links) {
  if (links.ranks <= 1) return Seconds{};
  if (!sends_once(dispatcher)) return all_to_all(payload, links);
  const ExchangeKernels& kernels = kernels_of(dispatcher);
  const TokenCopies copies = copies_per_token(dispatcher, moe, links.ranks, links.domains);
  const Bytes tokens = payload * (width / moe.experts_per_token);
  Seconds wire;
  Seconds latency = links.intra_hop;
  if (links.ranks_per_domain > 1) {
    wire = tokens * copies.in_domain /
           std::min(links.intra_exchange * kernels.of_links,
                    kernels.per_sm * held_sms(kernels, links));
  }
  if (links.domains > 1) {
    latency += links.inter_hop;
    wire = std::max(wire, tokens * copies.between /
                              (links.inter_exchange * share_of_nics(kernels, links.domains)));
  }
  return Transfer{links.base, latency, wire}.time();
}

double exchange_slowdown(Dispatcher dispatcher, const GroupLinks& links, double sms,
                         double otherwise) {
  if (!sends_once(dispatcher)) return otherwise;
  const double held = held_sms(kernels_of(dispatcher), links);
  return sms > held ? held / (sms - held) : 1;
}

Seconds exposed_of_pair(const PairedLayer& p) {
  const Seconds experts =
      std::max(std::max(p.experts_input + p.experts_weight, p.dispatch) + p.experts_forward,
               std::max(p.dispatch, p.experts_input) + p.dispatch_backward);
  const Seconds pair = std::max(p.combine_backward, p.attention_forward) + experts +
                       std::max(p.attention_backward, p.combine);
  return pair - (p.attention_forward + p.attention_backward + p.experts_forward + p.experts_input +
                 p.experts_weight);
}

}  // namespace echelon
