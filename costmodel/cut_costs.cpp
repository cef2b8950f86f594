// What one cut (tp, microbatch, sequence parallel) costs per layer: times and bytes, summed over
// the operator lists.
#include <algorithm>

#include "costmodel/collectives.hpp"
#include "costmodel/price.hpp"
#include "costmodel/rates.hpp"

namespace echelon {
namespace {

/// Everything the sums below need besides the operators.
struct Context {
  DeviceRates rates;
  GroupLinks tp;
  const TrainingJob& job;
  const Calibration& calibration;
  const Stack& stack;
};

/// The two backward products of a GEMM: gradient of the input and of the weight.
struct BackwardTimes {
  Seconds input;
  Seconds weight;
};

BackwardTimes backward_gemm(const Operator& op, const Context& c) {
  const PrecisionRecipe& precision = c.job.precision;
  const double weights = op.attention_core ? 0.0 : op.n * op.k;
  // The weight gradient is accumulated: either by the GEMM itself into the main gradients, or by an
  // extra pass that adds the low-precision gradient to them.
  const double accumulate = precision.gradient > 0 && precision.main_gradient > 0
                                ? precision.gradient + 2 * precision.main_gradient
                                : 2 * std::max(precision.main_gradient, precision.gradient);
  return {gemm_time(op.m, op.k, op.n, op.forward_traffic, c.rates),
          gemm_time(op.k, op.n, op.m, op.forward_traffic + Bytes{accumulate * weights}, c.rates)};
}

Seconds forward_time(const Operator& op, const Context& c) {
  switch (op.kind) {
    case OperatorKind::gemm:
      return gemm_time(op.m, op.n, op.k, op.forward_traffic, c.rates);
    case OperatorKind::attention:
      return attention_time(op.forward, op.forward_traffic, c.job.sequence,
                            c.rates.attention_forward, c.rates);
    case OperatorKind::elementwise:
      return elementwise_time(op.forward_traffic, op.forward_kernels, c.rates);
    case OperatorKind::collective: break;
  }
  return Seconds{};
}

Seconds collective_time(CollectiveKind kind, Bytes payload, const GroupLinks& links) {
  switch (kind) {
    case CollectiveKind::none: return Seconds{};
    case CollectiveKind::all_reduce: return all_reduce(payload, links);
    case CollectiveKind::all_gather: return all_gather(payload, links);
    case CollectiveKind::reduce_scatter: return reduce_scatter(payload, links);
  }
  return Seconds{};
}

/// Part of `comm` that `cover` seconds of compute do not hide.
Seconds uncovered(Seconds comm, Seconds cover, double share) {
  return comm - std::min(comm, cover * share);
}

struct Sums {
  CutCosts::Pass forward;
  CutCosts::Pass backward;
  Seconds selective;
};

/// One walk over a list. A column-parallel entry's backward collectives run beside the products of
/// the GEMM that follows it: the re-gather beside the input gradient, the reduction of the input's
/// gradient beside the weight gradient (Megatron-Core tensor_parallel/layers.py).
Sums sum_over(const OperatorList& list, const Context& c, bool overlap_tp) {
  Sums sums;
  const auto ops = list.view();
  Seconds pending_reduce;
  Seconds pending_gather;
  const double forward_share = overlap_tp ? 1 - c.calibration.tp_overlap : 1.0;
  const double cover = c.stack.overlaps_tp_backward ? c.calibration.tp_overlap : 0.0;
  for (const Operator& op : ops) {
    if (op.kind == OperatorKind::collective) {
      sums.forward.exposed +=
          forward_share * collective_time(op.forward_collective, op.payload, c.tp);
      const Seconds back = collective_time(op.backward_collective, op.payload, c.tp);
      if (!op.backward_overlaps) {
        sums.backward.exposed += forward_share * back;
      } else if (op.backward_collective == CollectiveKind::all_gather) {
        pending_gather += back;
      } else {
        pending_reduce += back;
      }
      continue;
    }
    const Seconds forward = forward_time(op, c);
    sums.forward.device += forward;
    if (op.attention_core) sums.selective += forward;
    switch (op.kind) {
      case OperatorKind::gemm: {
        const BackwardTimes back = backward_gemm(op, c);
        sums.backward.device += back.input + back.weight;
        sums.backward.exposed += uncovered(pending_gather, back.input, cover) +
                                 uncovered(pending_reduce, back.weight, cover);
        pending_gather = pending_reduce = Seconds{};
        break;
      }
      case OperatorKind::attention:
        sums.backward.device += attention_time(op.backward, op.backward_traffic, c.job.sequence,
                                               c.rates.attention_backward, c.rates);
        break;
      default:
        sums.backward.device += elementwise_time(op.backward_traffic, op.backward_kernels, c.rates);
    }
  }
  return sums;
}

}  // namespace

CutCosts Pricer::cut_costs(Cut cut) const {
  const Context context{device_rates(cluster_.gpu(), calibration_, job_.precision.compute),
                        apply(cluster_.group(cut.tp, 1), calibration_), job_, calibration_, stack_};
  CutCosts costs;
  costs.cut = cut;

  const OperatorList layer = layer_operators(model_, job_, stack_, cut);
  const Sums layer_sums = sum_over(layer, context, cut.overlap_tp);
  costs.layer_forward = layer_sums.forward;
  costs.layer_backward = layer_sums.backward;
  costs.selective = layer_sums.selective;
  costs.layer_saved = layer.saved(Recompute::none);
  costs.layer_saved_selective = layer.saved(Recompute::selective);
  costs.layer_transient = layer.transient();

  const OperatorList embedding = embedding_operators(model_, job_, stack_, cut);
  const Sums embedding_sums = sum_over(embedding, context, cut.overlap_tp);
  costs.embedding_forward = embedding_sums.forward;
  costs.embedding_backward = embedding_sums.backward;
  costs.embedding_saved = embedding.saved(Recompute::none);

  const OperatorList head = head_operators(model_, job_, stack_, cut);
  const Sums head_sums = sum_over(head, context, cut.overlap_tp);
  costs.head_forward = head_sums.forward;
  costs.head_backward = head_sums.backward;
  costs.head_saved = head.saved(Recompute::none);

  const double width = job_.precision.compute == Dtype::fp32 ? 4.0 : 2.0;
  const double tokens = static_cast<double>(cut.microbatch) * job_.sequence / cut.cp /
                        (cut.sequence_parallel ? cut.tp : 1);
  costs.boundary = Bytes{width * tokens * model_.hidden};
  costs.layer_input = costs.boundary;
  costs.layer_parameters = layer_parameters_per_rank(model_, cut.tp);
  costs.embedding_parameters = embedding_parameters_per_rank(model_, stack_, cut.tp);
  costs.head_parameters = head_parameters_per_rank(model_, stack_, cut.tp, false);
  costs.head_parameters_last = head_parameters_per_rank(model_, stack_, cut.tp, true);
  return costs;
}

}  // namespace echelon
