// Gated short convolutions: projections, a gate before and one behind a convolution per channel.
#include "costmodel/operators/build.hpp"

namespace echelon::operators {

/// Kernels and tensors of transformers' module, of `all` bytes of a hidden state:
///
///   conv_gate    the product of input and first gate 3·all; backward 5·all, and 6·all to put the
///                gradients of both gates and of the input together; keeps these three, the
///                projection's result, 3·all
///   short_conv   2·all, backward 3·all; keeps its input
///   conv_output  the product with the second gate 3·all, and 2·all for a copy in the order of
///                tokens; backward 5·all and the copy; keeps the convolution's output
///
/// Source: transformers 5.24, models/lfm2/modeling_lfm2.py, Lfm2ShortConv. Assumes the convolution
/// of causal_conv1d, one kernel forward and two backward. Checked by:
/// tests/costmodel/operators/short_convolution_test.cpp.
void push_short_convolution(OperatorList& list, const ModelSpec& model, const Shapes& s) {
  const double all = s.e * s.T * s.h;
  list.push(gemm("conv_in", s.T, 3 * s.h, s.h, s.kept * s.T * s.h, s.e));
  Operator gate = elementwise("conv_gate", 3 * all, 11 * all, 3 * all);
  gate.backward_kernels = 3;
  list.push(gate);
  Operator convolution = elementwise("short_conv", 2 * all, 3 * all, all);
  convolution.forward = Flops{2.0 * model.conv.kernel * s.T * s.h};
  convolution.backward = 2 * convolution.forward;
  convolution.backward_kernels = 2;
  list.push(convolution);
  Operator output = elementwise("conv_output", 5 * all, 7 * all, all);
  output.forward_kernels = 2;
  output.backward_kernels = 3;
  list.push(output);
  list.push(gemm("conv_out", s.T, s.h, s.h, s.kept * s.T * s.h, s.e));
}

}  // namespace echelon::operators
