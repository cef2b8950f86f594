// Attention: projections into the heads, its core, context parallelism around it.
#include "costmodel/operators/build.hpp"

namespace echelon::operators {
namespace {

/// Keys one query attends to on average; layers with and without a window are averaged.
double causal_keys(const ModelSpec& model, const TrainingJob& job, TokenMixer mixer) {
  const double full = attended_keys(job, job.sequence);
  if (mixer == TokenMixer::global_attention) return full;
  if (model.sliding_window <= 0 || model.sliding_window >= job.sequence) return full;
  const double share =
      static_cast<double>(model.windowed_layers) / model.layers_with(TokenMixer::attention);
  return share * attended_keys(job, model.sliding_window) + (1 - share) * full;
}

/// A ring's passes over memory besides attention itself: keys and values are packed, twice in the
/// backward; on average 3/4 of the queries see another rank's keys, and their output, in w bytes,
/// is read and written again for each; in the end it is rounded. Backward so are the gradients of
/// queries, which begin as zeros, and those of keys and values are added up and unpacked.
/// Source: runtime/model/chunk_context.cpp.
Operator ring_copies(const Shapes& s, LayerSharding sharding) {
  const double block = s.e * s.T * (s.kv + s.v);
  const double others = 2 * 0.75 * (sharding.cp - 1);
  const double forward = 2 * block + others * s.w * s.T * s.o + (s.w + s.e) * s.T * s.o;
  const double sums = 3 * (sharding.cp - 1) * block;
  const double backward = 6 * block + sums + (others + 1) * s.e * s.T * s.q + block;
  Operator op = elementwise("cp_ring_copies", forward, backward, 0);
  op.forward_kernels = 2;
  op.backward_kernels = 3 + sharding.cp;
  op.attention_core = true;
  return op;
}

/// Context parallelism before attention. Ring: the keys and values of all ranks pass by, next to
/// the attention kernels; backward they pass again and their gradients come back. All-to-all:
/// queries, keys and values change from a split of the sequence to a split of the heads. Source:
/// Ring Attention (arXiv 2310.01889), DeepSpeed-Ulysses (arXiv 2309.14509); Megatron-Core
/// --cp-comm-type p2p and a2a.
void push_context_entry(OperatorList& list, const Framework& framework, const Shapes& s,
                        LayerSharding sharding) {
  if (sharding.cp == 1) return;
  using enum CollectiveKind;
  if (sharding.cp_comm == CpComm::all_to_all) {
    push_heads_exchange(list, "cp_scatter_heads", s.e * s.T * (s.q + s.kv + s.v), sharding,
                        framework.packs_heads);
    return;
  }
  const double all_keys = s.e * s.T * sharding.cp * (s.kv + s.v);
  Operator ring = collective("cp_ring", all_gather, all_gather, all_keys, true, Axis::cp);
  ring.forward_overlaps = true;
  ring.attention_core = framework.packs_heads;
  if (framework.packs_heads) list.push(ring_copies(s, sharding));
  list.push(ring);
  list.push(collective("cp_ring_gradients", none, reduce_scatter, all_keys, true, Axis::cp));
}

/// … and after it: the outputs return to the split of the sequence.
void push_context_exit(OperatorList& list, const Framework& framework, const Shapes& s,
                       LayerSharding sharding) {
  if (sharding.cp == 1 || sharding.cp_comm != CpComm::all_to_all) return;
  using enum CollectiveKind;
  const double output = s.e * s.T * s.o;
  Operator gather = collective("cp_gather_heads", all_to_all, all_to_all, output, false, Axis::cp);
  gather.attention_core = framework.packs_heads;
  list.push(gather);
  if (!framework.packs_heads) return;
  Operator join = copy("cp_join_heads", output);
  join.attention_core = true;
  join.saved = Bytes{output};  // as attention gave it; the projection saves its input
  list.push(join);
}

/// Two blocks of keys and values in flight while the ring turns.
double ring_buffers(const Shapes& s, LayerSharding sharding) {
  return sharding.cp > 1 && sharding.cp_comm == CpComm::ring ? 2 * s.e * s.T * (s.kv + s.v) : 0.0;
}

void push_flash_attention(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                          const Shapes& s, LayerSharding sharding, TokenMixer mixer,
                          double buffers) {
  Operator op;
  op.name = "attention";
  op.kind = OperatorKind::attention;
  const double keys = causal_keys(model, job, mixer);
  op.forward = Flops{2 * s.T * keys * (s.q + s.o)};
  op.backward = 2.5 * op.forward;  // five products against two; flash recomputes the scores
  op.forward_traffic = Bytes{s.e * s.T * (s.q + s.kv + s.v + s.o)};
  op.backward_traffic = Bytes{s.e * s.T * (2 * s.q + 3 * s.o + 2 * s.kv + 2 * s.v)};
  // A ring runs one kernel per block of keys that passes by, each on 1/cp of every document. The
  // time of documents of x tokens is Σ x²·(1 + s½/x), as of one length Σ x² / Σ x (rates.hpp).
  const bool ring = sharding.cp > 1 && sharding.cp_comm == CpComm::ring;
  const double span = job.document_span();
  op.span = ring ? span / sharding.cp : span;
  op.forward_kernels = ring ? sharding.cp : 1;
  op.backward_kernels = 3 * op.forward_kernels;
  op.saved = Bytes{s.w * s.T * s.A};  // log-sum-exp
  op.attention_core = true;
  op.transient = Bytes{s.w * s.T * s.q + s.e * s.T * (s.q + s.kv + s.v) + buffers};
  list.push(op);
}

/// Scores, softmax, dropout and the product with the values, each in a separate kernel.
void push_materialised_attention(OperatorList& list, const ModelSpec& model, const Shapes& s,
                                 double buffers) {
  const double scores = s.A * s.T * s.sequence;
  const bool drops = model.attention_dropout > 0;
  Operator qk = gemm("attention_scores", s.T * s.A, s.sequence, s.d, 0, s.e);
  qk.attention_core = true;
  qk.has_weight = false;
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
  Operator context = gemm("attention_context", s.T * s.A, s.d, s.sequence, 0, s.e);
  context.attention_core = true;
  context.has_weight = false;
  list.push(context);
}

/// A norm over all heads, which tensor parallelism splits: the ranks add up the squares of a
/// token's queries and of its keys, backward their products with the gradient. Source: vLLM's
/// MiniMaxText01RMSNormTP, which reduces the variance.
void push_norm_reduction(OperatorList& list, const Shapes& s) {
  using enum CollectiveKind;
  list.push(collective("qk_norm_reduce", all_reduce, all_reduce, 2 * s.w * s.T, false));
}

/// Rotation of queries and keys, `elements` of them: one kernel each way. Where cosines and sines
/// have a factor (YaRN's concentration) and no kernel takes it, operation by operation: two
/// products and their sum, the half that changes its sign, and two concatenations, 12 bytes read or
/// written per byte of the tensor; backward the products, the sign, the halves put together and two
/// sums,
/// 14. Of queries and of keys 12 launches, six of them for the angles, and 9 backward.
/// Source: Megatron-LM, megatron/core/models/common/embeddings/rope_utils.py, apply_rotary_pos_emb
/// (mscale != 1: "Using unfused implementation") and _apply_rotary_pos_emb_bshd. Checked by:
/// tests/costmodel/operators/unfused_kernels_test.cpp.
Operator rotation(const ModelSpec& model, const Framework& framework, double bytes) {
  const bool scaled = model.constants && model.constants->rope.attention_factor != 1;
  if (!scaled || !framework.unfused_scaled_rotation) {
    return elementwise("rope", 2 * bytes, 2 * bytes, 0);
  }
  Operator op = elementwise("rope", 12 * bytes, 14 * bytes, 0);
  op.forward_kernels = 2 * 12;
  op.backward_kernels = 2 * 9;
  return op;
}

/// Projections into the heads: one GEMM from the hidden state.
void push_qkv(OperatorList& list, const ModelSpec& model, const Framework& framework,
              const Shapes& s, LayerSharding sharding) {
  push_column_entry(list, "qkv_gather", s, sharding);
  const double gate = model.attention_output_gate ? s.q : 0;
  const Operator qkv = gemm("qkv", s.T, s.q + gate + s.kv_projected, s.h, s.kept * s.Ts * s.h, s.e);
  list.push(s.by_operations ? as_modules(qkv, 3) : qkv);
  const double heads = s.T * (s.q + s.kv);
  if (model.qk_norm || model.qk_norm_all_heads) {
    list.push(s.by_operations
                  ? as_modules(norm_by_operations("qk_norm", heads, s, s.e * heads), 2)
                  : elementwise("qk_norm", 2 * s.e * heads, 3 * s.e * heads, s.e * heads));
  }
  if (model.value_norm) {  // of values that are the keys before their norm, which keeps them
    const double values = s.e * s.T * s.v;
    const bool kept = s.kv_projected < 2 * s.kv && model.qk_norm;
    list.push(elementwise("value_norm", 2 * values, 3 * values, kept ? 0 : values));
  }
  if (model.qk_norm_all_heads && sharding.tp > 1) push_norm_reduction(list, s);
  if (model.position == PositionEmbedding::rope) {
    Operator rope = rotation(model, framework, s.e * heads);
    if (s.by_operations) {  // their further bytes are Calibration::attention_overhead
      rope.forward_kernels = 2 * 5;
      rope.backward_kernels = 2 * 10;
    }
    list.push(rope);
  }
}

/// The same where every rank makes the latents of all tokens. One product makes all latents; their
/// norms run again in the backward, for the weights' gradients; the heads are put together by one
/// kernel, which rotates them. The gradients of direct queries and of the latents with respect to
/// the hidden state are added up.
/// Source: runtime/model/chunk_latent.cpp.
void push_whole_latents(OperatorList& list, const ModelSpec& model, const Shapes& s,
                        LayerSharding sharding) {
  const LatentAttention& mla = model.mla;
  const double latents = mla.q_lora_rank + mla.kv_lora_rank + mla.qk_rope_head_dim;
  const double normed = s.e * s.T * (mla.q_lora_rank + mla.kv_lora_rank);
  const double up_kv = s.A * (mla.qk_nope_head_dim + mla.v_head_dim);
  const bool direct = mla.q_lora_rank == 0;
  push_column_entry(list, "qkv_gather", s, sharding);
  list.push(gemm("latent_down", s.T, latents, s.h, 0, s.e));
  list.push(elementwise("latent_norms", 2 * normed, 5 * normed, s.e * s.T * latents));
  list.push(gemm("q_up", s.T, s.q, direct ? s.h : mla.q_lora_rank, 0, s.e));
  list.push(gemm("kv_up", s.T, up_kv, mla.kv_lora_rank, 0, s.e));
  const double heads =
      s.e * s.T * (s.q + up_kv + mla.qk_rope_head_dim) + s.e * s.T * (s.q + s.kv + s.v);
  list.push(elementwise("latent_heads", heads, heads, 0));
  if (direct) list.push(elementwise("query_gradients", 0, 3 * s.e * s.T * s.h, 0));
}

/// Projections into the heads through latents (MLA): down on every rank, norms, up by heads.
/// Source: DeepSeek-V2 (arXiv 2405.04434) section 2.1; Megatron-Core MLASelfAttention.
void push_latent_qkv(OperatorList& list, const ModelSpec& model, const Framework& framework,
                     const Shapes& s, LayerSharding sharding) {
  if (framework.latents_of_all_tokens) return push_whole_latents(list, model, s, sharding);
  const LatentAttention& mla = model.mla;
  const double rank_kv = mla.kv_lora_rank;
  const double rank_q = mla.q_lora_rank;
  const double up_kv = s.A * (mla.qk_nope_head_dim + mla.v_head_dim);
  push_latents(list, model, s, sharding);
  list.push(gemm("q_up", s.T, s.q, rank_q > 0 ? rank_q : s.h, s.kept * s.Ts * rank_q, s.e));
  list.push(gemm("kv_up", s.T, up_kv, rank_kv, s.kept * s.Ts * rank_kv, s.e));
  list.push(elementwise("rope", 2 * s.e * s.T * s.q, 2 * s.e * s.T * s.q, 0));
}

}  // namespace

double attended_keys(const TrainingJob& job, double most) {
  const double sequence = job.sequence;
  return job.documents ? keys_in_document(*job.documents, sequence, most)
                       : most * (1 - most / (2 * sequence));
}

void push_latents(OperatorList& list, const ModelSpec& model, const Shapes& s,
                  LayerSharding sharding) {
  const LatentAttention& mla = model.mla;
  const double rank_kv = mla.kv_lora_rank;
  const double rank_q = mla.q_lora_rank;
  double input = s.kept * s.Ts * s.h;
  if (rank_q > 0) {
    list.push(gemm("q_down", s.Ts, rank_q, s.h, input, s.e));
    if (s.kept >= s.e) input = 0;  // shared with the keys' and values' projection; fp8: two copies
    list.push(elementwise("q_latent_norm", 2 * s.e * s.Ts * rank_q, 4 * s.e * s.Ts * rank_q,
                          s.e * s.Ts * rank_q));
  }
  list.push(gemm("kv_down", s.Ts, rank_kv + mla.qk_rope_head_dim, s.h, input, s.e));
  // What the down projection made, the part to rotate with it.
  list.push(elementwise("kv_latent_norm", 2 * s.e * s.Ts * rank_kv, 4 * s.e * s.Ts * rank_kv,
                        s.e * s.Ts * (rank_kv + mla.qk_rope_head_dim)));
  if (sharding.tp > 1 &&
      sharding.sequence_parallel) {  // the latents, not the hidden state, are gathered
    using enum CollectiveKind;
    list.push(collective("latent_gather", all_gather, reduce_scatter,
                         s.e * s.T * (rank_q + rank_kv + mla.qk_rope_head_dim), true));
  } else {
    push_column_entry(list, "qkv_gather", s, sharding);
  }
}

void push_attention(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                    const Framework& framework, const Shapes& s, LayerSharding sharding,
                    TokenMixer mixer) {
  if (model.sparse()) return push_sparse_attention(list, model, job, framework, s, sharding);
  if (model.latent()) {
    push_latent_qkv(list, model, framework, s, sharding);
  } else {
    push_qkv(list, model, framework, s, sharding);
  }
  // Attention saves its inputs: q, k and v after rotation.
  list.push(elementwise("attention_inputs", 0, 0, s.e * s.T * (s.q + s.kv + s.v)));
  const double buffers = gather_buffers(s, framework, sharding) + ring_buffers(s, sharding);
  push_context_entry(list, framework, s, sharding);
  if (job.flash_attention) {
    push_flash_attention(list, model, job, s, sharding, mixer, buffers);
  } else {
    push_materialised_attention(list, model, s, buffers);
  }
  push_context_exit(list, framework, s, sharding);
  if (model.attention_output_gate) {  // keeps its two factors: attention's output and the gate
    const double output = s.e * s.T * s.o;
    list.push(elementwise("attention_gate", 3 * output, 5 * output, 2 * output));
  }
  // Attention's output too, which the projection shares in fp8 jobs as well. Source: Megatron-LM
  // core_v0.16.1, core/transformer/attention.py, set_save_original_input (not with delayed
  // scaling).
  list.push(gemm("projection", s.T, s.h, s.o, s.e * s.T * s.o, s.e));
  push_row_exit(list, "projection_reduce", s, sharding);
}

}  // namespace echelon::operators
