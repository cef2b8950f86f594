// The operator list of a layer.
#include <algorithm>

#include "core/base/expects.hpp"
#include "costmodel/operators/build.hpp"

namespace echelon {

void OperatorList::push(const Operator& op) {
  EXPECTS(count_ < kCapacity, "operator list is full");
  ops_[count_++] = op;
}

Bytes OperatorList::saved(Recompute recompute) const {
  EXPECTS(recompute == Recompute::none || recompute == Recompute::selective,
          "full recomputation keeps only the layer's input");
  Bytes sum;
  for (const Operator& op : view()) sum += recompute == Recompute::none ? op.saved : op.kept;
  return sum;
}

Bytes OperatorList::transient() const {
  Bytes largest;
  for (const Operator& op : view()) largest = std::max(largest, op.transient);
  return largest;
}

namespace {

void push_mixer(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                const Framework& framework, const operators::Shapes& s, LayerSharding sharding,
                TokenMixer mixer) {
  using namespace operators;
  switch (mixer) {
    case TokenMixer::attention:
    case TokenMixer::global_attention:
      return push_attention(list, model, job, framework, s, sharding, mixer);
    case TokenMixer::short_convolution: return push_short_convolution(list, model, s);
    case TokenMixer::delta_net: return push_delta_net(list, model, s, sharding);
    case TokenMixer::state_space: return push_state_space(list, model, s, sharding);
    case TokenMixer::side_by_side:
      push_state_space(list, model, s, sharding);
      push_attention(list, model, job, framework, s, sharding, mixer);
      // Both outputs added; and, as transformers' module does it, a factor on the input and on the
      // output of each (models/falcon_h1/modeling_falcon_h1.py).
      list.push(elementwise("mixer_sum", (4 * 2 + 3) * s.e * s.Ts * s.h,
                            (4 * 2 + 3) * s.e * s.Ts * s.h, 0));
      return;
    case TokenMixer::none: return;
  }
}

}  // namespace

OperatorList layer_operators(const ModelSpec& model, const TrainingJob& job,
                             const Framework& framework, LayerSharding sharding, LayerKind kind,
                             TokenMixer mixer) {
  using namespace operators;
  const Shapes s = shapes_of(model, job, framework, sharding, mixer);
  OperatorList list;
  if (mixer != TokenMixer::none) {
    list.push(norm("input_norm", s, 3));
    push_mixer(list, model, job, framework, s, sharding, mixer);
    if (model.post_norms) list.push(norm("attention_output_norm", s));
    list.push(residual("attention_residual", s, model.hidden_dropout));
  }
  if (model.has_mlp(mixer)) {
    if (!model.parallel_block) list.push(norm("post_attention_norm", s, 2));
    if (kind == LayerKind::moe) {
      push_experts(list, model, framework, s, sharding);
    } else {
      push_mlp(list, model, framework, s, sharding);
    }
    if (model.post_norms) list.push(norm("mlp_output_norm", s));
    list.push(residual("mlp_residual", s, model.hidden_dropout));
  }
  if (job.adapters) list = adapted(list, model, job, framework, s, sharding);
  mark_recomputation(list, model, job, framework, s, sharding);
  if (!framework.recompute_modules.empty()) mark_modules(list, model, kind);
  if (!framework.offload_modules.empty()) mark_offload(list, model, kind, mixer);
  return list;
}

}  // namespace echelon
