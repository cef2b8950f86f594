// What of dispatch and combine runs beside kernels, by the plan's overlap.
#pragma once

#include "costmodel/collectives/expert_exchange.hpp"
#include "costmodel/time/operator_times.hpp"

namespace echelon {

struct HiddenExchange {
  Seconds forward, backward;
};

/// Of one layer and microbatch:
///
///   overlap_ep       w·(D + C) of each pass, w what a pair hides of all four (exposed_of_pair)
///   overlap_shared   min(D, U) + min(C, W) of each pass
///   none             0
///
///   D, C   dispatch and combine; U, W   the shared experts' up projection with its activation and
///          their down projection
///
/// both times o·(1 − s): as much as of other traffic beside compute (dp_overlap), less what hiding
/// it costs the kernels beside it (exchange_slowdown); none where that is more than it gains.
/// Source: Megatron-LM core_v0.16.1, core/transformer/moe/shared_experts.py and
/// token_dispatcher.py (--moe-shared-expert-overlap: a stream of its own, up projection and
/// activation beside dispatch, down projection beside combine; the backward mirrored). Published
/// with and without overlap_ep, Qwen3-30B-A3B on 16 H100 hides 37 % of its exchange
/// (Megatron-Bridge, skills/nemo-mbridge-perf-moe-comm-overlap). Assumes that tensor-parallel
/// collectives of shared experts are as exposed as without. Checked by:
/// tests/costmodel/operators/experts_test.cpp.
[[nodiscard]] HiddenExchange hidden_exchange(const PairedLayer& layer, const OperatorContext& c);

}  // namespace echelon
