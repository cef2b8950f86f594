// Sparse attention (DSA): latent attention on absorbed keys, the best of which an indexer chooses.
#include <algorithm>
#include <cmath>

#include "costmodel/operators/build.hpp"

namespace echelon::operators {
namespace {

/// Widths on one rank, and what a query sees on average.
struct Widths {
  double heads;         // attention heads
  double padded;        // … as the kernels pad them
  double key;           // of an absorbed query, and of the one key that all heads share
  double value;         // … of the one value: the latent
  double rope;          // rotary part
  double index_heads;   // of the indexer, all of them on every rank
  double index_padded;  // … in the kernel of their gradients
  double index_dim;
  double query_source;  // width of what the indexer's queries are made of
  double topk;
  double topk_padded;  // … in the kernel of the indexer's gradients
  double tokens;       // of the keys on a rank: all of them, gathered over cp
  double row;          // numbers in a row of index scores
  double all;          // keys that a query scores
  double chosen;       // … and attends to
};

/// FlashMLA takes 64 heads at a time; its gradients and those of the indexer, too. Source:
/// Megatron-LM d98e8a64, core/transformer/experimental_attention_variant/dsa_cudnn_kernels.py,
/// _flash_mla_head_padding and _pad_indexer_heads_for_backward.
constexpr double kHeadsAtOnce = 64;
/// … _compute_sparse_indexer_loss_and_grads, block_i.
constexpr double kKeysAtOnce = 128;

double padded(double count, double unit) { return std::ceil(count / unit) * unit; }

/// Numbers in a row of index scores: one for each token of the longest document, or sequence
/// (_indexer_topk_multi_packed_cp_thd, max_segment_k of the rank with the last tokens).
double score_row(const TrainingJob& job) {
  if (!job.documents) return job.sequence;
  double longest = 0;
  for (const DocumentLengths::Bin& bin : job.documents->bins) {
    longest = std::max(longest, bin.tokens);
  }
  return std::min<double>(longest, job.sequence);
}

Widths widths_of(const ModelSpec& model, const TrainingJob& job, const Shapes& s,
                 LayerSharding sharding) {
  const SparseAttention& dsa = model.dsa;
  const LatentAttention& mla = model.mla;
  const double topk = std::min<double>(dsa.topk, job.sequence);
  return {.heads = s.A,
          .padded = padded(s.A, kHeadsAtOnce),
          .key = static_cast<double>(mla.kv_lora_rank + mla.qk_rope_head_dim),
          .value = static_cast<double>(mla.kv_lora_rank),
          .rope = static_cast<double>(mla.qk_rope_head_dim),
          .index_heads = static_cast<double>(dsa.index_heads),
          .index_padded = std::max(kHeadsAtOnce, static_cast<double>(dsa.index_heads)),
          .index_dim = static_cast<double>(dsa.index_head_dim),
          .query_source = static_cast<double>(mla.q_lora_rank),
          .topk = topk,
          .topk_padded = padded(topk, kKeysAtOnce),
          .tokens = s.T * sharding.cp,
          .row = score_row(job),
          .all = attended_keys(job, job.sequence),
          .chosen = attended_keys(job, topk)};
}

/// A product whose input takes no gradient: the backward makes that of the weights alone.
Operator without_input_gradient(Operator op) {
  op.input_gradient = false;
  op.backward = op.forward;
  op.backward_traffic = op.forward_traffic;
  op.backward_kernels = 1;
  return op;
}

/// A product by PyTorch (torch.einsum) on a view of an up projection's weight: in 16 bits whatever
/// the recipe.
Operator einsum(Operator op) {
  op.wide = true;
  return op;
}

/// From the latents to absorbed queries: up by heads, the part without position through the keys'
/// up projection, so that all heads share one key. The rotation runs operation by operation
/// (rotation() in attention.cpp), and what it made is put beside the rest.
void push_absorbed_queries(OperatorList& list, const ModelSpec& model, const Shapes& s,
                           const Widths& w) {
  list.push(gemm("q_up", s.T, s.q, w.query_source, s.kept * s.Ts * w.query_source, s.e));
  list.push(einsum(
      gemm("key_absorb", s.T, w.value, model.mla.qk_nope_head_dim, s.e * s.T * s.q, s.e, w.heads)));
  const double turned = s.e * s.T * (w.heads + 1) * w.rope;
  const double joined = s.e * s.T * (w.heads + 1) * w.key;
  Operator rope = elementwise("rope", 12 * turned + 2 * joined, 14 * turned + 2 * joined, 0);
  rope.forward_kernels = 2 * 13;
  rope.backward_kernels = 2 * 10;
  list.push(rope);
  list.push(elementwise("attention_inputs", 0, 0, s.e * s.T * w.heads * w.key));
}

/// The keys of all ranks of context parallelism: their gradients return reduced.
void push_keys(OperatorList& list, std::string_view gather, const Shapes& s, LayerSharding sharding,
               double width) {
  if (sharding.cp == 1) return;
  list.push(collective(gather, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                       s.e * s.T * sharding.cp * width, false, Axis::cp));
}

/// The indexer's projections, all of them on every tensor-parallel rank and of all its tokens:
/// hidden states and the queries' latent are gathered, without a gradient on the way back. The key
/// has a norm; queries and key are rotated and, in models that have it, pass a Hadamard transform.
/// Without tensor parallelism the inputs are those that other projections keep.
void push_indexer_projections(OperatorList& list, const ModelSpec& model, const Shapes& s,
                              LayerSharding sharding, const Widths& w) {
  const bool gathered = sharding.tp > 1 && sharding.sequence_parallel;
  const bool own_copy = gathered || s.kept < s.e;
  if (gathered) {
    list.push(collective("index_gather", CollectiveKind::all_gather, CollectiveKind::none,
                         s.e * s.T * (s.h + w.query_source), false));
  }
  const double queries = w.index_heads * w.index_dim;
  const double hidden = s.kept * s.T * s.h;
  list.push(without_input_gradient(gemm("index_queries", s.T, queries, w.query_source,
                                        own_copy ? s.kept * s.T * w.query_source : 0, s.e)));
  list.push(
      without_input_gradient(gemm("index_key", s.T, w.index_dim, s.h, own_copy ? hidden : 0, s.e)));
  const double parts = w.index_heads + 1;
  const bool transforms = model.dsa.hadamard;
  const double whole = (transforms ? 4 : 2) * w.index_dim;  // joined, transformed
  Operator turn = elementwise(
      "index_rope", s.e * s.T * (parts * (12 * w.rope + whole) + 2 * w.index_dim),
      s.e * s.T * (parts * (14 * w.rope + whole) + 4 * w.index_dim), s.e * s.T * w.index_dim);
  turn.forward_kernels = 2 * (transforms ? 14 : 13) + 1;
  turn.backward_kernels = 2 * (transforms ? 11 : 10) + 2;
  list.push(turn);
  list.push(without_input_gradient(
      gemm("index_weights", s.T, w.index_heads, s.h, s.kept < s.e ? hidden : 0, s.e)));
}

/// Scores of all keys before a query, of H index heads of width d that share a key, and the top-k
/// of them, in one kernel each (planner/space/legality.cpp refuses the others):
///
///   FLOPs     2·H·d per query and key, on every tensor-parallel rank
///   traffic   a row of fp32 scores written, its keys before the query read again; the chosen keys'
///             numbers and scores
///   transient fp32 scores of all rows, and the top-k kernel's scratch: two 32-bit numbers per
///             score, of so many rows as fit into 2 GiB (_indexer_top_k_wrapper_chunked)
///
/// Backward: nothing, for the gradients come from the loss (push_indexer_loss).
void push_scores(OperatorList& list, const TrainingJob& job, const Shapes& s, const Widths& w) {
  constexpr double kMostScratch = 2.0 * 1024 * 1024 * 1024;
  const double matrix = 4 * s.T * w.row;
  Operator scores;
  scores.name = "index_scores";
  scores.kind = OperatorKind::attention;
  scores.forward = Flops{2 * s.T * w.all * w.index_heads * w.index_dim};
  scores.forward_traffic = Bytes{s.e * (s.T * w.index_heads + w.tokens) * w.index_dim + matrix};
  scores.span = job.document_span();
  scores.forward_kernels = 1;
  scores.transient = Bytes{matrix + std::min(2 * matrix, kMostScratch)};
  list.push(scores);
  list.push(elementwise("index_topk", 4 * s.T * w.all + 8 * s.T * w.topk, 0, 0));
}

/// Bytes that surround the backward kernel of the core, in which `width` numbers of queries, of the
/// output and of its gradient belong to a token and head.
struct BackwardCopies {
  double traffic = 0;
  double transient = 0;
  int kernels = 0;
};

/// Fewer heads than the kernel takes are padded: zeros written, the heads copied; afterwards the
/// queries' gradient is cut. Unless all rows are known to have keys, each tensor is copied twice
/// more (torch.cat with an empty row, index_select of the rows with keys), both copies alive in the
/// kernel, and the queries' gradient goes into zeros by index_copy_. Only packed documents over
/// context parallelism are known to (all_sparse_bwd_rows_nonempty).
/// Source: dsa_cudnn_kernels.py, _run_sparse_attention_backward.
BackwardCopies backward_copies(const TrainingJob& job, const Shapes& s, LayerSharding sharding,
                               const Widths& w) {
  const double width = w.key + 2 * w.value;
  const double own = s.e * s.T * w.heads * width;
  const double kernel = s.e * s.T * w.padded * width;
  const double queries = s.e * s.T * w.heads * w.key;
  const double numbers = 4 * s.T * w.topk;
  BackwardCopies copies;
  if (w.padded > w.heads) {
    copies.traffic += kernel + 2 * own + 2 * queries;
    copies.transient += kernel;
    copies.kernels += 2 * 4 + 1;  // queries, output, gradient, log-sum-exp
  }
  if (job.documents && sharding.cp > 1) return copies;
  copies.traffic += 4 * (kernel + numbers) + 3 * queries;
  copies.transient = 2 * (kernel + numbers);  // the padded ones are gone
  copies.kernels += 3 * 6 + 6;                // an empty row, cat and index_select of six; indices
  return copies;
}

/// Latent attention of the chosen keys by one kernel (FlashMLA; backward cuDNN's), heads padded to
/// a multiple of 64 (A):
///
///   forward   2·A·(key + value) per query and chosen key
///
///   backward  2·A·(3·key + 2·value): scores again, gradients of probabilities, queries, keys and
///             values
///
///   saved     output on the latent and log-sum-exp, both of padded heads, of which the rest is a
///             view (_dsa_fwd_flash_mla); numbers of the chosen keys
///
///   transient gradients of queries and output, of keys in fp32, and what the backward copies
///             (above)
///
/// Keys that several queries choose are assumed to come from the L2 cache: each tensor counts once.
void push_core(OperatorList& list, const TrainingJob& job, const Shapes& s, LayerSharding sharding,
               const Widths& w, double buffers) {
  const double pairs = 2 * s.T * w.chosen * w.padded;
  const double queries = s.e * s.T * w.padded * w.key;
  const double outputs = s.e * s.T * w.padded * w.value;
  const double numbers = 4 * s.T * w.topk;
  const BackwardCopies copies = backward_copies(job, s, sharding, w);
  Operator op;
  op.name = "sparse_attention";
  op.kind = OperatorKind::attention;
  op.forward = Flops{pairs * (w.key + w.value)};
  op.backward = Flops{pairs * (3 * w.key + 2 * w.value)};
  const double pads = w.padded > w.heads ? queries + 2 * s.e * s.T * w.heads * w.key : 0;
  op.forward_traffic = Bytes{pads + queries + outputs + s.e * w.tokens * w.key + numbers};
  op.backward_traffic = Bytes{2 * queries + 2 * outputs + (s.e + 4) * 2 * w.tokens * w.key +
                              numbers + copies.traffic};
  op.span = std::min(job.document_span(), w.topk);
  op.forward_kernels = w.padded > w.heads ? 3 : 1;
  op.backward_kernels = 3 + copies.kernels;
  op.saved = Bytes{outputs + s.w * s.T * w.padded + numbers};
  op.transient = Bytes{queries + s.e * s.T * w.heads * w.value + 4 * w.tokens * w.key +
                       copies.transient + buffers};
  list.push(op);
}

/// The indexer's loss, KL of attention's probabilities and the indexer's over the chosen keys, and
/// its gradients, which the forward makes and the backward scales:
///
///   target      attention's scores again: 2·A·key per query and chosen key; summed over the heads
///               of all tensor-parallel ranks, an fp32 number for each chosen key
///   loss        about 30 reads or writes of an fp32 number per chosen key
///   gradients   2·3·H·d per query and top-k key, whether or not so many precede it: scores again,
///               of queries, of keys. Their kernel has no length of a row, and runs over padding
///               (_pad_sparse_backward_topk)
///   saved       gradients of the indexer's queries, key and weights
///
/// All of it runs only where gradients are recorded: of a layer that is recomputed, in the
/// repetition alone. Source: dsa.py, use_indexer_loss (torch.is_grad_enabled());
/// core/tensor_parallel/random.py, CheckpointFunction.forward (torch.no_grad()).
void push_indexer_loss(OperatorList& list, const TrainingJob& job, const Shapes& s,
                       LayerSharding sharding, const Widths& w) {
  constexpr double kPasses = 30;
  const double chosen = 4 * s.T * w.topk;
  Operator target;
  target.name = "index_target";
  target.kind = OperatorKind::attention;
  target.forward = Flops{2 * s.T * w.chosen * w.padded * w.key};
  target.forward_traffic = Bytes{s.e * (s.T * w.heads + w.tokens) * w.key + 2 * chosen};
  target.span = std::min(job.document_span(), w.topk);
  target.forward_kernels = 1;
  const std::size_t first = list.view().size();
  list.push(target);
  if (sharding.tp > 1) {
    list.push(collective("index_target_reduce", CollectiveKind::all_reduce, CollectiveKind::none,
                         chosen, false));
  }
  Operator loss = elementwise("index_loss", kPasses * chosen, 0, 0);
  loss.forward_kernels = static_cast<int>(kPasses) / 2;
  list.push(loss);
  const double inputs =
      s.e * (s.T * (w.index_heads * w.index_dim + w.index_heads) + w.tokens * w.index_dim);
  Operator gradients;
  gradients.name = "index_gradients";
  gradients.kind = OperatorKind::attention;
  gradients.forward = Flops{6 * s.T * w.topk_padded * w.index_padded * w.index_dim};
  gradients.forward_traffic = Bytes{2 * inputs + 3 * chosen};
  gradients.backward_traffic = Bytes{2 * inputs};
  gradients.span = target.span;
  gradients.forward_kernels = 2;
  gradients.backward_kernels = 3;
  gradients.saved = Bytes{inputs};
  list.push(gradients);
  for (Operator& op : list.edit().subspan(first)) op.once = true;
}

}  // namespace

/// Source of shapes, order and what is kept: Megatron-LM d98e8a64, core/transformer/
/// experimental_attention_variant/absorbed_mla.py, dsa.py and dsa_cudnn_kernels.py
/// (FusedIndexerSparseAttnFunc), for --dsa-kernel-backend cudnn with --dsa-indexer-use-sparse-loss.
/// Assumes the rate of fused attention: no rate of these kernels was measured, so times of models
/// with sparse attention are extrapolated. (FlashMLA's README reports up to 640 TFLOP/s of its
/// forward kernel on H800, 65 % of the peak.) Checked by:
/// tests/costmodel/operators/sparse_attention_test.cpp.
void push_sparse_attention(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                           const Framework& framework, const Shapes& s, LayerSharding sharding) {
  const Widths w = widths_of(model, job, s, sharding);
  push_latents(list, model, s, sharding);
  push_absorbed_queries(list, model, s, w);
  // The own keys are the core's input, those of the other ranks a part of it.
  list.push(elementwise("attention_keys", 0, 0, s.e * s.T * w.key));
  const std::size_t core = list.view().size();
  push_keys(list, "key_gather", s, sharding, w.key);
  if (sharding.cp > 1) {
    list.push(elementwise("gathered_keys", 0, 0, s.e * (w.tokens - s.T) * w.key));
  }
  push_indexer_projections(list, model, s, sharding, w);
  push_keys(list, "index_key_gather", s, sharding, w.index_dim);
  push_scores(list, job, s, w);
  push_core(list, job, s, sharding, w, gather_buffers(s, framework, sharding));
  push_indexer_loss(list, job, s, sharding, w);
  // Its input is the core's output, which the core keeps; of the weight, a part of the up
  // projection's, it keeps a contiguous copy (dsa.py, DSAttention.forward).
  const double values = model.mla.v_head_dim;
  list.push(einsum(
      gemm("value_up", s.T, values, w.value, s.e * w.heads * values * w.value, s.e, w.heads)));
  for (Operator& op : list.edit().subspan(core)) op.attention_core = true;
  list.push(gemm("projection", s.T, s.h, s.o, s.e * s.T * s.o, s.e));
  push_row_exit(list, "projection_reduce", s, sharding);
}

}  // namespace echelon::operators
