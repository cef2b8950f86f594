#include "costmodel/time/operator_times.hpp"

namespace echelon {
namespace {

/// A GEMM of m rows in P slices, each of which reads the weights again and, of the gradient of
/// these, reads and writes the sum: P·t(m / P). `time`: of some rows, with their traffic.
/// Source: runtime/model/chunk_ends.cpp, loss_backward. Checked by: stage_terms_test.cpp.
template <class Time>
Seconds in_passes(const Operator& op, const Time& time) {
  const double rows = op.m / op.passes;
  const auto numbers = [&](double m) { return m * op.k + op.k * op.n + m * op.n; };
  return op.passes * time(rows, op.forward_traffic * (numbers(rows) / numbers(op.m)));
}

/// A weight that is kept in fewer bits is written in 16 before each product that reads it.
/// Checked by: tests/costmodel/operators/quantized_weights_test.cpp.
Seconds unpacked(const Operator& op, const OperatorContext& c) {
  return op.unpacking_kernels > 0 ? elementwise_time(op.unpacking, op.unpacking_kernels, c.rates)
                                  : Seconds{};
}

}  // namespace

/// The weight gradient is accumulated over microbatches. Its GEMM may do that: 2·w bytes per
/// parameter more of its traffic. Where the backward produces a gradient of its own, one more
/// kernel adds it, which takes the same for every size of microbatch:
///
///   g + 2·w     to an fp32 accumulator
///   3·g         to the gradient of the microbatches before
///
///   g, w        bytes of a gradient as the backward produces it, and of the accumulator
///
/// A product whose input takes no gradient makes that of the weights alone; it casts the result's
/// gradient all the same. Frozen weights get none; those in fp8 may be transposed for the input's.
/// Source: torch/csrc/autograd/functions/accumulate_grad.h; DeepSpeed edaa7221,
/// deepspeed/runtime/bf16_optimizer.py, update_hp_grads; nanotron
/// src/nanotron/optim/gradient_accumulator.py. Assumes that nothing runs next to that kernel.
/// Checked by: tests/costmodel/time/stage_terms_test.cpp.
BackwardTimes backward_gemm(const Operator& op, const OperatorContext& c) {
  const PrecisionRecipe& precision = c.job.precision;
  const double weights = op.has_weight ? op.groups * op.n * op.k : 0.0;
  const DeviceRates& rates = c.gemm_rates(op);
  Seconds input = c.cast(op, op.groups * op.m * op.n);
  if (op.input_gradient) {
    input += unpacked(op, c);
    input += in_passes(op, [&](double m, Bytes traffic) {
      return gemm_time(m, op.k, op.n, traffic, rates, op.groups);
    });
  }
  if (!op.weight_gradient) {
    if (c.job.transposes_weights() && c.in_fp8(op)) {
      input += elementwise_time(Bytes{2 * weights}, 1, c.rates);
    }
    return {input, Seconds{}};
  }
  const auto weight = [&](Bytes accumulated) {
    return in_passes(op, [&](double m, Bytes traffic) {
      return gemm_time(op.k, op.n, m, traffic + accumulated, rates, op.groups);
    });
  };
  const double main = precision.main_gradient;
  if (weights > 0 && precision.gradient > 0) {
    const double added = main > 0 ? precision.gradient + 2 * main : 3 * precision.gradient;
    return {input, weight(Bytes{}) + elementwise_time(Bytes{added * weights}, 1, c.rates)};
  }
  return {input, weight(Bytes{2 * main * weights})};
}

Seconds forward_time(const Operator& op, const OperatorContext& c) {
  switch (op.kind) {
    case OperatorKind::gemm:
      return in_passes(op,
                       [&](double m, Bytes traffic) {
                         return gemm_time(m, op.n, op.k, traffic, c.gemm_rates(op), op.groups);
                       }) +
             c.cast(op, op.groups * op.m * op.k) + unpacked(op, c);
    case OperatorKind::attention:
      return attention_time(op.forward, op.forward_traffic, op.span, op.forward_kernels,
                            c.rates.attention_forward, c.rates);
    case OperatorKind::elementwise: return c.pointwise(op, op.forward_traffic, op.forward_kernels);
    case OperatorKind::collective: break;
  }
  return Seconds{};
}

}  // namespace echelon
