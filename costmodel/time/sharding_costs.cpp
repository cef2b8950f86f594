// What one sharding (tp, microbatch, sequence parallel) costs per layer: times and bytes, summed
// over the operator lists.
#include <algorithm>
#include <cmath>
#include <utility>

#include "costmodel/collectives/collectives.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/rates.hpp"

namespace echelon {
namespace {

/// Everything the sums below need besides the operators.
struct Context {
  DeviceRates rates;  ///< GEMMs in the job's format
  DeviceRates wide;   ///< GEMMs in 16 bits
  AxisArray<GroupLinks, kLayerAxes> links;
  bool overlap_tp;
  const TrainingJob& job;
  const Calibration& calibration;
  const Framework& framework;

  [[nodiscard]] bool in_fp8(const Operator& op) const {
    return job.precision.compute == Dtype::fp8 && !op.wide;
  }
  [[nodiscard]] const DeviceRates& gemm_rates(const Operator& op) const {
    return in_fp8(op) ? rates : wide;
  }
  /// An fp8 GEMM's input is read in 16 bits and written in 8, once as it is and once transposed.
  /// Source: TransformerEngine's cast-transpose kernels.
  [[nodiscard]] Seconds cast(const Operator& op, double elements) const {
    return in_fp8(op) ? elementwise_time(Bytes{4 * elements}, 1, rates) : Seconds{};
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
  const double share = c.overlap_tp && op.axis == Axis::tp ? 1 - c.calibration.tp_overlap : 1.0;
  const Seconds forward = share * collective_time(op.forward_collective, op.payload, links);
  const Seconds backward = collective_time(op.backward_collective, op.payload, links);
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
    const Seconds forward = forward_time(op, c);
    sums.forward.device += forward;
    sums.selective += op.repeated * forward;
    if (op.kind == OperatorKind::elementwise) {
      sums.backward.device += c.pointwise(op.backward_traffic, op.backward_kernels);
      continue;
    }
    BackwardTimes back;
    if (op.kind == OperatorKind::gemm) {
      back = backward_gemm(op, c);
    } else {
      const Seconds whole =
          attention_time(op.backward, op.backward_traffic, op.span, op.backward_kernels,
                         c.rates.attention_backward, c.rates);
      back = {0.5 * whole, 0.5 * whole};
    }
    sums.backward.device += back.input + back.weight;
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

/// Where a token is sent once to each domain that holds one of its k experts, not once to each
/// expert, the traffic between D domains shrinks to D·(1 − (1 − 1/D)^k)/k of k copies (experts
/// drawn evenly); the domain's own links spread it from there. Source: DeepEP's two-hop dispatch.
GroupLinks dispatch_links(const CostModel& cost_model, RankGroup experts) {
  GroupLinks group = cost_model.links(experts);
  if (!cost_model.framework().dispatches_per_domain || group.domains < 2) return group;
  const double domains = group.domains;
  const double k = cost_model.model().moe.experts_per_token;
  group.inter_per_rank *= k / (domains * (1 - std::pow(1 - 1 / domains, k)));
  return group;
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
    if (op.name == "attention_inputs" || op.name == "delta_conv") out.always += op.saved;
    if (op.name == "projection" || op.name == "delta_out") out.selective += op.saved;
    if (op.name == "activation") {
      out.always += op.saved;
      out.full += op.saved / (model.gated_mlp ? 2 : 1);
    }
  }
  out.full += out.selective;
  return out;
}

LayerCosts layer_costs(const ModelSpec& model, const Context& context, LayerSharding sharding,
                       LayerKind kind, TokenMixer mixer) {
  const OperatorList list =
      layer_operators(model, context.job, context.framework, sharding, kind, mixer);
  PassSums sums = sum_over(list, context);
  if (kind == LayerKind::moe) {
    const double more = 1 / context.calibration.moe_speed_factor;
    sums.forward.device *= more;
    sums.backward.device *= more;
    sums.selective *= more;
  }
  if (context.framework.overlaps_experts) {
    const double share = context.calibration.dp_overlap;
    for (PassCosts* pass : {&sums.forward, &sums.backward}) {
      Seconds& exchange = pass->exposed[Axis::ep];
      exchange = uncovered(exchange, pass->device, share);
    }
  }
  const Deferred later = deferred(list, model);
  const bool gathers = sharding.tp > 1 && sharding.sequence_parallel;
  const double sequence =
      static_cast<double>(sharding.microbatch) * context.job.sequence / sharding.cp;
  const double width = activation_width(context.job.precision.compute);
  return {.forward = sums.forward,
          .backward = sums.backward,
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
          .parameters = layer_parameters_per_rank(model, sharding.tp, kind, mixer),
          .experts = kind == LayerKind::moe ? expert_parameters_per_rank(model, sharding) : 0.0};
}

/// The mean of layers with attention and with a gated delta net, weighted by their number. Assumes
/// that every stage has both in the model's proportion; buffers are the larger one's.
LayerCosts mixed_layer_costs(const ModelSpec& model, const Context& context, LayerSharding sharding,
                             LayerKind kind) {
  LayerCosts mean = layer_costs(model, context, sharding, kind, TokenMixer::attention);
  if (model.delta.layers == 0) return mean;
  const LayerCosts other = layer_costs(model, context, sharding, kind, TokenMixer::delta_net);
  const double share = static_cast<double>(model.delta.layers) / model.layers;
  const auto mix = [&]<class Value>(Value LayerCosts::*member) {
    Value sum = (1 - share) * (mean.*member);
    sum += share * (other.*member);
    mean.*member = sum;
  };
  for (const auto pass : {&LayerCosts::forward, &LayerCosts::backward}) mix(pass);
  mix(&LayerCosts::selective);
  for (const auto bytes :
       {&LayerCosts::saved, &LayerCosts::saved_selective, &LayerCosts::weight_inputs,
        &LayerCosts::weight_inputs_selective, &LayerCosts::weight_inputs_full, &LayerCosts::held}) {
    mix(bytes);
  }
  mean.transient = std::max(mean.transient, other.transient);
  for (const auto count : {&LayerCosts::parameters, &LayerCosts::experts}) mix(count);
  return mean;
}

}  // namespace

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
      {links(grid.group(Axis::tp)), links(grid.group(Axis::cp)),
       dispatch_links(*this, grid.group(Axis::ep)), links(grid.group(Axis::etp))},
      sharding.overlap_tp,
      job_,
      calibration_,
      framework_};
  ShardingCosts costs;
  costs.sharding = sharding;
  if (moe_before_.back() < model_.layers) {
    costs.dense = mixed_layer_costs(model_, context, sharding, LayerKind::dense);
  }
  if (moe_before_.back() > 0) {
    costs.moe = mixed_layer_costs(model_, context, sharding, LayerKind::moe);
  }

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
