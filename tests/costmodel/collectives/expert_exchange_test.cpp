// Copies of a token, bytes and time of dispatch and combine, and what a pair of microbatches hides.
#include "costmodel/collectives/expert_exchange.hpp"

#include <set>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

using namespace echelon;

namespace {

MixtureOfExperts mixture(int experts, int per_token, int groups = 1, int group_topk = 1) {
  MixtureOfExperts moe;
  moe.experts = experts;
  moe.experts_per_token = per_token;
  moe.router_groups = groups;
  moe.router_group_topk = group_topk;
  return moe;
}

/// The first `count` of the numbers below `below`, shuffled.
std::vector<int> drawn(Numbers& draw, int below, int count) {
  std::vector<int> all;
  for (int i = 0; i < below; ++i) all.push_back(i);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::swap(all[i], all[i + draw.below(all.size() - i)]);
  }
  all.resize(static_cast<std::size_t>(count));
  return all;
}

/// Mean number of places met by tokens that draw their groups, then their experts.
double met_by_drawing(const MixtureOfExperts& moe, int places) {
  Numbers draw(7);
  constexpr int kTokens = 40'000;
  const int size = moe.experts / moe.router_groups;
  double sum = 0;
  for (int token = 0; token < kTokens; ++token) {
    const std::vector<int> groups = drawn(draw, moe.router_groups, moe.router_group_topk);
    std::set<int> met;
    for (const int at : drawn(draw, size * moe.router_group_topk, moe.experts_per_token)) {
      const int expert = groups[static_cast<std::size_t>(at / size)] * size + at % size;
      met.insert(expert / (moe.experts / places));
    }
    sum += static_cast<double>(met.size());
  }
  return sum / kTokens;
}

/// 64 H800 in nodes of 8: 160 GB/s of NVLink and 47 GB/s of NIC per GPU, no latency.
GroupLinks h800(int ranks) {
  GroupLinks links;
  links.ranks = ranks;
  links.ranks_per_domain = 8;
  links.domains = ranks / 8;
  links.intra = links.intra_exchange = 160_GBps;
  links.inter = 8 * 47_GBps;
  links.inter_per_rank = links.inter_exchange = 47_GBps;
  return links;
}

}  // namespace

TEST_CASE("a token of DeepSeek-V3 meets 3.63 of 8 nodes and 7.36 of 64 ranks") {
  CHECK(places_met(mixture(256, 8), 8) == Approx(5.30).epsilon(0.002));
  CHECK(places_met(mixture(256, 8, 8, 4), 8) == Approx(3.63).epsilon(0.001));
  CHECK(places_met(mixture(256, 8, 8, 4), 64) == Approx(7.36).epsilon(0.001));
}

TEST_CASE("places met are those of tokens that draw their experts") {
  const struct {
    MixtureOfExperts moe;
    int places;
  } cases[] = {{mixture(256, 8), 8},       {mixture(256, 8, 8, 4), 8}, {mixture(256, 8, 8, 4), 64},
               {mixture(256, 8, 8, 4), 4}, {mixture(256, 8, 8, 4), 2}, {mixture(160, 6, 8, 3), 20},
               {mixture(160, 6, 8, 3), 5}, {mixture(384, 8, 4, 3), 6}, {mixture(8, 2), 4},
               {mixture(128, 8), 16}};
  for (const auto& [moe, places] : cases) {
    CAPTURE(moe.experts, moe.router_groups, places);
    CHECK(places_met(moe, places) == Approx(met_by_drawing(moe, places)).epsilon(0.01));
  }
}

TEST_CASE("a token meets every place that holds all experts, and none twice") {
  CHECK(places_met(mixture(256, 8, 8, 4), 1) == Approx(1));
  CHECK(places_met(mixture(8, 8), 4) == Approx(4));
  CHECK(places_met(mixture(256, 1), 64) == Approx(1));
}

TEST_CASE("alltoall sends a copy per expert, DeepEP one per node and rank met") {
  const MixtureOfExperts moe = mixture(256, 8, 8, 4);
  const TokenCopies all = copies_per_token(Dispatcher::alltoall, moe, 64, 8);
  CHECK(all.in_domain == Approx(8.0 * 7 / 64));
  CHECK(all.between == Approx(8.0 * 56 / 64));
  const TokenCopies once = copies_per_token(Dispatcher::deepep, moe, 64, 8);
  CHECK(once.between == Approx(3.629 * 7 / 8).epsilon(0.001));
  CHECK(once.in_domain == Approx(7.359 * 7 / 8).epsilon(0.001));
}

