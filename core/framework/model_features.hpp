// Parts of models that frameworks have or have not, as the rules of their tables ask for them.
// A rule refuses a part that most frameworks have, with the source that lacks it. A part that few
// have is a flag of Framework: sparse_attention, and any_model for what only transformers' modules
// have. A table without the flag lacks the part.
#pragma once

#include "core/model/model.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

inline bool has_experts(const ModelSpec& m) { return m.moe.experts > 0; }
/// State spaces (Mamba-2), and layers of one part each, which come with them.
inline bool has_state_spaces(const ModelSpec& m) {
  return m.ssm.layers > 0 || m.mlp_only_layers > 0;
}
inline bool has_delta_nets(const ModelSpec& m) { return m.delta.layers > 0; }
/// Routed experts whose input and output are a latent.
inline bool has_latent_experts(const ModelSpec& m) { return m.moe.latent_hidden > 0; }
inline bool has_latent_attention(const ModelSpec& m) { return m.latent(); }
inline bool has_windows(const ModelSpec& m) { return m.windowed_layers > 0; }
inline bool has_sinks(const ModelSpec& m) { return m.attention_sinks; }
inline bool has_shared_experts(const ModelSpec& m) { return m.moe.shared_ffn_hidden > 0; }
inline bool has_gated_shared_experts(const ModelSpec& m) { return m.moe.shared_expert_gate; }
/// A router that is no softmax over all experts.
inline bool has_other_router(const ModelSpec& m) {
  return has_experts(m) && (m.moe.router_score == RouterScore::sigmoid || m.moe.router_bias ||
                            m.moe.router_groups > 1 || m.moe.router_scaling != 1);
}
inline bool has_other_positions(const ModelSpec& m) {
  return m.position != PositionEmbedding::rope;
}

/// A combination that a framework refuses whatever the plan is.
template <bool (*has)(const ModelSpec&)>
bool in_model(const ModelSpec& m, const ParallelPlan&) {
  return has(m);
}
/// … where the plan splits more than the data.
template <bool (*has)(const ModelSpec&)>
bool where_layers_split(const ModelSpec& m, const ParallelPlan& p) {
  return has(m) && (p.tp > 1 || p.cp > 1 || p.pp > 1 || p.ep > 1);
}
/// … with tensor parallelism.
template <bool (*has)(const ModelSpec&)>
bool where_tensors_split(const ModelSpec& m, const ParallelPlan& p) {
  return has(m) && p.tp > 1;
}

}  // namespace echelon
