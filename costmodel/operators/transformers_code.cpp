// Modules of transformers that run operation by operation (LayerCode::transformers).
//
// Each operation reads its inputs from HBM and writes its result there. Counted of transformers
// 5.24 on torch 2.15 by tests/external/count_transformers.py, e bytes per element and w of the
// statistics' format. Rotation is not here: what it moves besides its result, 93 bytes per token
// and unit of the hidden width of Llama 2 7B, is what Calibration::attention_overhead has learned,
// 3.6 times the 26 of attention's kernels, 93.
// Checked by: tests/costmodel/operators/transformers_code_test.cpp.
#include "costmodel/operators/build.hpp"

namespace echelon::operators {

/// RMSNorm in fp32, forward (4·e + 7·w): cast, square, mean, sum with epsilon, root, product, cast
/// back, product with the gain. Backward (8·e + 19·w): two products and a sum of the gain, a cast,
/// ten operations of the root and the square, and their sum, a cast back.
/// Source: transformers, models/llama/modeling_llama.py, LlamaRMSNorm.
Operator norm_by_operations(std::string_view name, double elements, const Shapes& s, double saved) {
  Operator op =
      elementwise(name, (4 * s.e + 7 * s.w) * elements, (8 * s.e + 19 * s.w) * elements, saved);
  op.forward_kernels = 8;
  op.backward_kernels = 16;
  return op;
}

Operator as_modules(Operator product, int count) {
  product.forward_kernels *= count;
  product.backward_kernels *= count;
  return product;
}

/// Activation, product; backward two products and the activation's.
/// Source: transformers, models/llama/modeling_llama.py, LlamaMLP.
Operator gate_by_operations(std::string_view name, double rows, double f, const Shapes& s) {
  Operator op = elementwise(name, 5 * s.e * rows * f, 9 * s.e * rows * f, 0);
  op.forward_kernels = 2;
  op.backward_kernels = 3;
  return op;
}

/// Of R = rows sent, R' computed here, each f wide between the products, h before and behind them,
/// and T tokens of the rank:
///
///   permute     forward as fused; backward the sums of T·h are cleared and each row's gradient
///               added: 3·R·h + T·h
///   activation  forward 5·R'·f; backward 9, and the halves put together, 4
///   unpermute   forward rows weighted 2, put in order 2, summed 1, and T·h; backward spread 1 and
///               T·h, cleared and scattered 4, two products 5 and a sum 1: 11·R·h + T·h
///   biases      of GPT-OSS, gathered by row and added, forward 8·R'·f + 4·R'·h, backward
///               2·R'·f + R'·h; its bounded gate of interleaved columns 16·R'·f and 45·R'·f
///
/// all in units of e. The gradient of a gathered bias adds the rows of an expert one after the
/// other (torch, aten/src/ATen/native/cuda/Indexing.cu, indexing_backward_kernel), which has no
/// price. Source: transformers, integrations/moe.py, grouped_mm_experts_forward;
/// models/gpt_oss/modeling_gpt_oss.py, _apply_gate.
void run_experts_by_operations(OperatorList& list, std::size_t first, const MixtureOfExperts& moe,
                               const Shapes& s, double own, double local, double f, double h) {
  const double sent = s.e * own * moe.experts_per_token * h;
  const double tokens = s.e * own * h;
  const double inner = s.e * local * f;
  const double outer = s.e * local * h;
  const auto set = [](Operator& op, double forward, int forward_kernels, double backward,
                      int backward_kernels) {
    op.forward_traffic = Bytes{forward};
    op.backward_traffic = Bytes{backward};
    op.forward_kernels = forward_kernels;
    op.backward_kernels = backward_kernels;
  };
  for (Operator& op : list.edit().subspan(first)) {
    if (op.name == "permute") set(op, 2 * sent, 7, 3 * sent + tokens, 4);
    if (op.name == "unpermute") set(op, 5 * sent + tokens, 5, 11 * sent + tokens, 6);
    if (op.name != "expert_activation") continue;
    if (moe.expert_bias) {
      set(op, 24 * inner + 4 * outer, 11, 47 * inner + outer, 22);
    } else {
      set(op, 5 * inner, 2, 13 * inner, 4);
    }
  }
}

}  // namespace echelon::operators
