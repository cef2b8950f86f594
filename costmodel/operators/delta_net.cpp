// Gated delta nets and Kimi delta attention: projections, short convolution, chunked recurrence,
// gated norm.
#include "costmodel/operators/build.hpp"

namespace echelon::operators {
namespace {

/// Tokens of a chunk. Source: fla-org/flash-linear-attention 0315a70e,
/// fla/ops/gated_delta_rule/chunk.py: chunk_size=64.
constexpr double kChunk = 64;

/// The recurrence over a state of d_k × d_v per value head, computed in chunks of C tokens.
/// Products per token and head, each counted whole, as its kernel computes it:
///
///   inside a chunk    k·kᵀ, T·k, q·kᵀ: 3 of 2·C·d_k;  T·v, (q·kᵀ)·v: 2 of 2·C·d_v;
///                     T, the inverse of a unit triangular C × C: 2·C²/3
///   with the state    k·S, q·S, kᵀ·v into S: 3 of 2·d_k·d_v
///   backward          two products per product; T·k, T·v, k·S and kᵀ·v are repeated first
///
///   HBM elements      norms of q and k 4·d_k; k·kᵀ d_k + 2·C; T 3·C; T·k and T·v 2·(d_k + d_v) +
///   C;
///                     states 2·(d_k + d_v) + d_k·d_v/C; outputs 2·(d_k + d_v) + d_k·d_v/C;
///                     backward: twice these, and the repeated kernels' once more
///   saved             q and k after their norm, in every value head; v; T; decay and write
///   strength
///                     in fp32; one 32-bit factor per norm
///   transient         the state of every chunk (S), T·k, T·v
///
/// Source: the kernels that chunk.py (above) calls and what it saves for the backward;
/// transformers, torch_chunk_gated_delta_rule in models/qwen3_next/modeling_qwen3_next.py, for the
/// products. Assumes the rate of fused attention: no rate of these kernels was measured, so times
/// of models with delta nets are extrapolated. Checked by:
/// tests/costmodel/operators/delta_net_test.cpp.
Operator recurrence(const Shapes& s, double heads, double dk, double dv) {
  const double state = dk * dv / kChunk;
  const double rows = s.T * heads;
  const double inside = 2 * kChunk * (3 * dk + 2 * dv) + 2 * kChunk * kChunk / 3;
  const double repeated = 2 * kChunk * (dk + dv) + 4 * dk * dv;
  const double again = 4 * (dk + dv) + kChunk + state;
  const double moved = 4 * dk + dk + 2 * kChunk + 3 * kChunk + again + 2 * (dk + dv) + state;
  Operator op;
  op.name = "delta_rule";
  op.kind = OperatorKind::attention;
  op.forward = Flops{rows * (inside + 6 * dk * dv)};
  op.backward = 2 * op.forward + Flops{rows * repeated};
  op.forward_traffic = Bytes{s.e * rows * moved};
  op.backward_traffic = Bytes{s.e * rows * (2 * moved + again)};
  op.span = s.sequence;
  op.forward_kernels = 8;  // two norms, sum of decays, k·kᵀ, inverse, T·k with T·v, states, outputs
  op.backward_kernels = 10;  // the repeated two, four gradients, two norms, two sums
  op.saved = Bytes{rows * (s.e * (2 * dk + dv + kChunk) + 2 * s.w + 2 * s.w)};
  op.transient = Bytes{s.e * rows * (state + dk + dv)};
  return op;
}

/// The same of Kimi delta attention, whose decays are fp32 numbers of every channel of a key. The
/// products are those above: decays multiply their operands.
///
///   HBM bytes         24·d_k more forward: decays read and written by their sum in a chunk, and
///                     read by k·kᵀ, T·k, the states and the outputs; backward twice and, where
///                     repeated, 12·d_k
///   saved             decays and their sums, of both products inside a chunk (q·kᵀ and T) C each
///   transient         T·k, q and k with their decays, T·v, its change of the state and the
///                     gradient of that; the state of every chunk and its gradient; fp32
///                     gradients of q, k and decays twice, by the state and inside the chunk
///                     (chunk_intra.py); of both products 4·C
///
/// Source: fla-org/flash-linear-attention bc3b101d, fla/ops/kda/chunk.py (ChunkKDAFunction, without
/// use_gate_in_kernel), chunk_fwd.py, chunk_bwd.py and chunk_intra.py. Checked by:
/// tests/costmodel/operators/delta_net_test.cpp.
Operator channel_recurrence(const Shapes& s, double heads, double dk, double dv) {
  Operator op = recurrence(s, heads, dk, dv);
  const double rows = s.T * heads;
  op.forward_traffic += Bytes{rows * 24 * dk};
  op.backward_traffic += Bytes{rows * (2 * 24 + 12) * dk};
  op.forward_kernels += 1;
  op.backward_kernels += 4;
  op.saved += Bytes{rows * (8 * dk + s.e * kChunk)};
  op.transient += Bytes{rows * (s.e * (dk * dv / kChunk + 2 * dk + 2 * dv) + 24 * dk + 8 * kChunk)};
  return op;
}

/// Decays as transformers' KimiLinearForgetGate makes them, operation by operation in fp32: a bias,
/// softplus with its bound, a factor per head: about 54 bytes read or written per decay forward, 60
/// backward; kept are the exponential, one more, a mask, and the result. Source: transformers 5.24,
/// models/kimi_linear/modeling_kimi_linear.py.
Operator channel_decays(const Shapes& s, double decays) {
  Operator op = elementwise("delta_decay", 54 * s.T * decays, 60 * s.T * decays, 13 * s.T * decays);
  op.forward_kernels = 8;
  op.backward_kernels = 9;
  return op;
}

}  // namespace

/// Source of shapes and order: transformers (above) and Megatron-LM 00caa53a,
/// megatron/core/ssm/gated_delta_net.py, which splits heads and channels over tp. Over cp an
/// all-to-all brings the whole sequence of 1/cp of the heads to a rank; copies put the heads and
/// then the tokens, which attention's load balance has out of order, in their order, and back.
/// Source: Megatron-LM d98e8a64, megatron/core/ssm/gated_delta_net/common.py, a2a_cp_to_hp and
/// a2a_hp_to_cp. Checked by: tests/costmodel/operators/delta_net_test.cpp.
void push_delta_net(OperatorList& list, const ModelSpec& model, const Shapes& s,
                    LayerSharding sharding) {
  const GatedDeltaNet& delta = model.delta;
  const double tp = sharding.tp;
  const double heads = delta.value_heads / tp;
  const double channels = static_cast<double>(delta.conv_width()) / tp;
  const double values = static_cast<double>(delta.value_width()) / tp;
  push_column_entry(list, "delta_gather", s, sharding);
  list.push(gemm("delta_in", s.T, static_cast<double>(delta.input_width()) / tp, s.h,
                 s.kept * s.Ts * s.h, s.e));
  const double projected = s.e * s.T * static_cast<double>(delta.input_width()) / tp;
  const bool split = sharding.cp > 1;
  if (split) list.push(copy("cp_order_heads", projected));
  push_heads_exchange(list, "cp_scatter_heads", projected, sharding, true);
  if (split) list.push(copy("cp_order_tokens", projected));
  const double convolved = s.e * s.T * channels;
  Operator convolution = elementwise("delta_conv", 2 * convolved, 3 * convolved, convolved);
  convolution.forward = Flops{2 * delta.conv_kernel * s.T * channels};
  convolution.backward = 2 * convolution.forward;
  list.push(convolution);
  if (delta.channel_decay()) {
    const double rank = delta.gate_rank;
    list.push(gemm("delta_gates", s.T, static_cast<double>(delta.gate_width()) / tp, rank,
                   s.kept * s.T * 2 * rank, s.e));
    list.push(channel_decays(s, static_cast<double>(delta.decays()) / tp));
    list.push(channel_recurrence(s, heads, delta.key_head_dim, delta.value_head_dim));
  } else {
    list.push(recurrence(s, heads, delta.key_head_dim, delta.value_head_dim));
  }
  const double output = s.e * s.T * values;  // of the recurrence, of the gate, of the norm
  list.push(elementwise("delta_norm", 3 * output, 5 * output, 2 * output));
  if (split) list.push(copy("cp_order_tokens", output));
  push_heads_exchange(list, "cp_gather_heads", output, sharding, true);
  list.push(gemm("delta_out", s.T, s.h, values, s.kept * s.T * values, s.e));
  push_row_exit(list, "delta_reduce", s, sharding);
}

}  // namespace echelon::operators
