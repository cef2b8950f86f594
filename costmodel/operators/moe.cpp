// Routed and shared experts of a layer.
#include <cmath>

#include "costmodel/operators/build.hpp"

namespace echelon::operators {
namespace {

/// Rows that a rank's experts compute: those of equal loads times the imbalance, of each expert
/// rounded up to the unit that fp8 GEMMs ask for.
double padded_rows(double balanced, double experts, const Shapes& s) {
  const double each = balanced * s.imbalance / experts;
  return s.expert_rows > 1 ? experts * std::ceil(each / s.expert_rows) * s.expert_rows
                           : experts * each;
}

/// Gate and up projection, W bytes together, are bounded before the activation, in kernels of their
/// own: two clamps and a concatenation, 4·W; backward masks and selections, 5.5·W with masks of a
/// byte per element, and the halves put together, 2·W. The clamps keep what they bound. Source:
/// Megatron-LM, megatron/core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl; PyTorch,
/// torch/csrc/autograd/FunctionsManual.cpp, clamp_backward. Checked by:
/// tests/costmodel/operators/unfused_kernels_test.cpp.
void push_clamp(OperatorList& list, double bytes) {
  Operator op = elementwise("expert_clamp", 4 * bytes, 7.5 * bytes, bytes);
  op.forward_kernels = 3;
  op.backward_kernels = 7;
  list.push(op);
}

/// A norm of a branch's output, which it keeps.
Operator branch_norm(std::string_view name, const Shapes& s) {
  return elementwise(name, 2 * s.e * s.Ts * s.h, 3 * s.e * s.Ts * s.h, s.e * s.Ts * s.h);
}

/// Norms of MixtureOfExperts::branch_norms before the experts: of the router, without a gain, and a
/// scale of its result, which it keeps; of the routed experts, whose input is that of the norm in
/// front of the shared ones, which keeps it.
void push_branch_inputs(OperatorList& list, const Shapes& s) {
  const double all = s.e * s.Ts * s.h;
  Operator router = elementwise("router_norm", 6 * all, 8 * all, all);
  router.forward_kernels = 3;
  router.backward_kernels = 4;
  list.push(router);
  list.push(elementwise("routed_norm", 2 * all, 4 * all, 0));
}

/// … and behind them: of both outputs, which are added.
void push_branch_outputs(OperatorList& list, const Shapes& s) {
  list.push(branch_norm("shared_output_norm", s));
  list.push(branch_norm("routed_output_norm", s));
  list.push(elementwise("branch_sum", 3 * s.e * s.Ts * s.h, 0, 0));
}

/// Those that every token visits.
void push_shared_experts(OperatorList& list, const ModelSpec& model, const Framework& framework,
                         const Shapes& s, LayerSharding sharding) {
  const MixtureOfExperts& moe = model.moe;
  if (moe.shared_ffn_hidden > 0) {
    push_column_entry(list, "shared_gather", s, sharding);
    push_projections(list, model, framework, s, {"shared_up", "shared_activation", "shared_down"},
                     s.T, static_cast<double>(moe.shared_ffn_hidden) / sharding.tp,
                     moe.branch_norms ? s.kept * s.Ts * s.h : 0,  // else the router's input
                     gather_buffers(s, framework, sharding));
    push_row_exit(list, "shared_reduce", s, sharding);
  }
}

/// Those of Framework::splits_experts_as_mlp, f wide on a rank: their input and their sum are those
/// of the routed experts, to which T·h are added each way. A gate: T logits, saved, and as many
/// weights of rows, before the down projection.
void push_shared_as_mlp(OperatorList& list, const ModelSpec& model, const Framework& framework,
                        const Shapes& s, LayerSharding sharding) {
  const MixtureOfExperts& moe = model.moe;
  if (moe.shared_ffn_hidden == 0) return;
  const double f = static_cast<double>(moe.shared_ffn_hidden) / sharding.tp;
  const double all = s.e * s.T * s.h;
  push_projections(list, model, framework, s, {"shared_up", "shared_activation", "shared_down"},
                   s.T, f, 0, 0);
  list.push(elementwise("shared_sum", all, 3 * all, 0));
  if (!moe.shared_expert_gate) return;
  list.push(gemm("shared_gate", s.T, 1, s.h, s.e * s.T, s.e));
  list.push(elementwise("shared_weights", 2 * s.e * s.T * f, 4 * s.e * s.T * f + 3 * all, 0));
}

/// Routed experts that tensor parallelism splits as it splits a dense MLP
/// (Framework::splits_experts_as_mlp). Of n = T·k rows of a rank, of balanced experts:
///
///   router      T × h by h × E; saved: its logits, which with t > 1 rank 0 sends to all
///   route       logits read and a row's experts, slot and weight written; backward logits read and
///               their gradient written. Saved: 3·4·n bytes of indices and a weight per row,
///               and per row that other ranks send
///   dispatch    n·h read and written; backward the sum of n·h to T·h, and the rows once more for
///               the weights' gradients
///   products    of E experts over n/E rows each: of ep·E/ep where ep ranks send theirs
///   weights     of the rows, before the down projection: n·f read and written, backward two such
///   combine     n·h read, T·h written; backward n·h read and written
///   all-to-all  e·n·h bytes each way, and once more backward; where ep > 1
/// Source: runtime/model/chunk_experts.cpp, chunk_shared_experts.cpp,
/// runtime/backend/operators.def. Checked by: tests/costmodel/operators/own_experts_test.cpp,
/// tests/runtime/training/predicted_memory_test.cpp.
void push_experts_as_mlp(OperatorList& list, const ModelSpec& model, const Framework& framework,
                         const Shapes& s, LayerSharding sharding) {
  using enum CollectiveKind;
  const MixtureOfExperts& moe = model.moe;
  Shapes inner = s;  // of the routed experts
  inner.h = model.expert_hidden();
  const double n = s.T * moe.experts_per_token;
  const double rows = s.e * n * inner.h;
  const double all = s.e * s.T * inner.h;
  const double f = static_cast<double>(moe.expert_ffn_hidden) / sharding.etp;
  const double logits = s.e * s.T * moe.experts;
  push_column_entry(list, "expert_gather", s, sharding);
  if (sharding.tp > 1) {
    list.push(collective("router_logits", broadcast, none, logits, false));
  }
  Operator router = gemm("router", s.T, moe.experts, s.h, logits, s.e);
  router.wide = true;
  list.push(router);
  if (moe.latent_hidden > 0) list.push(gemm("latent_down", s.T, inner.h, s.h, 0, s.e));
  const std::size_t first = list.view().size();
  const double routing = (12 + s.w) * n;
  const double received = sharding.ep > 1 ? s.w * routed_rows(moe, s.T, sharding.ep) : 0;
  list.push(elementwise("top_k", logits + routing, 2 * logits + routing, routing + received));
  list.push(elementwise("permute", 2 * rows, rows + 2 * all + 2 * rows, 0));
  if (sharding.ep > 1) {
    list.push(collective("dispatch", all_to_all, all_to_all, rows, false, Axis::ep));
    list.push(collective("dispatch_again", none, all_to_all, rows, false, Axis::ep));
  }
  push_projections(list, model, framework, inner, {"expert_up", "expert_activation", "expert_down"},
                   n, f, 0, 0, moe.experts);
  list.push(elementwise("expert_weights", 2 * s.e * n * f, 4 * s.e * n * f, 0));
  if (sharding.ep > 1) {
    list.push(collective("combine", all_to_all, all_to_all, rows, false, Axis::ep));
  }
  list.push(elementwise("unpermute", rows + all, 2 * rows, 0));
  for (Operator& op : list.edit().subspan(first)) op.routed = true;
  if (moe.latent_hidden > 0) list.push(gemm("latent_up", s.T, s.h, inner.h, 0, s.e));
  push_shared_as_mlp(list, model, framework, s, sharding);
  push_row_exit(list, "expert_reduce", s, sharding);
}

}  // namespace

void push_experts(OperatorList& list, const ModelSpec& model, const Framework& framework,
                  const Shapes& s, LayerSharding sharding) {
  using enum CollectiveKind;
  if (framework.splits_experts_as_mlp) {
    return push_experts_as_mlp(list, model, framework, s, sharding);
  }
  const MixtureOfExperts& moe = model.moe;
  const double own = s.T / sharding.tp;
  const double rows = own * moe.experts_per_token;
  Shapes inner = s;  // of the routed experts
  inner.h = model.expert_hidden();
  const double bytes = s.e * rows * inner.h;
  const double logits = 4 * own * moe.experts;
  if (moe.branch_norms) push_branch_inputs(list, s);
  // In a parallel block attention keeps that input, unless in fewer bits.
  const bool shared = model.parallel_block && s.kept == s.e;
  Operator router = gemm("router", own, moe.experts, s.h, shared ? 0 : s.e * s.Ts * s.h, s.e);
  router.wide = true;
  list.push(router);
  if (moe.latent_hidden > 0) {  // in 16 bits its input is the router's
    const double kept = s.kept == s.e ? 0 : s.kept * own * s.h;
    list.push(gemm("latent_down", own, inner.h, s.h, kept, s.e));
  }
  const std::size_t first = list.view().size();
  // Kept: fp32 logits and probabilities and the map of chosen experts; for each row its
  // probability before and after the permutation, in fp32.
  list.push(elementwise("top_k", 3 * logits, 2 * logits, 3 * logits));
  list.push(elementwise("permute", 2 * bytes, 2 * bytes, 8 * rows));
  // Allgather collects all tokens of the group and keeps those of the own experts; others send
  // each token to its experts.
  const bool gathers = sharding.ep > 1 && sharding.dispatcher == Dispatcher::allgather;
  const double gathered = s.e * own * inner.h * sharding.ep;
  const double spread = (gathers ? gathered : bytes) * sharding.etp;
  if (gathers) {
    list.push(collective("dispatch", all_gather, reduce_scatter, gathered, false, Axis::ep));
  } else if (sharding.ep > 1) {
    list.push(collective("dispatch", all_to_all, all_to_all, bytes, false, Axis::ep));
  }
  if (sharding.etp > 1) {
    list.push(collective("expert_gather", all_gather, reduce_scatter, spread, false, Axis::etp));
  }
  // A grouped GEMM: as many products as local experts, each over its share of the rows. The tiles
  // of all products fill the device together; ragged edges cost a little more.
  const double experts = static_cast<double>(moe.experts) / sharding.ep;
  const double local = padded_rows(rows * sharding.etp, experts, s);
  const double f = static_cast<double>(moe.expert_ffn_hidden) / sharding.etp;
  push_projections(list, model, framework, inner, {"expert_up", "expert_activation", "expert_down"},
                   local, f, s.kept * local * inner.h, 0, experts);
  if (framework.fused_experts) {  // the activation is part of the product before it
    for (Operator& op : list.edit()) {
      if (op.name != "expert_activation") continue;
      op.forward_traffic = op.backward_traffic = Bytes{};
      op.forward_kernels = op.backward_kernels = 0;
    }
  } else if (moe.expert_bias && framework.product_per_expert) {
    // In fp32, operation by operation: product with the probability, sum, concatenation, cast;
    // backward the same and the sums for both factors. Source: Megatron-LM core_v0.16.1,
    // megatron/core/transformer/moe/experts.py:609, _apply_bias.
    list.push(elementwise("expert_bias", 28 * local * inner.h, 36 * local * inner.h, 0));
    push_clamp(list, 2 * s.e * local * f);
  }
  if (sharding.etp > 1) {
    list.push(collective("expert_reduce", reduce_scatter, all_gather, spread, false, Axis::etp));
  }
  if (gathers) {
    list.push(collective("combine", reduce_scatter, all_gather, gathered, false, Axis::ep));
  } else if (sharding.ep > 1) {
    list.push(collective("combine", all_to_all, all_to_all, bytes, false, Axis::ep));
  }
  list.push(
      elementwise("unpermute", 2 * bytes, 2 * bytes, framework.saves_expert_output ? bytes : 0.0));
  for (Operator& op : list.edit().subspan(first)) op.routed = true;
  if (s.experts_by_operations) {
    run_experts_by_operations(list, first, moe, s, own, local, f, inner.h);
  }
  if (moe.latent_hidden > 0) {
    list.push(gemm("latent_up", own, s.h, inner.h, s.kept * own * inner.h, s.e));
  }
  push_shared_experts(list, model, framework, s, sharding);
  if (moe.branch_norms) push_branch_outputs(list, s);
}

}  // namespace echelon::operators
