// Over 400 lines because every operator and its bytes stand in one place.
#include "costmodel/operators/operators.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/expects.hpp"

// Legend: T tokens of one microbatch on one rank, Ts the same after sequence sharding,
// h hidden, q query width per rank, kv key/value width per rank, f ffn width per rank,
// A attention heads per rank. Activations are 2 bytes wide (bf16/fp16) in most recipes; fp32
// doubles them, fp64 once more.

namespace echelon {
namespace {

/// Shapes shared by all operators of one sharding.
struct Shapes {
  double T, Ts, h, q, kv, v, o, f, A, sequence, e;  // kv keys, v values, o outputs of the heads
  double kept;  // bytes per element of a GEMM input that waits for its weight gradient
  double w;     // … of statistics: maxima, sums of exponentials
};

Shapes shapes_of(const ModelSpec& model, const TrainingJob& job, const Framework& stack,
                 LayerSharding sharding) {
  const double tokens = static_cast<double>(sharding.microbatch) * job.sequence / sharding.cp;
  const double kv_heads = std::max(1.0, static_cast<double>(model.kv_heads) / sharding.tp);
  return {.T = tokens,
          .Ts = sharding.sequence_parallel ? tokens / sharding.tp : tokens,
          .h = static_cast<double>(model.hidden),
          .q = static_cast<double>(model.query_width()) / sharding.tp,
          .kv = kv_heads * model.head_dim,
          .v = model.latent() ? kv_heads * model.mla.v_head_dim : kv_heads * model.head_dim,
          .o = static_cast<double>(model.attention_output_width()) / sharding.tp,
          .f = static_cast<double>(model.ffn_hidden) / sharding.tp,
          .A = static_cast<double>(model.heads) / sharding.tp,
          .sequence = static_cast<double>(job.sequence),
          .e = activation_width(job.precision.compute),
          .kept = job.precision.compute == Dtype::fp8 && stack.saves_fp8_inputs
                      ? 1.0
                      : activation_width(job.precision.compute),
          .w = statistics_width(job.precision.compute)};
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

Operator gemm(std::string_view name, double m, double n, double k, double saved, double e,
              double groups = 1) {
  Operator op;
  op.name = name;
  op.kind = OperatorKind::gemm;
  op.m = m;
  op.n = n;
  op.k = k;
  op.groups = groups;
  op.forward = Flops{groups * 2 * m * n * k};
  op.backward = 2 * op.forward;
  op.forward_traffic = Bytes{groups * e * (m * k + k * n + m * n)};
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
                    double payload, bool backward_overlaps,
                    CollectiveGroup group = CollectiveGroup::tp) {
  Operator op;
  op.name = name;
  op.kind = OperatorKind::collective;
  op.forward_collective = forward;
  op.backward_collective = backward;
  op.payload = Bytes{payload};
  op.backward_overlaps = backward_overlaps;
  op.group = group;
  return op;
}

/// Entry of a column-parallel layer (Megatron's f, or g-bar under sequence parallelism).
void push_column_entry(OperatorList& list, std::string_view name, const Shapes& s,
                       LayerSharding sharding) {
  if (sharding.tp == 1) return;
  using enum CollectiveKind;
  const double payload = s.e * s.T * s.h;
  if (!sharding.sequence_parallel) {
    list.push(collective(name, none, all_reduce, payload, true));
    return;
  }
  list.push(collective(name, all_gather, reduce_scatter, payload, true));
  list.push(collective(name, none, all_gather, payload, true));  // re-gather of the saved shard
}

/// Exit of a row-parallel layer (Megatron's g, or its reduce-scatter form).
void push_row_exit(OperatorList& list, std::string_view name, const Shapes& s,
                   LayerSharding sharding) {
  if (sharding.tp == 1) return;
  using enum CollectiveKind;
  const double payload = s.e * s.T * s.h;
  if (sharding.sequence_parallel) {
    list.push(collective(name, reduce_scatter, all_gather, payload, false));
  } else {
    list.push(collective(name, all_reduce, none, payload, false));
  }
}

double gather_buffers(const Shapes& s, const Framework& stack, LayerSharding sharding) {
  return sharding.tp > 1 && sharding.sequence_parallel ? stack.gather_buffers * s.e * s.T * s.h
                                                       : 0.0;
}

/// Context parallelism before attention. Ring: the keys and values of all ranks pass by, beside the
/// attention kernels; backward they pass again and their gradients come back. All-to-all: queries,
/// keys and values change from a split of the sequence to a split of the heads.
/// Source: Ring Attention (arXiv 2310.01889), DeepSpeed-Ulysses (arXiv 2309.14509); Megatron-Core
/// --cp-comm-type p2p and a2a.
void push_context_entry(OperatorList& list, const Shapes& s, LayerSharding sharding) {
  if (sharding.cp == 1) return;
  using enum CollectiveKind;
  if (sharding.cp_comm == CpComm::all_to_all) {
    list.push(collective("cp_scatter_heads", all_to_all, all_to_all, s.e * s.T * (s.q + s.kv + s.v),
                         false, CollectiveGroup::cp));
    return;
  }
  const double all_keys = s.e * s.T * sharding.cp * (s.kv + s.v);
  Operator ring =
      collective("cp_ring", all_gather, all_gather, all_keys, true, CollectiveGroup::cp);
  ring.forward_overlaps = true;
  list.push(ring);
  list.push(
      collective("cp_ring_gradients", none, reduce_scatter, all_keys, true, CollectiveGroup::cp));
}

/// … and after it: the outputs return to the split of the sequence.
void push_context_exit(OperatorList& list, const Shapes& s, LayerSharding sharding) {
  if (sharding.cp == 1 || sharding.cp_comm != CpComm::all_to_all) return;
  using enum CollectiveKind;
  list.push(collective("cp_gather_heads", all_to_all, all_to_all, s.e * s.T * s.o, false,
                       CollectiveGroup::cp));
}

/// Two blocks of keys and values in flight while the ring turns.
double ring_buffers(const Shapes& s, LayerSharding sharding) {
  return sharding.cp > 1 && sharding.cp_comm == CpComm::ring ? 2 * s.e * s.T * (s.kv + s.v) : 0.0;
}

void push_flash_attention(OperatorList& list, const ModelSpec& model, const Shapes& s,
                          LayerSharding sharding, double buffers) {
  Operator op;
  op.name = "attention";
  op.kind = OperatorKind::attention;
  const double keys = causal_keys(model, s.sequence);
  op.forward = Flops{2 * s.T * keys * (s.q + s.o)};
  op.backward = 2.5 * op.forward;  // five products against two; flash recomputes the scores
  op.forward_traffic = Bytes{s.e * s.T * (s.q + s.kv + s.v + s.o)};
  op.backward_traffic = Bytes{s.e * s.T * (2 * s.q + 3 * s.o + 2 * s.kv + 2 * s.v)};
  // A ring runs one kernel per block of keys that passes by, each on 1/cp of the sequence.
  const bool ring = sharding.cp > 1 && sharding.cp_comm == CpComm::ring;
  op.span = ring ? s.sequence / sharding.cp : s.sequence;
  op.forward_kernels = ring ? sharding.cp : 1;
  op.backward_kernels = 3 * op.forward_kernels;
  op.saved = Bytes{s.w * s.T * s.A};  // log-sum-exp
  op.attention_core = true;
  op.transient = Bytes{s.w * s.T * s.q + s.e * s.T * (s.q + s.kv + s.v) + buffers};
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

/// Projections into the heads: one GEMM from the hidden state.
void push_qkv(OperatorList& list, const ModelSpec& model, const Shapes& s, LayerSharding sharding) {
  push_column_entry(list, "qkv_gather", s, sharding);
  list.push(gemm("qkv", s.T, s.q + 2 * s.kv, s.h, s.kept * s.Ts * s.h, s.e));
  const double heads = s.T * (s.q + s.kv);
  if (model.qk_norm) {
    list.push(elementwise("qk_norm", 2 * s.e * heads, 3 * s.e * heads, s.e * heads));
  }
  if (model.position == PositionEmbedding::rope) {
    list.push(elementwise("rope", 2 * s.e * heads, 2 * s.e * heads, 0));
  }
}

/// Projections into the heads through latents (MLA): down on every rank, norms, up by heads.
/// Source: DeepSeek-V2 (arXiv 2405.04434) section 2.1; Megatron-Core MLASelfAttention.
void push_latent_qkv(OperatorList& list, const ModelSpec& model, const Shapes& s,
                     LayerSharding sharding) {
  const LatentAttention& mla = model.mla;
  const double rank_kv = mla.kv_lora_rank;
  const double rank_q = mla.q_lora_rank;
  const double up_kv = s.A * (mla.qk_nope_head_dim + mla.v_head_dim);
  double input = s.kept * s.Ts * s.h;
  if (rank_q > 0) {
    list.push(gemm("q_down", s.Ts, rank_q, s.h, input, s.e));
    input = 0;  // shared with the keys' and values' projection
    list.push(elementwise("q_latent_norm", 2 * s.e * s.Ts * rank_q, 4 * s.e * s.Ts * rank_q,
                          s.e * s.Ts * rank_q));
  }
  list.push(gemm("kv_down", s.Ts, rank_kv + mla.qk_rope_head_dim, s.h, input, s.e));
  list.push(elementwise("kv_latent_norm", 2 * s.e * s.Ts * rank_kv, 4 * s.e * s.Ts * rank_kv,
                        s.e * s.Ts * rank_kv));
  if (sharding.tp > 1 &&
      sharding.sequence_parallel) {  // the latents, not the hidden state, are gathered
    using enum CollectiveKind;
    list.push(collective("latent_gather", all_gather, reduce_scatter,
                         s.e * s.T * (rank_q + rank_kv + mla.qk_rope_head_dim), true));
  } else {
    push_column_entry(list, "qkv_gather", s, sharding);
  }
  list.push(gemm("q_up", s.T, s.q, rank_q > 0 ? rank_q : s.h, s.kept * s.Ts * rank_q, s.e));
  list.push(gemm("kv_up", s.T, up_kv, rank_kv, s.kept * s.Ts * rank_kv, s.e));
  list.push(elementwise("rope", 2 * s.e * s.T * s.q, 2 * s.e * s.T * s.q, 0));
}

void push_attention(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                    const Framework& stack, const Shapes& s, LayerSharding sharding) {
  if (model.latent()) {
    push_latent_qkv(list, model, s, sharding);
  } else {
    push_qkv(list, model, s, sharding);
  }
  // What attention keeps of its own inputs: q, k and v after rotation.
  list.push(elementwise("attention_inputs", 0, 0, s.e * s.T * (s.q + s.kv + s.v)));
  const double buffers = gather_buffers(s, stack, sharding) + ring_buffers(s, sharding);
  push_context_entry(list, s, sharding);
  if (job.flash_attention) {
    push_flash_attention(list, model, s, sharding, buffers);
  } else {
    push_materialised_attention(list, model, s, buffers);
  }
  push_context_exit(list, s, sharding);
  // Attention keeps its output, too; an 8-bit copy for the projection comes on top of it.
  const double output = s.kept < s.e ? s.e + s.kept : s.e;
  list.push(gemm("projection", s.T, s.h, s.o, output * s.T * s.o, s.e));
  push_row_exit(list, "projection_reduce", s, sharding);
}

/// Up (and gate) projection, activation, down projection over `tokens` rows of width `f`.
/// `input` bytes are kept for the first GEMM.
struct MlpNames {
  std::string_view up, activation, down;
};

void push_projections(OperatorList& list, const ModelSpec& model, const Framework& stack,
                      const Shapes& s, const MlpNames& names, double tokens, double f, double input,
                      double buffers, double groups = 1) {
  const double branches = model.gated_mlp ? 2 : 1;
  const double rows = tokens / groups;
  list.push(gemm(names.up, rows, branches * f, s.h, input, s.e, groups));
  const double width = s.e * tokens * f;
  const bool keeps_gate = stack.saves_gate_output && model.gated_mlp;
  Operator activation =
      elementwise(names.activation, (branches + 1) * width, (2 * branches + 1) * width,
                  (branches + (keeps_gate ? 1 : 0)) * width);
  activation.transient = Bytes{(branches + 1) * width + buffers};
  list.push(activation);
  const bool keeps_product = stack.saves_swiglu_product || !model.gated_mlp;
  list.push(gemm(names.down, rows, s.h, f, keeps_product ? s.kept * tokens * f : 0, s.e, groups));
}

void push_mlp(OperatorList& list, const ModelSpec& model, const Framework& stack, const Shapes& s,
              LayerSharding sharding) {
  push_column_entry(list, "mlp_gather", s, sharding);
  const double input = model.parallel_block ? 0 : s.kept * s.Ts * s.h;  // shared with attention
  push_projections(list, model, stack, s, {"mlp_up", "activation", "mlp_down"}, s.T, s.f, input,
                   gather_buffers(s, stack, sharding));
  push_row_exit(list, "mlp_reduce", s, sharding);
}

/// Routed experts: router, permutation, dispatch to the ranks that hold the experts, one grouped
/// GEMM each way, combination. Every expert is assumed to get the same number of tokens.
///
///   rows sent by a rank      T'·topk,  T' = T/tp with sequence parallelism (else T, dispatched
///   once
///                            by each tp rank for its 1/tp)
///   rows computed by a rank  T'·topk·etp  over  E/ep  local experts
///   all-to-all payload       2·T'·topk·h bytes each way, forward and backward
/// Source: Megatron-Core MoE (alltoall token dispatcher), GShard (arXiv 2006.16668).
void push_experts(OperatorList& list, const ModelSpec& model, const Framework& stack,
                  const Shapes& s, LayerSharding sharding) {
  using enum CollectiveKind;
  const MixtureOfExperts& moe = model.moe;
  const double own = s.T / sharding.tp;
  const double rows = own * moe.experts_per_token;
  const double bytes = s.e * rows * s.h;
  const double logits = 4 * own * moe.experts;
  Operator router = gemm("router", own, moe.experts, s.h, s.e * s.Ts * s.h, s.e);
  router.wide = true;
  list.push(router);
  list.push(elementwise("top_k", 3 * logits, 2 * logits, logits));
  list.push(elementwise("permute", 2 * bytes, 2 * bytes, 0));
  const auto exchange = [&](std::string_view name) {
    if (sharding.ep > 1) {
      list.push(collective(name, all_to_all, all_to_all, bytes, false, CollectiveGroup::ep));
    }
  };
  exchange("dispatch");
  if (sharding.etp > 1) {
    list.push(collective("expert_gather", all_gather, reduce_scatter, bytes * sharding.etp, false,
                         CollectiveGroup::etp));
  }
  // A grouped GEMM: as many products as local experts, each over its share of the rows. The tiles
  // of all products fill the device together; ragged edges cost a little more.
  const double local = rows * sharding.etp;
  const double f = static_cast<double>(moe.expert_ffn_hidden) / sharding.etp;
  push_projections(list, model, stack, s, {"expert_up", "expert_activation", "expert_down"}, local,
                   f, s.kept * local * s.h, 0, static_cast<double>(moe.experts) / sharding.ep);
  if (sharding.etp > 1) {
    list.push(collective("expert_reduce", reduce_scatter, all_gather, bytes * sharding.etp, false,
                         CollectiveGroup::etp));
  }
  exchange("combine");
  list.push(elementwise("unpermute", 2 * bytes, 2 * bytes, bytes));
  if (moe.shared_ffn_hidden > 0) {
    push_column_entry(list, "shared_gather", s, sharding);
    push_projections(list, model, stack, s, {"shared_up", "shared_activation", "shared_down"}, s.T,
                     static_cast<double>(moe.shared_ffn_hidden) / sharding.tp, 0,
                     gather_buffers(s, stack, sharding));
    push_row_exit(list, "shared_reduce", s, sharding);
  }
}

/// Selective recomputation as Megatron does it. Source: arXiv 2205.05198 section 5.
void drop_attention_core(OperatorList& list) {
  for (Operator& op : list.edit()) {
    op.kept = op.attention_core ? Bytes{} : op.saved;
    op.repeated = op.attention_core ? 1.0 : 0.0;
  }
}

/// Selective recomputation per operator: a layer keeps its input, what attention returns and the
/// results of every second matrix product, counted q, k, v, output, gate, up, down: q, v, gate and
/// down. All else is repeated.
/// Source: pytorch/torchtitan@01c79fd, torchtitan/models/llama3/parallelize_llama.py, option "op":
/// its list of saved operators and its count of products, in the order in which model.py calls
/// them.
void keep_every_second_product(OperatorList& list, const ModelSpec& model, const Shapes& s) {
  for (Operator& op : list.edit()) {
    const double result = s.e * op.groups * op.m * op.n;
    op.kept = Bytes{};
    op.repeated = 1.0;
    if (op.name == "input_norm") {
      op.kept = op.saved;
    } else if (op.attention_core) {
      const bool whole = op.kind == OperatorKind::attention || op.name == "attention_context";
      op.kept = (whole ? Bytes{s.e * s.T * s.o} : Bytes{}) +
                (op.kind == OperatorKind::attention ? op.saved : Bytes{});
      op.repeated = 0.0;
    } else if (op.name == "qkv") {
      op.kept = Bytes{s.e * s.T * (s.q + s.v)};
      op.repeated = s.kv / (s.q + s.kv + s.v);
    } else if (op.kind == OperatorKind::gemm && op.name.ends_with("_up")) {
      op.repeated = model.gated_mlp ? 0.5 : 0.0;
      op.kept = Bytes{(1 - op.repeated) * result};
    } else if (op.kind == OperatorKind::gemm && op.name.ends_with("_down")) {
      op.repeated = 0.0;
      op.kept = Bytes{result};
    }
  }
}

/// A stack that makes results of norms and activations again in the backward keeps none of them:
/// of a layer its input, the sum behind attention, q, k, v, and what goes into the activation. Its
/// selective recomputation repeats attention up to its output.
///
///   transient   dgrad of the activation and its two sides, or of q, k, v and attention's output
/// Source: runtime/model/chunk_layout.hpp, ChunkMemory.
void keep_inputs_alone(OperatorList& list, const ModelSpec& model, const Shapes& s) {
  const double heads = s.e * s.T * (s.q + s.kv + s.v + s.o);
  const double branches = model.gated_mlp ? 2 : 1;
  for (Operator& op : list.edit()) {
    const bool product = op.kind == OperatorKind::gemm;
    if (product && op.name != "projection" && op.name != "router") op.saved = op.kept = Bytes{};
    if (op.name == "projection") {
      op.saved = Bytes{s.e * s.T * s.o};
      op.kept = Bytes{};
    }
    if (op.kind == OperatorKind::attention) op.transient = Bytes{heads};
    if (op.name == "activation") op.transient = Bytes{s.e * (2 + branches) * s.T * s.f};
  }
}

}  // namespace

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

OperatorList layer_operators(const ModelSpec& model, const TrainingJob& job, const Framework& stack,
                             LayerSharding sharding, LayerKind kind) {
  const Shapes s = shapes_of(model, job, stack, sharding);
  OperatorList list;
  list.push(norm("input_norm", s));
  push_attention(list, model, job, stack, s, sharding);
  if (model.post_norms) list.push(norm("attention_output_norm", s));
  list.push(residual("attention_residual", s, model.hidden_dropout));
  if (!model.parallel_block) list.push(norm("post_attention_norm", s));
  if (kind == LayerKind::moe) {
    push_experts(list, model, stack, s, sharding);
  } else {
    push_mlp(list, model, stack, s, sharding);
  }
  if (model.post_norms) list.push(norm("mlp_output_norm", s));
  list.push(residual("mlp_residual", s, model.hidden_dropout));
  if (stack.selective_per_operator) {
    keep_every_second_product(list, model, s);
  } else {
    drop_attention_core(list);
  }
  if (stack.remakes_pointwise) keep_inputs_alone(list, model, s);
  return list;
}

OperatorList embedding_operators(const ModelSpec& model, const TrainingJob& job,
                                 const Framework& stack, LayerSharding sharding) {
  const Shapes s = shapes_of(model, job, stack, sharding);
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
  return list;
}

OperatorList head_operators(const ModelSpec& model, const TrainingJob& job, const Framework& stack,
                            LayerSharding sharding) {
  const Shapes s = shapes_of(model, job, stack, sharding);
  const double logits = s.T * padded_vocab(model, stack, sharding.tp) / sharding.tp;
  OperatorList list;
  list.push(norm("final_norm", s));
  push_column_entry(list, "head_gather", s, sharding);
  const double input = stack.remakes_pointwise ? 0 : s.e * s.Ts * s.h;
  Operator head = gemm("head", s.T, logits / s.T, s.h, input, s.e);
  head.wide = true;  // Source: Megatron-Core and TransformerEngine leave the output layer in bf16
  list.push(head);
  Operator loss = elementwise("loss", 0.6 * stack.loss_traffic * logits,
                              0.4 * stack.loss_traffic * logits, stack.logits_bytes * logits);
  if (stack.loss_rows > 0) {  // the backward makes them again from the maximum and two sums
    loss.saved = Bytes{3 * s.w * s.T};
    loss.transient = Bytes{s.e * std::min(s.T, double(stack.loss_rows)) * logits / s.T};
  }
  loss.forward_kernels = 6;
  loss.backward_kernels = 3;
  list.push(loss);
  if (sharding.tp > 1) {  // maximum, target logit and sum of exponentials of every token
    list.push(collective("loss_reduce", CollectiveKind::all_reduce, CollectiveKind::none,
                         3 * s.w * s.T, false));
  }
  return list;
}

double padded_vocab(const ModelSpec& model, const Framework& stack, int tp) {
  const double unit = static_cast<double>(stack.vocab_padding) * tp;
  return std::ceil(model.vocab / unit) * unit;
}

double layer_parameters_per_rank(const ModelSpec& model, int tp, LayerKind kind) {
  const ModelSpec::LayerParameters all = model.layer_parameters(kind);
  const double sharded = static_cast<double>(all.attention_matrices + all.mlp_matrices +
                                             all.shared_expert_matrices + all.sharded_vectors) /
                         tp;
  // kv heads fewer than tp are copied: every rank still holds one key and one value head.
  const double surplus = std::max(0.0, 1.0 - static_cast<double>(model.kv_heads) / tp);
  const double copies =
      2 * surplus * model.head_dim * (static_cast<double>(model.hidden) + (model.qkv_bias ? 1 : 0));
  return sharded + copies + static_cast<double>(all.replicated + all.latent_matrices + all.router);
}

double expert_parameters_per_rank(const ModelSpec& model, const LayerSharding& sharding) {
  if (model.moe.experts == 0) return 0;
  const ModelSpec::LayerParameters all = model.layer_parameters(LayerKind::moe);
  return static_cast<double>(all.expert_matrices) /
             (static_cast<double>(sharding.ep) * sharding.etp) +
         static_cast<double>(all.expert_vectors) / sharding.ep;
}

double embedding_parameters_per_rank(const ModelSpec& model, const Framework& stack, int tp) {
  const double h = model.hidden;
  const double word = padded_vocab(model, stack, tp) / tp * h;
  const double rest = static_cast<double>(model.embedding_parameters()) - h * model.vocab;
  return word + rest;
}

double head_parameters_per_rank(const ModelSpec& model, const Framework& stack, int tp,
                                bool holds_tied_copy) {
  const double vocab = padded_vocab(model, stack, tp) / tp;
  const double matrix = !model.tied_embeddings || holds_tied_copy ? vocab * model.hidden : 0.0;
  const double bias = model.head_bias ? vocab : 0.0;
  const double norm = model.normalization == Normalization::layer_norm ? 2.0 : 1.0;
  return matrix + bias + norm * model.hidden;
}

}  // namespace echelon
