#include "costmodel/time/deferred_weights.hpp"

namespace echelon {

namespace {

/// Widths of what is projected into the heads over those of the heads: in latent attention all
/// heads have one rotary key.
double projected_part(const ModelSpec& model) {
  if (!model.latent()) return 1;
  const double values = model.mla.v_head_dim;
  return (model.head_dim + model.mla.qk_nope_head_dim + values) / (2 * model.head_dim + values);
}

}  // namespace

DeferredWeights deferred_weights(const OperatorList& list, const ModelSpec& model) {
  DeferredWeights out;
  for (const Operator& op : list.view()) {
    if (op.name == "input_norm") {
      out.always += 2 * op.saved;
      out.full += op.saved;
    }
    if (op.name == "attention_inputs") out.always += op.saved * projected_part(model);
    if (op.name == "latent_norms") {
      out.always += op.saved;
      out.full += op.saved;
    }
    if (op.name == "delta_conv" || op.name == "ssm_scan") out.always += op.saved;
    if (op.name == "projection" || op.name == "delta_out" || op.name == "ssm_out")
      out.selective += op.saved;
    if (op.name == "router" || op.name == "shared_gate") out.always += op.saved;
    if (op.name == "top_k") out.full += op.saved;
    if (op.name == "activation" || op.name == "expert_activation" ||
        op.name == "shared_activation") {
      out.always += op.saved;
      out.full += op.saved / (model.gated_mlp ? 2 : 1);
    }
  }
  out.full += out.selective;
  return out;
}

}  // namespace echelon
