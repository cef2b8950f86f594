#include "costmodel/operators.hpp"

#include <algorithm>
#include <cmath>

#include "core/expects.hpp"

// Legend: T tokens of one microbatch on one rank, Ts the same after sequence sharding,
// h hidden, q query width per rank, kv key/value width per rank, f ffn width per rank,
// A attention heads per rank. Activations are 2 bytes wide (bf16/fp16) in every recipe we know;
// fp32 training doubles them.

namespace echelon {
namespace {

/// Shapes shared by all operators of one cut.
struct Shapes {
  double T, Ts, h, q, kv, f, A, sequence, e;
};

Shapes shapes_of(const ModelSpec& model, const TrainingJob& job, Cut cut) {
  const double tokens = static_cast<double>(cut.microbatch) * job.sequence / cut.cp;
  const double kv_heads = std::max(1.0, static_cast<double>(model.kv_heads) / cut.tp);
  return {.T = tokens,
          .Ts = cut.sequence_parallel ? tokens / cut.tp : tokens,
          .h = static_cast<double>(model.hidden),
          .q = static_cast<double>(model.query_width()) / cut.tp,
          .kv = kv_heads * model.head_dim,
          .f = static_cast<double>(model.ffn_hidden) / cut.tp,
          .A = static_cast<double>(model.heads) / cut.tp,
          .sequence = static_cast<double>(job.sequence),
          .e = job.precision.compute == Dtype::fp32 ? 4.0 : 2.0};
}

/// Keys one query attends to on average: (S + 1)/2 ≈ S/2 under a causal mask, w·(1 − w/2S) in a
/// window of w < S tokens; layers with and without a window are averaged.
double causal_keys(const ModelSpec& model, double sequence) {
  const double full = sequence / 2;
  if (model.sliding_window <= 0 || model.sliding_window >= sequence) return full;
  const double w = model.sliding_window;
  const double share = static_cast<double>(model.windowed_layers) / model.layers;
  return share * w * (1 - w / (2 * sequence)) + (1 - share) * full;
}

Operator gemm(std::string_view name, double m, double n, double k, double saved, double e) {
  Operator op;
  op.name = name;
  op.kind = OperatorKind::gemm;
  op.m = m;
  op.n = n;
  op.k = k;
  op.forward = Flops{2 * m * n * k};
  op.backward = 2 * op.forward;
  op.forward_traffic = Bytes{e * (m * k + k * n + m * n)};
  op.backward_traffic = 2 * op.forward_traffic;  // + fp32 accumulation, added where it is priced
  op.forward_kernels = 1;
  op.backward_kernels = 2;
  op.saved = Bytes{saved};
  return op;
}

Operator elementwise(std::string_view name, double forward, double backward, double saved) {
  Operator op;
  op.name = name;
  op.forward_traffic = Bytes{forward};
  op.backward_traffic = Bytes{backward};
  op.forward_kernels = forward > 0 ? 1 : 0;
  op.backward_kernels = backward > 0 ? 1 : 0;
  op.saved = Bytes{saved};
  return op;
}

/// Norm: forward reads and writes the tensor; backward reads the gradient, the input and the
/// residual's gradient and writes one.
Operator norm(std::string_view name, const Shapes& s) {
  return elementwise(name, 2 * s.e * s.Ts * s.h, 4 * s.e * s.Ts * s.h, s.e * s.Ts * s.h);
}

/// Bias, dropout and residual addition in one kernel; the mask is one byte per element.
Operator residual(std::string_view name, const Shapes& s, double dropout) {
  const double elements = s.Ts * s.h;
  const bool drops = dropout > 0;
  return elementwise(name, (3 * s.e + (drops ? 1 : 0)) * elements,
                     drops ? (2 * s.e + 1) * elements : 0.0, drops ? elements : 0.0);
}

Operator collective(std::string_view name, CollectiveKind forward, CollectiveKind backward,
                    double payload, bool backward_overlaps) {
  Operator op;
  op.name = name;
  op.kind = OperatorKind::collective;
  op.forward_collective = forward;
  op.backward_collective = backward;
  op.payload = Bytes{payload};
  op.backward_overlaps = backward_overlaps;
  return op;
}

/// Entry of a column-parallel layer (Megatron's f, or g-bar under sequence parallelism).
void push_column_entry(OperatorList& list, std::string_view name, const Shapes& s, Cut cut) {
  if (cut.tp == 1) return;
  using enum CollectiveKind;
  const double payload = s.e * s.T * s.h;
  if (!cut.sequence_parallel) {
    list.push(collective(name, none, all_reduce, payload, true));
    return;
  }
  list.push(collective(name, all_gather, reduce_scatter, payload, true));
  list.push(collective(name, none, all_gather, payload, true));  // re-gather of the saved shard
}

/// Exit of a row-parallel layer (Megatron's g, or its reduce-scatter form).
void push_row_exit(OperatorList& list, std::string_view name, const Shapes& s, Cut cut) {
  if (cut.tp == 1) return;
  using enum CollectiveKind;
  const double payload = s.e * s.T * s.h;
  if (cut.sequence_parallel) {
    list.push(collective(name, reduce_scatter, all_gather, payload, false));
  } else {
    list.push(collective(name, all_reduce, none, payload, false));
  }
}

double gather_buffers(const Shapes& s, const Stack& stack, Cut cut) {
  return cut.tp > 1 && cut.sequence_parallel ? stack.gather_buffers * s.e * s.T * s.h : 0.0;
}

void push_flash_attention(OperatorList& list, const ModelSpec& model, const Shapes& s,
                          double buffers) {
  Operator op;
  op.name = "attention";
  op.kind = OperatorKind::attention;
  const double keys = causal_keys(model, s.sequence);
  op.forward = Flops{4 * s.T * keys * s.q};
  op.backward = 2.5 * op.forward;  // five products against two; flash recomputes the scores
  op.forward_traffic = Bytes{s.e * s.T * (2 * s.q + 2 * s.kv)};
  op.backward_traffic = Bytes{s.e * s.T * (5 * s.q + 4 * s.kv)};
  op.forward_kernels = 1;
  op.backward_kernels = 3;
  op.saved = Bytes{4 * s.T * s.A};  // log-sum-exp, fp32
  op.attention_core = true;
  op.transient = Bytes{4 * s.T * s.q + s.e * s.T * (s.q + 2 * s.kv) + buffers};
  list.push(op);
}

/// Scores, softmax, dropout and the product with the values, each a kernel of its own.
void push_materialised_attention(OperatorList& list, const ModelSpec& model, const Shapes& s,
                                 double buffers) {
  const double scores = s.A * s.T * s.sequence;
  const double d = model.head_dim;
  const bool drops = model.attention_dropout > 0;
  Operator qk = gemm("attention_scores", s.T * s.A, s.sequence, d, 0, s.e);
  qk.attention_core = true;
  list.push(qk);
  Operator softmax = elementwise("softmax", (2 * s.e) * scores, 3 * s.e * scores, s.e * scores);
  softmax.attention_core = true;
  softmax.transient = Bytes{2 * s.e * scores + buffers};
  list.push(softmax);
  if (drops) {
    Operator dropout = elementwise("attention_dropout", (2 * s.e + 1) * scores,
                                   (2 * s.e + 1) * scores, (s.e + 1) * scores);
    dropout.attention_core = true;
    list.push(dropout);
  }
  Operator context = gemm("attention_context", s.T * s.A, d, s.sequence, 0, s.e);
  context.attention_core = true;
  list.push(context);
}

void push_attention(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                    const Stack& stack, const Shapes& s, Cut cut) {
  push_column_entry(list, "qkv_gather", s, cut);
  list.push(gemm("qkv", s.T, s.q + 2 * s.kv, s.h, s.e * s.Ts * s.h, s.e));
  const double heads = s.T * (s.q + s.kv);
  if (model.qk_norm) {
    list.push(elementwise("qk_norm", 2 * s.e * heads, 3 * s.e * heads, s.e * heads));
  }
  if (model.position == PositionEmbedding::rope) {
    list.push(elementwise("rope", 2 * s.e * heads, 2 * s.e * heads, 0));
  }
  // What attention keeps of its own inputs: q, k and v after rotation.
  list.push(elementwise("attention_inputs", 0, 0, s.e * s.T * (s.q + 2 * s.kv)));
  const double buffers = gather_buffers(s, stack, cut);
  if (job.flash_attention) {
    push_flash_attention(list, model, s, buffers);
  } else {
    push_materialised_attention(list, model, s, buffers);
  }
  list.push(gemm("projection", s.T, s.h, s.q, s.e * s.T * s.q, s.e));
  push_row_exit(list, "projection_reduce", s, cut);
}

void push_mlp(OperatorList& list, const ModelSpec& model, const Stack& stack, const Shapes& s,
              Cut cut) {
  push_column_entry(list, "mlp_gather", s, cut);
  const double branches = model.gated_mlp ? 2 : 1;
  const double input = model.parallel_block ? 0 : s.e * s.Ts * s.h;  // shared with attention
  list.push(gemm("mlp_up", s.T, branches * s.f, s.h, input, s.e));
  const double width = s.e * s.T * s.f;
  Operator activation = elementwise("activation", (branches + 1) * width,
                                    (2 * branches + 1) * width, branches * width);
  activation.transient = Bytes{(branches + 1) * width + gather_buffers(s, stack, cut)};
  list.push(activation);
  const bool keeps_product = stack.saves_swiglu_product || !model.gated_mlp;
  list.push(gemm("mlp_down", s.T, s.h, s.f, keeps_product ? width : 0, s.e));
  push_row_exit(list, "mlp_reduce", s, cut);
}

}  // namespace

void OperatorList::push(const Operator& op) {
  EXPECTS(count_ < kCapacity, "operator list is full");
  ops_[count_++] = op;
}

Bytes OperatorList::saved(Recompute recompute) const {
  EXPECTS(recompute != Recompute::full, "full recomputation keeps only the layer's input");
  Bytes sum;
  for (const Operator& op : view()) {
    if (recompute == Recompute::none || !op.attention_core) sum += op.saved;
  }
  return sum;
}

Bytes OperatorList::transient() const {
  Bytes largest;
  for (const Operator& op : view()) largest = std::max(largest, op.transient);
  return largest;
}

OperatorList layer_operators(const ModelSpec& model, const TrainingJob& job, const Stack& stack,
                             Cut cut) {
  const Shapes s = shapes_of(model, job, cut);
  OperatorList list;
  list.push(norm("input_norm", s));
  push_attention(list, model, job, stack, s, cut);
  if (model.post_norms) list.push(norm("attention_output_norm", s));
  list.push(residual("attention_residual", s, model.hidden_dropout));
  if (!model.parallel_block) list.push(norm("post_attention_norm", s));
  push_mlp(list, model, stack, s, cut);
  if (model.post_norms) list.push(norm("mlp_output_norm", s));
  list.push(residual("mlp_residual", s, model.hidden_dropout));
  return list;
}

OperatorList embedding_operators(const ModelSpec& model, const TrainingJob& job, const Stack&,
                                 Cut cut) {
  const Shapes s = shapes_of(model, job, cut);
  OperatorList list;
  const double full = s.e * s.T * s.h;
  list.push(elementwise("word_embedding", 2 * full, full + 8 * s.T * s.h, 0));
  push_row_exit(list, "embedding_reduce", s, cut);
  if (model.position == PositionEmbedding::learned) {
    list.push(elementwise("position_embedding", 3 * s.e * s.Ts * s.h, s.e * s.Ts * s.h, 0));
  }
  if (model.embedding_norm) list.push(norm("embedding_norm", s));
  if (model.hidden_dropout > 0) {
    const double elements = s.Ts * s.h;
    list.push(elementwise("embedding_dropout", (2 * s.e + 1) * elements,
                          (2 * s.e + 1) * elements, elements));
  }
  return list;
}

OperatorList head_operators(const ModelSpec& model, const TrainingJob& job, const Stack& stack,
                            Cut cut) {
  const Shapes s = shapes_of(model, job, cut);
  const double logits = s.T * padded_vocab(model, stack, cut.tp) / cut.tp;
  OperatorList list;
  list.push(norm("final_norm", s));
  push_column_entry(list, "head_gather", s, cut);
  list.push(gemm("head", s.T, logits / s.T, s.h, s.e * s.Ts * s.h, s.e));
  Operator loss = elementwise("loss", 0.6 * stack.loss_traffic * logits,
                              0.4 * stack.loss_traffic * logits, stack.logits_bytes * logits);
  loss.forward_kernels = 6;
  loss.backward_kernels = 3;
  list.push(loss);
  if (cut.tp > 1) {  // maximum, target logit and sum of exponentials of every token, fp32
    list.push(collective("loss_reduce", CollectiveKind::all_reduce, CollectiveKind::none,
                         12 * s.T, false));
  }
  return list;
}

double padded_vocab(const ModelSpec& model, const Stack& stack, int tp) {
  const double unit = static_cast<double>(stack.vocab_padding) * tp;
  return std::ceil(model.vocab / unit) * unit;
}

double layer_parameters_per_rank(const ModelSpec& model, int tp) {
  const ModelSpec::LayerParameters all = model.layer_parameters();
  const double sharded = static_cast<double>(all.attention_matrices + all.mlp_matrices +
                                             all.sharded_vectors) / tp;
  // kv heads fewer than tp are copied: every rank still holds one key and one value head.
  const double surplus = std::max(0.0, 1.0 - static_cast<double>(model.kv_heads) / tp);
  const double copies = 2 * surplus * model.head_dim *
                        (static_cast<double>(model.hidden) + (model.qkv_bias ? 1 : 0));
  return sharded + copies + static_cast<double>(all.replicated);
}

double embedding_parameters_per_rank(const ModelSpec& model, const Stack& stack, int tp) {
  const double h = model.hidden;
  const double word = padded_vocab(model, stack, tp) / tp * h;
  const double rest = static_cast<double>(model.embedding_parameters()) - h * model.vocab;
  return word + rest;
}

double head_parameters_per_rank(const ModelSpec& model, const Stack& stack, int tp,
                                bool holds_tied_copy) {
  const double vocab = padded_vocab(model, stack, tp) / tp;
  const double matrix =
      !model.tied_embeddings || holds_tied_copy ? vocab * model.hidden : 0.0;
  const double bias = model.head_bias ? vocab : 0.0;
  const double norm = model.normalization == Normalization::layer_norm ? 2.0 : 1.0;
  return matrix + bias + norm * model.hidden;
}

}  // namespace echelon
