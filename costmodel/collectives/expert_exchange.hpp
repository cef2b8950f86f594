// How tokens reach their experts and come back: copies per token, bytes on the links, time.
#pragma once

#include "core/model/model.hpp"
#include "core/plan/parallel_plan.hpp"
#include "costmodel/collectives/collectives.hpp"

namespace echelon {

/// Expected number of `places`, which hold E/places consecutive experts each, with at least one of
/// the k experts of a token. The token's M of G groups are drawn evenly, then its experts evenly
/// from the P = M·E/G experts in them:
///
///   Σ over places of  1 − Σ over the sets S of M groups  C(P − c_S, k) / C(P, k) / C(G, M)
///
///   c_S   experts that the place shares with the groups in S
///
/// For G = M = 1 D(1 − C(E − E/D, k)/C(E, k)), for D = G places M(1 − C(P − E/D, k)/C(P, k)).
/// `places` divides the experts. Source: hypergeometric distribution; device-limited routing of
/// DeepSeek-V2 (arXiv 2405.04434, section 2.2.2), node-limited routing of DeepSeek-V3 (arXiv
/// 2412.19437, section 2.1.2). Assumes balanced experts. Checked by:
/// tests/costmodel/collectives/expert_exchange_test.cpp (by drawing experts).
[[nodiscard]] double places_met(const MixtureOfExperts& moe, int places);

/// Copies of a token that a GPU sends, one way.
struct TokenCopies {
  double in_domain = 0;  ///< over its domain's links
  double between = 0;    ///< over its share of the domain's NICs
};

/// Of n ranks in D domains of R ranks each, k experts per token:
///
///   alltoall           k·(R − 1)/n  and  k·(n − R)/n: one copy per expert
///   deepep, hybridep   r·(R − 1)/R  and  d·(D − 1)/D: one copy to each of the d domains met, from
///                      there one to each of the r ranks met (places_met)
///
/// Not of allgather, a collective of all tokens.
/// Source: Megatron-LM d98e8a64, core/transformer/moe/token_dispatcher.py; DeepEP dd758ca,
/// docs/legacy.md; HybridEP 94a9f8f, docs/README_Hybrid-EP.md.
[[nodiscard]] TokenCopies copies_per_token(Dispatcher dispatcher, const MixtureOfExperts& moe,
                                           int ranks, int domains);

/// Dispatch of `payload` bytes, k copies of every token of a rank, to their experts, or the way
/// back: `width` of these bytes are sent.
///
///   alltoall           all_to_all(payload)
///   deepep, hybridep   X = max(in_domain / min(ε·B_in, SMs·β), between / (ε_D·B_nic))
///
///   ε     share of plain messages' NVLink bandwidth, β what one SM moves
///   ε_D   share of plain messages' NIC bandwidth, by domains
///
/// Source of ε, β, ε_D: published tables, see expert_exchange.cpp.
[[nodiscard]] Seconds expert_exchange(Dispatcher dispatcher, const MixtureOfExperts& moe,
                                      Bytes payload, double width, const GroupLinks& links);

/// Compute time lost per second of it that runs beside compute: s / (SMs − s), the s SMs its
/// kernels hold, which are more on links faster than NVLink 5; of collectives `otherwise`.
[[nodiscard]] double exchange_slowdown(Dispatcher dispatcher, const GroupLinks& links, double sms,
                                       double otherwise);

/// What a microbatch's layer of experts computes (attention and router A; experts M) and exchanges
/// (dispatch D, combine C).
struct PairedLayer {
  Seconds attention_forward, attention_backward;
  Seconds experts_forward, experts_input, experts_weight;  ///< backward: the two gradients apart
  Seconds dispatch, combine;                               ///< forward
  Seconds dispatch_backward, combine_backward;
  /// Of the experts' kernels the shared ones': up projection and activation, down projection.
  Seconds shared_up, shared_down;
  Seconds shared_up_backward, shared_down_backward;
};

/// Exposed of the exchange when one microbatch's forward runs beside another's backward:
///
///   max(C_b, A_f) + max(max(M_d + M_w, D_f) + M_f, max(D_f, M_d) + D_b) + max(A_b, C_f)
///   − (A_f + A_b + M_f + M_d + M_w)
///
/// Source: Megatron-LM d98e8a64, core/models/common/model_chunk_schedule_plan.py
/// (--overlap-moe-expert-parallel-comm with --delay-wgrad-compute): compute and exchange on a
/// stream each. Checked by: tests/costmodel/collectives/expert_exchange_test.cpp.
[[nodiscard]] Seconds exposed_of_pair(const PairedLayer& layer);

}  // namespace echelon
