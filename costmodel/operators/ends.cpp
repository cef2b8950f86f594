// Embedding and head: the work of the first and the last stage in addition to their layers.
#include <algorithm>

#include "costmodel/operators/build.hpp"

namespace echelon {

OperatorList embedding_operators(const ModelSpec& model, const TrainingJob& job,
                                 const Framework& framework, LayerSharding sharding) {
  using namespace operators;
  const Shapes s = shapes_of(model, job, framework, sharding);
  OperatorList list;
  const double full = s.e * s.T * s.h;
  list.push(elementwise("word_embedding", 2 * full, full + 8 * s.T * s.h, 0));
  push_row_exit(list, "embedding_reduce", s, sharding);
  if (model.position == PositionEmbedding::learned) {
    list.push(elementwise("position_embedding", 3 * s.e * s.Ts * s.h, s.e * s.Ts * s.h, 0));
  }
  if (model.embedding_norm) list.push(norm("embedding_norm", s));
  if (model.hidden_dropout > 0) {
    const double elements = s.Ts * s.h;
    list.push(elementwise("embedding_dropout", (2 * s.e + 1) * elements, (2 * s.e + 1) * elements,
                          elements));
  }
  if (job.adapters) {  // nothing before the first adapter needs a gradient
    list = frozen(list, job);
    for (Operator& op : list.edit()) {
      op.backward_traffic = op.saved = Bytes{};
      op.backward_kernels = 0;
      op.backward_collective = CollectiveKind::none;
    }
  }
  return list;
}

OperatorList head_operators(const ModelSpec& model, const TrainingJob& job,
                            const Framework& framework, LayerSharding sharding) {
  using namespace operators;
  const Shapes s = shapes_of(model, job, framework, sharding);
  const double logits = s.T * padded_vocab(model, framework, sharding.tp) / sharding.tp;
  OperatorList list;
  list.push(norm("final_norm", s));
  const bool in_slices = framework.loss_rows > 0;
  if (in_slices && sharding.tp > 1 && sharding.sequence_parallel) {
    // The head runs in the backward that follows its forward at once: its input is gathered once.
    list.push(collective("head_gather", CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                         s.e * s.T * s.h, true));
  } else {
    push_column_entry(list, "head_gather", s, sharding);
  }
  const double input = framework.remakes_pointwise ? 0 : s.e * s.Ts * s.h;
  Operator head = gemm("head", s.T, logits / s.T, s.h, input, s.e);
  if (in_slices && framework.backward_by_kernels) {
    head.passes = std::max(1.0, s.T / framework.loss_rows);
  }
  head.wide = true;  // Source: Megatron-Core and TransformerEngine leave the output layer in bf16
  list.push(head);
  // The loss of transformers, whose models PEFT adapts, backward: logits in 16 bits, which the
  // model's output holds, their log-softmax in fp32, and its two gradients.
  // Source: transformers v5.18, src/transformers/loss/loss_utils.py, ForCausalLMLoss.
  constexpr double kLossOfTransformers = 14;
  const bool adapts_theirs = job.adapters && framework.adapts_each_module;
  const double kept = adapts_theirs ? kLossOfTransformers : framework.logits_bytes;
  Operator loss = elementwise("loss", 0.6 * framework.loss_traffic * logits,
                              0.4 * framework.loss_traffic * logits, kept * logits);
  if (s.by_operations) {  // a copy in fp32, log-softmax; backward gradients of both, a copy back
    loss.forward_traffic = Bytes{(s.e + 3 * s.w) * logits};
    loss.backward_traffic = Bytes{(s.e + 5 * s.w) * logits};
  }
  if (framework.loss_rows > 0) {  // the backward recomputes them from the maximum and two sums
    loss.saved = Bytes{3 * s.w * s.T};
    loss.transient = Bytes{s.e * std::min(s.T, double(framework.loss_rows)) * logits / s.T};
  }
  loss.forward_kernels = 6;
  loss.backward_kernels = 3;
  list.push(loss);
  if (sharding.tp > 1) {  // maximum, target logit and sum of exponentials of every token
    list.push(collective("loss_reduce", CollectiveKind::all_reduce, CollectiveKind::none,
                         3 * s.w * s.T, false));
  }
  return job.adapters ? frozen(list, job) : list;
}

OperatorList prediction_operators(const ModelSpec& model, const TrainingJob& job,
                                  const Framework& framework, LayerSharding sharding) {
  using namespace operators;
  const Shapes s = shapes_of(model, job, framework, sharding);
  OperatorList list;
  list.push(elementwise("word_embedding", 2 * s.e * s.T * s.h, s.e * s.T * s.h, 0));
  list.push(norm("hidden_norm", s));
  list.push(norm("embedding_norm", s));
  push_column_entry(list, "prediction_gather", s, sharding);
  list.push(
      gemm("prediction_projection", s.T, s.h / sharding.tp, 2 * s.h, 2 * s.kept * s.Ts * s.h, s.e));
  push_row_exit(list, "prediction_reduce", s, sharding);
  return job.adapters ? frozen(list, job) : list;
}

}  // namespace echelon
