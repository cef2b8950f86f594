// What one sharding (tp, microbatch, sequence parallel) costs per layer: times and bytes, summed
// over the operator lists.
// Over 400 lines because a layer's sums, the mean over its kinds and the ends are one calculation.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "costmodel/collectives/collectives.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/deferred_weights.hpp"
#include "costmodel/time/hidden_exchange.hpp"
#include "costmodel/time/operator_times.hpp"
#include "costmodel/time/rates.hpp"

namespace echelon {
namespace {

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
  PassCosts selective;
  PassCosts once;                                           ///< LayerCosts::once
  std::array<PassCosts, kRecomputeModules.size()> modules;  ///< of the forward, what each repeats
  Seconds apart;                                            ///< LayerCosts::apart_backward
  Seconds regather;         ///< of one tensor with all rows; zero without sequence parallelism
  PairedLayer pair;         ///< of a layer whose experts are split
  bool dispatched = false;  ///< its dispatch lies behind

  /// Calls `add` with the forward, and with every module that repeats a part of it.
  template <class Add>
  void each_forward(const RecomputeModules& repeated_by, bool runs_once, Add add) {
    add(forward);
    if (runs_once) add(once);
    if (repeated_by.empty()) return;
    for (std::size_t i = 0; i < modules.size(); ++i) {
      if (repeated_by.contains(kRecomputeModules[i])) add(modules[i]);
    }
  }
};

Seconds& exposed_on(Axis axis, PassCosts& pass) { return pass.exposed[step_axis(axis)]; }

/// Collectives that wait for the next operator to hide behind.
struct Pending {
  Axis axis = Axis::tp;
  Seconds forward;
  Seconds overlaps_dgrad;  ///< backward: next to the input gradient (re-gathers, keys and values)
  Seconds overlaps_wgrad;  ///< backward: next to the weight gradient (reductions)
  RecomputeModules repeated_by{};
  double repeated = 0;  ///< share of `forward` that selective recomputation repeats
};

void add_collective(const Operator& op, const OperatorContext& c, PassSums& sums,
                    Pending& pending) {
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
  const auto add_steps = [&](PassCosts& pass, CollectiveKind kind) {
    pass.ring_steps += ring_steps(kind, links.ranks);
    pass.network_steps += ring_steps(kind, links.domains);
  };
  add_steps(sums.backward, op.backward_collective);
  sums.each_forward(op.repeated_by, op.once, [&](PassCosts& pass) {
    add_steps(pass, op.forward_collective);
    if (!op.forward_overlaps) exposed_on(op.axis, pass) += forward;
  });
  if (op.attention_core && !op.forward_overlaps)
    exposed_on(op.axis, sums.selective) += op.repeated * forward;
  pending.axis = op.axis;
  if (op.forward_overlaps) {
    pending.forward += forward;
    pending.repeated_by = op.repeated_by;
    if (op.attention_core) pending.repeated = op.repeated;
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
void add_to_pair(const Operator& op, Seconds forward, const BackwardTimes& back, PassSums& sums) {
  PairedLayer& pair = sums.pair;
  if (op.name == "shared_down") {
    pair.shared_down = forward;
    pair.shared_down_backward = back.input + back.weight;
  } else if (op.name == "shared_up" || op.name == "shared_activation") {
    pair.shared_up += forward;
    pair.shared_up_backward += back.input + back.weight;
  }
  if (!sums.dispatched) {
    pair.attention_forward += forward;
    pair.attention_backward += back.input + back.weight;
    return;
  }
  pair.experts_forward += forward;
  pair.experts_input += back.input;
  pair.experts_weight += back.weight;
}

/// A product whose two gradients are computed apart (runtime/model/chunk_layer.cpp,
/// backward_weight): the sum of the input's gradient is exposed, and the gather that the next
/// weight gradient needs, for either kind of matrix, runs beside this weight gradient.
Seconds exposed_apart(const Pending& pending, const BackwardTimes& back, double share,
                      Seconds regather) {
  const Seconds together = uncovered(pending.overlaps_dgrad, back.input, share) +
                           uncovered(pending.overlaps_wgrad, back.weight, share);
  return pending.overlaps_wgrad + uncovered(regather, back.weight, share) - together;
}

/// One walk over a list. A column-parallel entry's backward collectives overlap with the products
/// of the GEMM that follows it: the re-gather next to the input gradient, the reduction of the
/// input's gradient next to the weight gradient (Megatron-Core tensor_parallel/layers.py). The ring
/// of context parallelism overlaps with attention.
PassSums sum_over(const OperatorList& list, const OperatorContext& c) {
  PassSums sums;
  Pending pending;
  for (const Operator& op : list.view()) {
    if (op.kind == OperatorKind::collective) {
      add_collective(op, c, sums, pending);
      continue;
    }
    const double slower = c.slower(op);
    const Seconds forward = slower * forward_time(op, c);
    sums.each_forward(op.repeated_by, op.once, [&](PassCosts& pass) { pass.device += forward; });
    sums.selective.device += op.repeated * forward;
    if (op.kind == OperatorKind::elementwise) {
      const Seconds back = slower * c.pointwise(op.backward_traffic, op.backward_kernels);
      sums.backward.device += back;
      add_to_pair(op, forward, {back, Seconds{}}, sums);
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
    add_to_pair(op, forward, back, sums);
    const bool covers = pending.axis == Axis::cp || c.framework.overlaps_tp_backward;
    const double share = covers ? c.calibration.tp_overlap : 0.0;
    const Seconds waited = uncovered(pending.forward, forward, c.calibration.tp_overlap);
    sums.each_forward(pending.repeated_by, false,
                      [&](PassCosts& pass) { exposed_on(pending.axis, pass) += waited; });
    exposed_on(pending.axis, sums.selective) += pending.repeated * waited;
    exposed_on(pending.axis, sums.backward) +=
        uncovered(pending.overlaps_dgrad, back.input, share) +
        uncovered(pending.overlaps_wgrad, back.weight / op.passes, share);
    if (op.kind == OperatorKind::gemm && pending.axis == Axis::tp) {
      if (pending.overlaps_dgrad > Seconds{}) sums.regather = pending.overlaps_dgrad;
      sums.apart += exposed_apart(pending, back, share, sums.regather);
    }
    pending = {};
  }
  return sums;
}

std::array<RecomputedPart, kRecomputeModules.size()> modules_of(const OperatorList& list,
                                                                const PassSums& sums) {
  std::array<RecomputedPart, kRecomputeModules.size()> out;
  for (std::size_t i = 0; i < out.size(); ++i) out[i].repeated = sums.modules[i];
  for (const Operator& op : list.view()) {
    if (op.freed_by.empty()) continue;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (op.freed_by.contains(kRecomputeModules[i])) out[i].freed += op.saved;
    }
  }
  return out;
}

std::vector<OffloadableTensor> offloadable_of(const OperatorList& list) {
  std::vector<OffloadableTensor> out;
  for (const Operator& op : list.view()) {
    if (op.offloaded_by && op.saved > Bytes{}) {
      out.push_back({*op.offloaded_by, op.freed_by, op.saved});
    }
  }
  return out;
}

/// Launches of a layer with adapters, in units of those of the layer by itself: counted by kernels,
/// of which a frozen product has one less, and those that unpack its weight.
///
/// With modules of transformers, all kernels but those of routed experts, which host_experts stands
/// for, in units of the 15 of the forward and 30 of the backward that host_layer_forward and
/// _backward stand for. Source: costmodel/catalog/calibrations/hopper.json, "TransformerEngine's
/// fused layer, about 15 launches"; PyTorch's 350 us are then 23 us each, and 25.5 tokens/s of the
/// eager model of gpt-fast (pytorch.org/blog/accelerating-generative-ai-2, "heavily CPU overhead
/// bound"), 49 launches in each of 32 layers and about 20 more, 25 us each. Checked by:
/// tests/costmodel/operators/transformers_code_test.cpp.
double launched(const OperatorList& list, LayerCode code) {
  constexpr double kLaunches = 15 + 30;
  double own = 0;
  double all = 0;
  for (const Operator& op : list.view()) {
    if (code == LayerCode::transformers && op.routed) continue;
    const double kernels = op.forward_kernels + op.backward_kernels;
    all += kernels + 2 * op.unpacking_kernels;
    if (!op.name.starts_with("adapter_")) own += kernels + (op.weight_gradient ? 0 : 1);
  }
  if (code == LayerCode::transformers) return all / kLaunches;
  return own > 0 ? all / own : 1;
}

LayerCosts layer_costs(const ModelSpec& model, const OperatorContext& context,
                       LayerSharding sharding, LayerKind kind, TokenMixer mixer) {
  const OperatorList list =
      layer_operators(model, context.job, context.framework, sharding, kind, mixer);
  PassSums sums = sum_over(list, context);
  const HiddenExchange hidden = hidden_exchange(sums.pair, context);
  sums.forward.exposed[Axis::ep] += -1.0 * hidden.forward;
  sums.backward.exposed[Axis::ep] += -1.0 * hidden.backward;
  if (sharding.overlap_shared) {  // a module that repeats the exchange hides it again
    for (PassCosts& repeated : sums.modules) {
      Seconds& exposed = repeated.exposed[Axis::ep];
      if (exposed > Seconds{}) exposed -= hidden.forward;
    }
  }
  const DeferredWeights later = deferred_weights(list, model);
  const bool has_experts = kind == LayerKind::moe && model.has_mlp(mixer);
  const bool gathers = sharding.tp > 1 && sharding.sequence_parallel;
  const double sequence =
      static_cast<double>(sharding.microbatch) * context.job.sequence / sharding.cp;
  const double width = activation_width(context.job.precision.compute);
  const auto modules = modules_of(list, sums);
  const double adapters = adapter_parameters_per_rank(list);
  const double parameters = layer_parameters_per_rank(model, sharding.tp, kind, mixer) + adapters;
  const double experts = has_experts ? expert_parameters_per_rank(model, sharding) : 0.0;
  LayerCosts::OfMixer own{
      .saved = list.saved(Recompute::none),
      .freed_selective = list.saved(Recompute::none) - list.saved(Recompute::selective),
      .parameters = parameters + experts,
      .shapes = parameters + (has_experts ? experts * sharding.ep / model.moe.experts : 0.0)};
  for (std::size_t i = 0; i < own.freed.size(); ++i) own.freed[i] = modules[i].freed;
  return {
      .of_mixers = {own},
      .forward = sums.forward,
      .backward = sums.backward,
      .alone_forward = sharding.overlap_ep ? hidden.forward : Seconds{},
      .alone_backward = sharding.overlap_ep ? hidden.backward : Seconds{},
      .apart_backward = sums.apart,
      .selective = sums.selective,
      .once = sums.once,
      .saved = list.saved(Recompute::none),
      .saved_selective = list.saved(Recompute::selective),
      .modules = modules,
      .offloadable = offloadable_of(list),
      .transient = list.transient(),
      .weight_inputs = later.always,
      .weight_inputs_selective = later.selective,
      .weight_inputs_full = later.full,
      .held = Bytes{gathers ? context.framework.pending_collective_buffers * width * sequence *
                                  model.hidden
                            : 0.0},
      .parameters = parameters,
      .experts = experts,
      .adapters = adapters,
      .quantized = quantized_parameters_per_rank(list),
      .launches = (model.mlp_only_layers > 0 ? 0.5 : 1.0) * launched(list, context.job.layer_code),
      .with_experts = has_experts ? 1.0 : 0.0};
}

/// Adds a share of one kind of layers to the mean of all; buffers are the largest kind's.
void add_share(LayerCosts& mean, const LayerCosts& of, double share) {
  const auto add = [&]<class Value>(Value LayerCosts::*member) {
    mean.*member += share * (of.*member);
  };
  for (const auto pass :
       {&LayerCosts::forward, &LayerCosts::backward, &LayerCosts::selective, &LayerCosts::once}) {
    add(pass);
  }
  for (const auto time :
       {&LayerCosts::alone_forward, &LayerCosts::alone_backward, &LayerCosts::apart_backward}) {
    add(time);
  }
  for (const auto bytes :
       {&LayerCosts::saved, &LayerCosts::saved_selective, &LayerCosts::weight_inputs,
        &LayerCosts::weight_inputs_selective, &LayerCosts::weight_inputs_full, &LayerCosts::held}) {
    add(bytes);
  }
  for (std::size_t i = 0; i < mean.modules.size(); ++i) {
    mean.modules[i].repeated += share * of.modules[i].repeated;
    mean.modules[i].freed += share * of.modules[i].freed;
  }
  for (OffloadableTensor tensor : of.offloadable) {
    tensor.bytes *= share;
    mean.offloadable.push_back(tensor);
  }
  mean.of_mixers.insert(mean.of_mixers.end(), of.of_mixers.begin(), of.of_mixers.end());
  mean.transient = std::max(mean.transient, of.transient);
  for (const auto count :
       {&LayerCosts::parameters, &LayerCosts::experts, &LayerCosts::adapters,
        &LayerCosts::quantized, &LayerCosts::launches, &LayerCosts::with_experts}) {
    add(count);
  }
}

/// The mean of layers by what mixes their tokens, weighted by their number. Assumes that every
/// stage has all kinds in the model's proportion.
LayerCosts mixed_layer_costs(const ModelSpec& model, const OperatorContext& context,
                             LayerSharding sharding, LayerKind kind) {
  if (model.layers_with(TokenMixer::attention) == model.layers) {
    return layer_costs(model, context, sharding, kind, TokenMixer::attention);
  }
  LayerCosts mean;
  mean.launches = 0;
  for (const TokenMixer mixer : kTokenMixers) {
    const int with = model.layers_with(mixer);
    if (with == 0) continue;
    add_share(mean, layer_costs(model, context, sharding, kind, mixer),
              static_cast<double>(with) / model.layers);
  }
  return mean;
}

/// The layers of a prediction module: one of the last one's kind; where layers have one part, one
/// with attention and one with an MLP (Nemotron 3's mtp_hybrid_override_pattern, *E).
LayerCosts module_layers(const ModelSpec& model, const OperatorContext& c,
                         const ShardingCosts& costs) {
  const LayerKind kind = model.layer_kind(model.layers - 1);
  if (model.mlp_only_layers == 0) return costs.of(kind);
  LayerCosts both;
  both.launches = 0;
  for (const TokenMixer mixer : {TokenMixer::attention, TokenMixer::none}) {
    add_share(both, layer_costs(model, c, c.sharding, kind, mixer), 1);
  }
  return both;
}

/// Prediction modules stand on the last stage: each its layers behind a projection, and the head
/// once more, whose weights it shares.
void add_prediction_modules(const ModelSpec& model, const OperatorContext& c,
                            ShardingCosts& costs) {
  const int modules = model.prediction_modules;
  if (modules == 0) return;
  const LayerCosts layer = module_layers(model, c, costs);
  const OperatorList entry = prediction_operators(model, c.job, c.framework, c.sharding);
  const PassSums sums = sum_over(entry, c);
  const auto add = [&](PassCosts& head, const PassCosts& of_entry, const PassCosts& of_layer) {
    PassCosts module = head;
    module += of_entry;
    module += of_layer;
    head += modules * module;
  };
  add(costs.head_forward, sums.forward, layer.forward);
  add(costs.head_backward, sums.backward, layer.backward);
  costs.head_saved += modules * (costs.head_saved + entry.saved(Recompute::none) + layer.saved);
  const double h = model.hidden;
  const double own = modules * (layer.parameters + 2 * h * h / c.sharding.tp + 3 * h);
  costs.head_parameters += own;
  costs.head_parameters_last += own;
  costs.head_experts = modules * layer.experts;
  costs.head_adapters = modules * layer.adapters;
}

/// The first products and the first gather of the head, once more.
void repeat_head(const OperatorList& head, const OperatorContext& c, ShardingCosts& costs) {
  for (const Operator& op : head.view()) {
    if (op.kind == OperatorKind::gemm) costs.head_repeated += c.slower(op) * forward_time(op, c);
    if (op.forward_collective == CollectiveKind::all_gather)
      costs.head_regathered += c.collective(op, op.forward_collective, false);
  }
}

}  // namespace

Seconds CostModel::exchange_time(LayerSharding sharding) const {
  if (sharding.ep == 1 || model_.moe.experts == 0 || model_.moe.experts % sharding.ep != 0) {
    return Seconds{};
  }
  ParallelPlan plan;
  static_cast<LayerSharding&>(plan) = sharding;
  OperatorContext context{{}, {}, {}, sharding, model_.moe, 0, job_, calibration_, framework_};
  context.links[Axis::ep] = links(ProcessGrid(plan).group(Axis::ep));
  const OperatorList list = layer_operators(model_, job_, framework_, sharding, LayerKind::moe,
                                            model_.mixer_before_mlp());
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

ShardingCosts CostModel::sharding_costs(const ParallelPlan& plan,
                                        const ShardingCosts* but_for_experts) const {
  const LayerSharding sharding = sharding_of(plan);
  const ProcessGrid grid(plan);
  // In a graph of the whole step experts with products of their own need TransformerEngine's op
  // fuser: one kernel for those of all of them. Source: Megatron-LM d98e8a64, docs/cuda_graph.md.
  std::optional<Framework> fused;
  if (plan.cuda_graphs == CudaGraphs::full_iteration && framework_.product_per_expert) {
    fused = framework_;
    fused->fused_experts = true;
  }
  const Dtype format = job_.precision.compute;
  DeviceRates rates = device_rates(cluster_.gpu(), calibration_, format);
  if (format == Dtype::fp8) rates.gemm *= job_.precision.fp8_rate;
  const AttentionSpeed attention = attention_speed(cluster_.gpu(), framework_);
  rates.attention_forward *= attention.forward;
  rates.attention_backward *= attention.backward;
  if (model_.position != PositionEmbedding::rope) rates.attention_overhead = 0;
  const OperatorContext context{
      rates,
      device_rates(cluster_.gpu(), calibration_, format == Dtype::fp8 ? Dtype::bf16 : format),
      {links(grid.group(Axis::tp)), links(grid.group(Axis::cp)), links(grid.group(Axis::ep)),
       links(grid.group(Axis::etp))},
      sharding,
      model_.moe,
      static_cast<double>(cluster_.gpu().sms),
      job_,
      calibration_,
      fused ? *fused : framework_};
  // Prediction modules, which count as part of the head, have experts too.
  const bool shared = but_for_experts != nullptr && model_.prediction_modules == 0;
  ShardingCosts costs = shared ? *but_for_experts : ShardingCosts{};
  costs.sharding = sharding;
  if (moe_before_.back() > 0) {
    costs.moe = mixed_layer_costs(model_, context, sharding, LayerKind::moe);
  }
  if (shared) return costs;
  if (moe_before_.back() < model_.layers) {
    costs.dense = mixed_layer_costs(model_, context, sharding, LayerKind::dense);
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
  if (framework_.loss_rows > 0) repeat_head(head, context, costs);
  costs.head_saved = head.saved(Recompute::none);
  costs.head_transient = head.transient();

  const double tokens = static_cast<double>(sharding.microbatch) * job_.sequence / sharding.cp /
                        (sharding.sequence_parallel ? sharding.tp : 1);
  costs.layer_input = Bytes{job_.hidden_width() * tokens * model_.hidden};
  costs.embedding_parameters = embedding_parameters_per_rank(model_, framework_, sharding.tp);
  costs.head_parameters = head_parameters_per_rank(model_, framework_, sharding.tp, false);
  costs.head_parameters_last = head_parameters_per_rank(model_, framework_, sharding.tp, true);
  add_prediction_modules(model_, context, costs);
  return costs;
}

}  // namespace echelon
