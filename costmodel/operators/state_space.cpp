// State spaces (Mamba-2): projections, short convolution, chunked scan, gated norm.
#include <algorithm>

#include "costmodel/operators/build.hpp"

namespace echelon::operators {
namespace {

/// Tokens of a chunk. Source: Megatron-LM d98e8a64, megatron/core/ssm/mamba_mixer.py.
constexpr double kScanChunk = 128;

/// Of the scan on a rank, per token of its own; with cp a rank has as many tokens times 1/cp of the
/// heads, and at least one group.
struct ScanWidths {
  double inputs;  ///< w
  double groups;  ///< g
};

/// Convolution and scan in one autograd function, which keeps the projections, repeats the
/// convolution and the states in the backward, and applies the output gate. With w the width of the
/// inputs, b that of B (and of C), c of the convolution, n of the state, C tokens of a chunk, and
/// s = w·n/C elements of states, per token:
///
///   FLOPs             C·Bᵀ 2·C·b; its product with the inputs 2·C·w; states 2·n·w; their outputs
///                     2·n·w; convolution 2·k·c
///   backward          states and C·Bᵀ again; of states, inputs, B and C 2·n·w each; of inputs and
///                     of C·Bᵀ 2·C·w each; of B and C through C·Bᵀ 4·C·b; convolution three times
///   HBM elements      convolution 2·c; states w + b + 2·s; passing them on 3·s; C·Bᵀ 2·b + 2·C·g;
///                     outputs 2·C·g + 4·w + b + s (g groups; states and C·Bᵀ first in fp32)
///   … backward        convolution 5·c; the repeated w + 3·b + 2·C·g + 5·s; gate 6·w; gradients of
///                     states w + b + 5·s, of inputs 3·w + b + 2·C·g + s, of B and C 4·w + 7·b +
///                     2·s, of C·Bᵀ and through it 8·b + 6·C·g
///   saved             projections, and the output before its gate
///   transient         convolution, gradients of all projections, states and their gradients,
///                     C·Bᵀ and its gradient
///
/// Source: state-spaces/mamba e9594ce, mamba_ssm/ops/triton/ssd_combined.py,
/// MambaSplitConv1dScanCombinedFn, and the kernels that it calls. Assumes the rate of fused
/// attention: no rate of these kernels was measured, so times of models with state spaces are
/// extrapolated. Checked by: tests/costmodel/operators/state_space_test.cpp.
Operator scan(const StateSpace& ssm, const Shapes& s, const ScanWidths& widths, double tp) {
  const double w = widths.inputs;
  const double g = widths.groups;
  const double n = ssm.state_dim;
  const double b = g * n;
  const double c = w + 2 * b;
  const double states = w * n / kScanChunk;
  const double products = kScanChunk * g;
  const double convolution = 2 * ssm.conv_kernel * c;
  Operator op;
  op.name = "ssm_scan";
  op.kind = OperatorKind::attention;
  op.forward = Flops{s.T * (2 * kScanChunk * b + 2 * kScanChunk * w + 4 * n * w + convolution)};
  op.backward = Flops{s.T * (2 * n * w + 2 * kScanChunk * b + 8 * n * w + 4 * kScanChunk * w +
                             4 * kScanChunk * b + 3 * convolution)};
  op.forward_traffic = Bytes{s.e * s.T * (2 * c + 5 * w + 4 * b + 4 * products + 6 * states)};
  op.backward_traffic = Bytes{s.e * s.T * (5 * c + 15 * w + 20 * b + 10 * products + 13 * states)};
  op.span = s.sequence;
  op.forward_kernels = 6;    // convolution, sums of steps, states, passing, C·Bᵀ, outputs
  op.backward_kernels = 16;  // five of these, gate, seven gradients, sums, of steps, convolution
  const double projected = c + w + ssm.heads / tp;
  op.saved = Bytes{s.e * s.T * (projected + w)};
  op.transient = Bytes{s.e * s.T * (projected + 2 * c + 3 * states + 4 * products)};
  return op;
}

}  // namespace

/// Source of shapes and order: Megatron-LM d98e8a64, megatron/core/ssm/mamba_mixer.py, which splits
/// heads, groups and channels over tp. Over cp all-to-alls of gate, inputs, B, C and steps, one
/// each, bring the whole sequence of 1/cp of the heads to a rank, with their groups; one copy joins
/// them, one puts the tokens in their order, and one back. Source: the same,
/// megatron/core/ssm/mamba_context_parallel.py, pre_conv_ssm and post_conv_ssm. Checked by:
/// tests/costmodel/operators/state_space_test.cpp.
void push_state_space(OperatorList& list, const ModelSpec& model, const Shapes& s,
                      LayerSharding sharding) {
  const StateSpace& ssm = model.ssm;
  const double tp = sharding.tp;
  const double width = static_cast<double>(ssm.width()) / tp;
  push_column_entry(list, "ssm_gather", s, sharding);
  list.push(gemm("ssm_in", s.T, static_cast<double>(ssm.input_width()) / tp, s.h,
                 s.kept * s.Ts * s.h, s.e));
  const ScanWidths widths{width, std::max(ssm.groups / tp, static_cast<double>(sharding.cp))};
  const double output = s.e * s.T * width;
  const bool split = sharding.cp > 1;
  if (split) {
    const double group = s.e * s.T * widths.groups * ssm.state_dim;
    const double steps = s.e * s.T * ssm.heads / tp;
    for (const double part : {output, output, group, group, steps}) {
      push_heads_exchange(list, "cp_scatter_heads", part, sharding, true);
    }
    const double all = 2 * output + 2 * group + steps;
    list.push(copy("cp_join_heads", all));
    list.push(copy("cp_order_tokens", all));
  }
  list.push(scan(ssm, s, widths, tp));
  if (split) {
    list.push(copy("cp_order_tokens", output));
    push_heads_exchange(list, "cp_gather_heads", output, sharding, true);
  }
  if (ssm.gated_norm) list.push(elementwise("ssm_norm", 2 * output, 3 * output, output));
  list.push(gemm("ssm_out", s.T, s.h, width, s.kept * s.T * width, s.e));
  push_row_exit(list, "ssm_reduce", s, sharding);
}

}  // namespace echelon::operators