TEST_CASE("DeepEP takes as long as its published benchmark on H800") {
  // 4,096 tokens of 7168 values in bf16, 8 experts of 4 groups: docs/legacy.md of DeepEP at dd758ca
  // gives 43, 57 and 50 GB/s of combine between 16, 32 and 64 ranks, the copies to the own node
  // counted, and 158 GB/s inside a node.
  const MixtureOfExperts moe = mixture(256, 8, 8, 4);
  const Bytes payload{2.0 * 4096 * 7168 * 8};
  const struct {
    int ranks;
    double gigabytes;
  } published[] = {{16, 43}, {32, 57}, {64, 50}};
  for (const auto& [ranks, gigabytes] : published) {
    CAPTURE(ranks);
    const double logical = 2.0 * 4096 * 7168 * places_met(moe, ranks / 8);
    const Seconds time = expert_exchange(Dispatcher::deepep, moe, payload, 1, h800(ranks));
    CHECK(logical / time.in(1_s) / 1e9 == Approx(gigabytes).epsilon(0.03));
  }
  const double logical = 2.0 * 4096 * 7168 * places_met(moe, 8);
  const Seconds inside = expert_exchange(Dispatcher::deepep, moe, payload, 1, h800(8));
  CHECK(logical / inside.in(1_s) / 1e9 == Approx(155).epsilon(0.03));
}

TEST_CASE("HybridEP's kernels inside a domain take as long as published") {
  // 4,096 tokens of 7168 values in bf16 to 8 of 64 ranks' experts on GB200:
  // docs/README_Hybrid-EP.md at 94a9f8f has 546/569 GB/s for whole calls and 764/737 for kernels
  // between 8 ranks.
  const MixtureOfExperts moe = mixture(64, 8, 1, 1);
  GroupLinks links = h800(8);
  links.intra = links.intra_exchange = BytesPerSecond{720e9};
  const Bytes payload{2.0 * 4096 * 7168 * 8};
  const double logical = 2.0 * 4096 * 7168 * places_met(moe, 8);
  const Seconds time = expert_exchange(Dispatcher::hybridep, moe, payload, 1, links);
  CHECK(logical / time.in(1_s) / 1e9 > 0.9 * 737);
  CHECK(logical / time.in(1_s) / 1e9 < 764);
}

TEST_CASE("DeepEP and HybridEP send half the bytes in fp8, and no dispatcher sends to itself") {
  const MixtureOfExperts moe = mixture(256, 8, 8, 4);
  for (const Dispatcher each : {Dispatcher::deepep, Dispatcher::hybridep}) {
    const Seconds wide = expert_exchange(each, moe, 1_GB, 1, h800(64));
    CHECK(expert_exchange(each, moe, 1_GB, 0.5, h800(64)) / wide == Approx(0.5));
    GroupLinks one = h800(8);
    one.ranks = one.ranks_per_domain = 1;
    CHECK(expert_exchange(each, moe, 1_GB, 1, one) == Seconds{});
  }
}

TEST_CASE("the SMs that an exchange holds slow the kernels next to it") {
  const GroupLinks links = h800(8);
  CHECK(exchange_slowdown(Dispatcher::deepep, links, 132, 0.15) == Approx(20.0 / 112));
  CHECK(exchange_slowdown(Dispatcher::hybridep, links, 148, 0.15) == Approx(16.0 / 132));
  CHECK(exchange_slowdown(Dispatcher::alltoall, links, 132, 0.15) == Approx(0.15));
}

TEST_CASE("HybridEP takes twice the SMs on links that are faster than NVLink 5") {
  const MixtureOfExperts moe = mixture(64, 8, 1, 1);
  const auto links_of = [](double rate) {
    GroupLinks links = h800(8);
    links.intra = links.intra_exchange = BytesPerSecond{rate};
    return links;
  };
  const auto seconds = [&](double rate) {
    return expert_exchange(Dispatcher::hybridep, moe, 1_GB, 1, links_of(rate)).in(1_s);
  };
  CHECK(seconds(700e9) / seconds(1200e9) == Approx(1200.0 / 700).epsilon(0.01));
  CHECK(exchange_slowdown(Dispatcher::hybridep, links_of(900e9), 224, 0.15) == Approx(16.0 / 208));
  CHECK(exchange_slowdown(Dispatcher::hybridep, links_of(1200e9), 224, 0.15) == Approx(32.0 / 192));
}

TEST_CASE("of a pair of microbatches only what exceeds the partner is exposed") {
  PairedLayer p;
  p.attention_forward = 2_s;
  p.attention_backward = 4_s;
  p.experts_forward = p.experts_input = p.experts_weight = 3_s;
  p.dispatch = p.combine = p.dispatch_backward = p.combine_backward = 1_s;
  CHECK(exposed_of_pair(p).in(1_s) == Approx(0));
  p.combine_backward = 5_s;  // beside 2 s of attention
  CHECK(exposed_of_pair(p).in(1_s) == Approx(3));
  p.combine_backward = 1_s;
  p.dispatch = 8_s;  // beside 6 s of gradients, before the forward of the experts
  CHECK(exposed_of_pair(p).in(1_s) == Approx(2));
  p.dispatch = 1_s;
  p.dispatch_backward = 10_s;  // behind the 3 s of input gradients
  CHECK(exposed_of_pair(p).in(1_s) == Approx(4));
  p.dispatch_backward = 1_s;
  p.combine = 7_s;  // beside 4 s of attention's backward
  CHECK(exposed_of_pair(p).in(1_s) == Approx(3));
}
