// What the backward repeats and no longer keeps of each recomputed module.
#include "costmodel/operators/build.hpp"

namespace echelon::operators {
namespace {

using enum RecomputeModule;

void mark(Operator& op, RecomputeModule module, bool freed) {
  if (!op.once) op.repeated_by.insert(module);
  if (freed) op.freed_by.insert(module);
}

/// Latent attention from the latents to queries, keys and values: q(ql + kl) of inputs, in the
/// width of a kept GEMM input, and the results after rotation. The norms of the latents are fused
/// into the up projections; their inputs stay.
void mark_latent_projection(Operator& op) {
  const bool norm = op.name == "q_latent_norm" || op.name == "kv_latent_norm";
  const bool up = op.name == "q_up" || op.name == "kv_up";
  if (norm || op.name == "latent_gather" || op.name == "rope") mark(op, mla_up_proj, false);
  if (up || op.name == "attention_inputs") mark(op, mla_up_proj, true);
}

/// The same of sparse attention, whose up projection of queries and absorption of the keys' it is:
/// their inputs stay, with the one key.
void mark_absorbed_projection(Operator& op) {
  if (op.name == "q_up" || op.name == "rope") mark(op, mla_up_proj, false);
  if (op.name == "key_absorb" || op.name == "attention_inputs") mark(op, mla_up_proj, true);
}

/// Norms that are kernels of their own: that of latent attention's input, and that of a router's.
/// All others are fused into the GEMM behind them. Freed are the inputs of the GEMMs behind.
void mark_norms(Operator& op, bool latent, bool moe) {
  if (latent && op.name == "input_norm") mark(op, layernorm, false);
  if (latent && (op.name == "q_down" || op.name == "kv_down")) op.freed_by.insert(layernorm);
  if (moe && op.name == "post_attention_norm") mark(op, layernorm, false);
  if (moe && op.name == "router") op.freed_by.insert(layernorm);
}

/// The part of a layer behind attention, without its norm. That of a dense layer is fused into the
/// first GEMM, and its output freed with it; the router's input is the input of the whole part.
void mark_mlp(Operator& op, bool moe) {
  if (!moe) return mark(op, mlp, true);
  mark(op, RecomputeModule::moe, op.name != "router");
  const bool clamp = op.name == "expert_clamp";
  if (op.name == "expert_activation" || clamp) op.repeated_by.insert(moe_act);
  if (op.name == "expert_down" || clamp) op.freed_by.insert(moe_act);
  if (op.name.starts_with("shared_")) mark(op, shared_experts, true);
}

}  // namespace

/// Source: Megatron-LM core_v0.16.1: core/transformer/transformer_layer.py (layernorm, mlp; mlp is
/// no part of a layer of experts), multi_latent_attention.py (mla_up_proj; of sparse attention
/// d98e8a64, experimental_attention_variant/absorbed_mla.py), attention.py
/// (core_attn, with the communication of context parallelism), moe/moe_layer.py (moe,
/// shared_experts), moe/experts.py (moe_act); core/models/gpt/gpt_layer_specs.py on which norms
/// are fused. Checked by: tests/costmodel/operators/recompute_modules_test.cpp.
void mark_modules(OperatorList& list, const ModelSpec& model, LayerKind kind) {
  const bool moe = kind == LayerKind::moe;
  bool behind_attention = false;  // in the MLP or the experts
  for (Operator& op : list.edit()) {
    const bool starts = op.name == "mlp_gather" || op.name == "mlp_up" || op.name == "router";
    const bool ends = op.name == "mlp_output_norm" || op.name == "mlp_residual";
    behind_attention = (behind_attention || starts) && !ends;
    if (op.attention_core || op.axis == Axis::cp) mark(op, core_attn, true);
    if (model.sparse()) {
      mark_absorbed_projection(op);
    } else if (model.latent()) {
      mark_latent_projection(op);
    }
    mark_norms(op, model.latent(), moe);
    if (behind_attention) mark_mlp(op, moe);
    if (!moe && !model.parallel_block && op.name == "post_attention_norm") {
      op.repeated_by.insert(mlp);
    }
  }
}

}  // namespace echelon::operators
