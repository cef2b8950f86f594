// What one sharding (tp, microbatch, sequence parallel) costs per layer: times and bytes, summed
// over the operator lists.
#include <algorithm>
#include <cmath>
#include <utility>

#include "costmodel/collectives/collectives.hpp"
#include "costmodel/collectives/expert_exchange.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/rates.hpp"

namespace echelon {
namespace {

/// Everything the sums below need besides the operators.
struct Context {
  DeviceRates rates;  ///< GEMMs in the job's format
  DeviceRates wide;   ///< GEMMs in 16 bits
  AxisArray<GroupLinks, kLayerAxes> links;
  const LayerSharding& sharding;
  const MixtureOfExperts& moe;
  double sms;
  const TrainingJob& job;
  const Calibration& calibration;
  const Framework& framework;

  [[nodiscard]] bool in_fp8(const Operator& op) const {
    return job.precision.compute == Dtype::fp8 && !op.wide;
  }
  [[nodiscard]] const DeviceRates& gemm_rates(const Operator& op) const {
    return in_fp8(op) ? rates : wide;
  }
  /// An fp8 GEMM's input is read in 16 bits and written in 8, once as it is and once transposed,
  /// and read once more where its scale depends on it. Source: TransformerEngine's cast-transpose
  /// kernels; bytes of each recipe: core/plan/precision.cpp.
  [[nodiscard]] Seconds cast(const Operator& op, double elements) const {
    return in_fp8(op) ? elementwise_time(Bytes{job.precision.cast * elements}, 1, rates)
                      : Seconds{};
  }
  /// Kernels of routed experts, in units of what their shapes say.
  [[nodiscard]] double slower(const Operator& op) const {
    return op.routed ? 1 / calibration.moe_speed_factor : 1.0;
  }
  /// Share of the bytes that dispatch, or the backward of combine, sends.
  [[nodiscard]] double dispatched_width() const {
    constexpr double kScaled = (1 + 4.0 / 128) / 2;  // fp8 with a scale per 128 values
    return framework.fp8_dispatch && job.precision.compute == Dtype::fp8 ? kScaled : 1.0;
  }
  [[nodiscard]] Seconds collective(const Operator& op, CollectiveKind kind, bool backward) const {
    const GroupLinks& group = links[op.axis];
    if (op.axis != Axis::ep || kind != CollectiveKind::all_to_all) {
      return collective_time(kind, op.payload, group);
    }
    const bool to_experts = (op.name == "dispatch") != backward;
    return expert_exchange(sharding.dispatcher, moe, op.payload,
                           to_experts ? dispatched_width() : 1.0, group);
  }
  [[nodiscard]] Seconds pointwise(Bytes traffic, int kernels) const {
    return elementwise_time(framework.pointwise_passes * traffic, kernels, rates);
  }
};

/// The two backward products of a GEMM: gradient of the input and of the weight.
struct BackwardTimes {
  Seconds input;
  Seconds weight;
};

/// The weight gradient is accumulated over microbatches. Its GEMM may do that: 2·w bytes per
/// parameter more of its traffic. Where the backward produces a gradient of its own, one more
/// kernel adds it, which takes the same for every size of microbatch:
///
///   g + 2·w     to an fp32 accumulator
///   3·g         to the gradient of the microbatches before
///
///   g, w        bytes of a gradient as the backward produces it, and of the accumulator
///
/// Source: torch/csrc/autograd/functions/accumulate_grad.h; DeepSpeed edaa7221,
/// deepspeed/runtime/bf16_optimizer.py, update_hp_grads; nanotron
/// src/nanotron/optim/gradient_accumulator.py. Assumes that nothing runs next to that kernel.
/// Checked by: tests/costmodel/time/stage_terms_test.cpp.
BackwardTimes backward_gemm(const Operator& op, const Context& c) {
  const PrecisionRecipe& precision = c.job.precision;
  const double weights = op.attention_core ? 0.0 : op.groups * op.n * op.k;
  const DeviceRates& rates = c.gemm_rates(op);
  const Seconds input = gemm_time(op.m, op.k, op.n, op.forward_traffic, rates, op.groups) +
                        c.cast(op, op.groups * op.m * op.n);
  const auto weight = [&](Bytes accumulated) {
    return gemm_time(op.k, op.n, op.m, op.forward_traffic + accumulated, rates, op.groups);
  };
  const double main = precision.main_gradient;
  if (weights > 0 && precision.gradient > 0) {
    const double added = main > 0 ? precision.gradient + 2 * main : 3 * precision.gradient;
    return {input, weight(Bytes{}) + elementwise_time(Bytes{added * weights}, 1, c.rates)};
  }
  return {input, weight(Bytes{2 * main * weights})};
}

Seconds forward_time(const Operator& op, const Context& c) {
  switch (op.kind) {
    case OperatorKind::gemm:
      return gemm_time(op.m, op.n, op.k, op.forward_traffic, c.gemm_rates(op), op.groups) +
             c.cast(op, op.groups * op.m * op.k);
    case OperatorKind::attention:
      return attention_time(op.forward, op.forward_traffic, op.span, op.forward_kernels,
                            c.rates.attention_forward, c.rates);
    case OperatorKind::elementwise: return c.pointwise(op.forward_traffic, op.forward_kernels);
    case OperatorKind::collective: break;
  }
  return Seconds{};
}

/// Steps of a ring of so many ranks: a reduction to all passes it twice.
double ring_steps(CollectiveKind kind, int ranks) {
  if (kind == CollectiveKind::none) return 0;
  return (kind == CollectiveKind::all_reduce ? 2.0 : 1.0) * (ranks - 1);
}

/// Part of `comm` that `cover` seconds of compute do not hide.
Seconds uncovered(Seconds comm, Seconds cover, double share) {
  return comm - std::min(comm, cover * share);
}

struct PassSums {
  PassCosts forward;
  PassCosts backward;
  Seconds selective;
  PairedLayer pair;         ///< of a layer whose experts are split
  bool dispatched = false;  ///< its dispatch lies behind
};

Seconds& exposed_on(Axis axis, PassCosts& pass) { return pass.exposed[step_axis(axis)]; }

/// Collectives that wait for the next operator to hide behind.
struct Pending {
  Axis axis = Axis::tp;
  Seconds forward;
  Seconds overlaps_dgrad;  ///< backward: next to the input gradient (re-gathers, keys and values)
  Seconds overlaps_wgrad;  ///< backward: next to the weight gradient (reductions)
};

void add_collective(const Operator& op, const Context& c, PassSums& sums, Pending& pending) {
  const GroupLinks& links = c.links[op.axis];
  // --overlap tp splits the tensor-parallel collectives and overlaps them with their GEMMs.
  const double share =
      c.sharding.overlap_tp && op.axis == Axis::tp ? 1 - c.calibration.tp_overlap : 1.0;
  const Seconds forward = share * c.collective(op, op.forward_collective, false);
  const Seconds backward = c.collective(op, op.backward_collective, true);
  if (op.axis == Axis::ep) {
    const bool dispatch = op.name == "dispatch";
    (dispatch ? sums.pair.dispatch : sums.pair.combine) = forward;
    (dispatch ? sums.pair.dispatch_backward : sums.pair.combine_backward) = backward;
    sums.dispatched = true;
  }
  for (const auto& [pass, kind] : {std::pair{&sums.forward, op.forward_collective},
                                   std::pair{&sums.backward, op.backward_collective}}) {
    pass->ring_steps += ring_steps(kind, links.ranks);
    pass->network_steps += ring_steps(kind, links.domains);
  }
  pending.axis = op.axis;
  if (op.forward_overlaps) {
    pending.forward += forward;
  } else {
    exposed_on(op.axis, sums.forward) += forward;
  }
  if (!op.backward_overlaps) {
    exposed_on(op.axis, sums.backward) += share * backward;
  } else if (op.backward_collective == CollectiveKind::all_gather) {
    pending.overlaps_dgrad += backward;
  } else {
    pending.overlaps_wgrad += backward;
  }
}

/// Kernels of a layer of experts before its dispatch run beside combines, those behind it beside
/// dispatches.
void add_to_pair(Seconds forward, const BackwardTimes& back, PassSums& sums) {
  PairedLayer& pair = sums.pair;
  if (!sums.dispatched) {
    pair.attention_forward += forward;
    pair.attention_backward += back.input + back.weight;
    return;
  }
  pair.experts_forward += forward;
  pair.experts_input += back.input;
  pair.experts_weight += back.weight;
}

/// One walk over a list. A column-parallel entry's backward collectives overlap with the products
/// of the GEMM that follows it: the re-gather next to the input gradient, the reduction of the
/// input's gradient next to the weight gradient (Megatron-Core tensor_parallel/layers.py). The ring
/// of context parallelism overlaps with attention.
PassSums sum_over(const OperatorList& list, const Context& c) {
  PassSums sums;
  Pending pending;
  for (const Operator& op : list.view()) {
    if (op.kind == OperatorKind::collective) {
      add_collective(op, c, sums, pending);
      continue;
    }
    const double slower = c.slower(op);
    const Seconds forward = slower * forward_time(op, c);
    sums.forward.device += forward;
    sums.selective += op.repeated * forward;
    if (op.kind == OperatorKind::elementwise) {
      const Seconds back = slower * c.pointwise(op.backward_traffic, op.backward_kernels);
      sums.backward.device += back;
      add_to_pair(forward, {back, Seconds{}}, sums);
      continue;
    }
    BackwardTimes back;
    if (op.kind == OperatorKind::gemm) {
      back = backward_gemm(op, c);
      back = {slower * back.input, slower * back.weight};
    } else {
      const Seconds whole =
          attention_time(op.backward, op.backward_traffic, op.span, op.backward_kernels,
                         c.rates.attention_backward, c.rates);
      back = {0.5 * whole, 0.5 * whole};
    }
    sums.backward.device += back.input + back.weight;
    add_to_pair(forward, back, sums);
    const bool covers = pending.axis == Axis::cp || c.framework.overlaps_tp_backward;
    const double share = covers ? c.calibration.tp_overlap : 0.0;
    exposed_on(pending.axis, sums.forward) +=
        uncovered(pending.forward, forward, c.calibration.tp_overlap);
    exposed_on(pending.axis, sums.backward) +=
        uncovered(pending.overlaps_dgrad, back.input, share) +
        uncovered(pending.overlaps_wgrad, back.weight, share);
    pending = {};
  }
  return sums;
}

/// Share of dispatch and combine that another microbatch's kernels hide: of what the pair could
/// hide as much as of other traffic beside compute, less what hiding it costs the kernels; none
/// where that is more than it gains. Published with and without the overlap, Qwen3-30B-A3B on 16
/// H100 hides 37 % of its exchange (Megatron-Bridge, skills/nemo-mbridge-perf-moe-comm-overlap).
double hidden_share(const PairedLayer& pair, const Context& c) {
  const Seconds all = pair.dispatch + pair.combine + pair.dispatch_backward + pair.combine_backward;
  if (!(all > Seconds{})) return 0;
  const double hidden = c.calibration.dp_overlap * std::max(0.0, 1 - exposed_of_pair(pair) / all);
  return hidden * std::max(0.0, 1 - exchange_slowdown(c.sharding.dispatcher, c.sms,
                                                      c.calibration.overlap_slowdown));
}

/// What weight gradients need next to what the forward kept, where they run later than the input
/// gradients: gradients of every product's result, 2·R·h + T·(q + k + v) + T·F; of a recomputed
/// layer attention's output too; of a fully recomputed one the sum behind it and T·f.
/// Source: runtime/model/chunk_layout.hpp, ChunkMemory.
struct Deferred {
  Bytes always, selective, full;
};
Deferred deferred(const OperatorList& list, const ModelSpec& model) {
  Deferred out;
  for (const Operator& op : list.view()) {
    if (op.name == "input_norm") {
      out.always += 2 * op.saved;
      out.full += op.saved;
    }
    if (op.name == "attention_inputs") out.always += op.saved;
    if (op.name == "projection") out.selective += op.saved;
    if (op.name == "activation") {
      out.always += op.saved;
      out.full += op.saved / (model.gated_mlp ? 2 : 1);
    }
  }
  out.full += out.selective;
  return out;
}

LayerCosts layer_costs(const ModelSpec& model, const Context& context, LayerSharding sharding,
                       LayerKind kind) {
  const OperatorList list = layer_operators(model, context.job, context.framework, sharding, kind);
  PassSums sums = sum_over(list, context);
  const double hidden = sharding.overlap_ep ? hidden_share(sums.pair, context) : 0.0;
  const Seconds alone_forward = hidden * (sums.pair.dispatch + sums.pair.combine);
  const Seconds alone_backward =
      hidden * (sums.pair.dispatch_backward + sums.pair.combine_backward);
  sums.forward.exposed[Axis::ep] += -1.0 * alone_forward;
  sums.backward.exposed[Axis::ep] += -1.0 * alone_backward;
  const Deferred later = deferred(list, model);
  const bool gathers = sharding.tp > 1 && sharding.sequence_parallel;
  const double sequence =
      static_cast<double>(sharding.microbatch) * context.job.sequence / sharding.cp;
  const double width = activation_width(context.job.precision.compute);
  return {.forward = sums.forward,
          .backward = sums.backward,
          .alone_forward = alone_forward,
          .alone_backward = alone_backward,
          .selective = sums.selective,
          .saved = list.saved(Recompute::none),
          .saved_selective = list.saved(Recompute::selective),
          .transient = list.transient(),
          .weight_inputs = later.always,
          .weight_inputs_selective = later.selective,
          .weight_inputs_full = later.full,
          .held = Bytes{gathers ? context.framework.pending_collective_buffers * width * sequence *
                                      model.hidden
                                : 0.0},
          .parameters = layer_parameters_per_rank(model, sharding.tp, kind),
          .experts = kind == LayerKind::moe ? expert_parameters_per_rank(model, sharding) : 0.0};
}

}  // namespace

Seconds CostModel::exchange_time(LayerSharding sharding) const {
  if (sharding.ep == 1) return Seconds{};
  ParallelPlan plan;
  static_cast<LayerSharding&>(plan) = sharding;
  Context context{{}, {}, {}, sharding, model_.moe, 0, job_, calibration_, framework_};
  context.links[Axis::ep] = links(ProcessGrid(plan).group(Axis::ep));
  const OperatorList list = layer_operators(model_, job_, framework_, sharding, LayerKind::moe);
  Seconds sum;
  for (const Operator& op : list.view()) {
    if (op.axis != Axis::ep) continue;
    sum += context.collective(op, op.forward_collective, false) +
           context.collective(op, op.backward_collective, true);
  }
  return sum;
}

ShardingCosts CostModel::sharding_costs(LayerSharding sharding) const {
  ParallelPlan plan;
  static_cast<LayerSharding&>(plan) = sharding;
  return sharding_costs(plan);
}

ShardingCosts CostModel::sharding_costs(const ParallelPlan& plan) const {
  const LayerSharding sharding = sharding_of(plan);
  const ProcessGrid grid(plan);
  const Dtype format = job_.precision.compute;
  DeviceRates rates = device_rates(cluster_.gpu(), calibration_, format);
  if (format == Dtype::fp8) rates.gemm *= job_.precision.fp8_rate;
  const Context context{
      rates,
      device_rates(cluster_.gpu(), calibration_, format == Dtype::fp8 ? Dtype::bf16 : format),
      {links(grid.group(Axis::tp)), links(grid.group(Axis::cp)), links(grid.group(Axis::ep)),
       links(grid.group(Axis::etp))},
      sharding,
      model_.moe,
      static_cast<double>(cluster_.gpu().sms),
      job_,
      calibration_,
      framework_};
  ShardingCosts costs;
  costs.sharding = sharding;
  if (moe_before_.back() < model_.layers) {
    costs.dense = layer_costs(model_, context, sharding, LayerKind::dense);
  }
  if (moe_before_.back() > 0) costs.moe = layer_costs(model_, context, sharding, LayerKind::moe);

  const OperatorList embedding = embedding_operators(model_, job_, framework_, sharding);
  const PassSums embedding_sums = sum_over(embedding, context);
  costs.embedding_forward = embedding_sums.forward;
  costs.embedding_backward = embedding_sums.backward;
  costs.embedding_saved = embedding.saved(Recompute::none);

  const OperatorList head = head_operators(model_, job_, framework_, sharding);
  const PassSums head_sums = sum_over(head, context);
  costs.head_forward = head_sums.forward;
  costs.head_backward = head_sums.backward;
  costs.head_saved = head.saved(Recompute::none);
  costs.head_transient = head.transient();

  const double width = activation_width(job_.precision.compute);
  const double tokens = static_cast<double>(sharding.microbatch) * job_.sequence / sharding.cp /
                        (sharding.sequence_parallel ? sharding.tp : 1);
  costs.layer_input = Bytes{width * tokens * model_.hidden};
  costs.embedding_parameters = embedding_parameters_per_rank(model_, framework_, sharding.tp);
  costs.head_parameters = head_parameters_per_rank(model_, framework_, sharding.tp, false);
  costs.head_parameters_last = head_parameters_per_rank(model_, framework_, sharding.tp, true);
  return costs;
}

}  // namespace echelon
