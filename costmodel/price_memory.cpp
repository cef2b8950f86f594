// Peak memory of every pipeline stage.
#include <algorithm>

#include "costmodel/pipeline.hpp"
#include "costmodel/price.hpp"

namespace echelon {
namespace {

/// Parameters on one rank of a stage.
double stage_parameters(const ParallelPlan& plan, const CutCosts& costs, int stage, int layers) {
  double sum = layers * costs.layer_parameters;
  if (stage == 0) sum += costs.embedding_parameters;
  if (stage == plan.pp - 1) sum += plan.pp > 1 ? costs.head_parameters_last : costs.head_parameters;
  return sum;
}

/// Weights, gradients and optimizer states: bytes per parameter of the recipe, each divided by the
/// shard group from its ZeRO stage on. Source: ZeRO (arXiv 1910.02054) section 3.
void add_states(const ParallelPlan& plan, const PrecisionRecipe& recipe, double parameters,
                MemoryBreakdown& out) {
  const auto share = [&](int from_stage) {
    return plan.zero >= from_stage ? parameters / plan.shard_group : parameters;
  };
  out.weights = Bytes{share(3) * recipe.weight};
  out.gradients = Bytes{share(2) * (recipe.gradient + recipe.main_gradient)};
  out.optimizer = Bytes{share(1) * (recipe.master + recipe.moments)};
}

/// Activations saved by all microbatches in flight, and the logits of those past the head.
Bytes saved_activations(const ParallelPlan& plan, const CutCosts& costs, int stage, int layers,
                        int recomputed, std::int64_t microbatches) {
  const double chunks = static_cast<double>(
      chunks_in_flight(plan.schedule, plan.pp, plan.vpp, stage, microbatches));
  const double in_flight = chunks / plan.vpp;
  const Bytes kept = plan.recompute == Recompute::selective ? costs.layer_saved_selective
                                                            : costs.layer_saved;
  Bytes sum = in_flight * ((layers - recomputed) * kept + recomputed * costs.layer_input);
  if (stage == 0) sum += in_flight * costs.embedding_saved;
  if (stage == plan.pp - 1) {
    // 1F1B and interleaving run the loss's backward right after its forward: one microbatch. ZB-H1
    // keeps the logits' gradient until the head's weight gradient, as long as everything else.
    const bool soon =
        plan.schedule == ScheduleKind::one_f_one_b || plan.schedule == ScheduleKind::interleaved;
    const double heads = soon ? 1 : in_flight;
    sum += heads * costs.head_saved;
  }
  return sum;
}

/// Buffers of ZeRO's gathers and reductions.
Bytes gather_buffers(const ParallelPlan& plan, const PrecisionRecipe& recipe, const Stack& stack,
                     const CutCosts& costs, double parameters, int layers) {
  const double unit = costs.layer_parameters;
  const double sharded = parameters / plan.shard_group;
  switch (plan.zero) {
    case 1: return Bytes{parameters * stack.zero1_gather_local + sharded * stack.zero1_gather_shard};
    case 2:  // two layers' gradients on their way to the reduction
      return Bytes{std::min(parameters, 2 * unit) * recipe.reduced_gradient};
    case 3: {
      // Two gathered layers (running and prefetched), one layer's gradients before and during the
      // reduction, and the embedding and head, which stay gathered from forward to backward.
      const double ends = parameters - layers * unit;
      return Bytes{2 * unit * recipe.gathered_weight +
                   unit * (recipe.gathered_weight + recipe.reduced_gradient) +
                   ends * recipe.gathered_weight};
    }
    default: return Bytes{};
  }
}

}  // namespace

void Pricer::price_memory(const ParallelPlan& plan, const CutCosts& costs,
                          MemoryPrediction& out) const {
  const std::int64_t microbatches = plan.microbatches_rounded_up(job_.global_batch);
  const int communicators = (plan.tp > 1) + (plan.dp > 1) + (plan.pp > 1);
  const Bytes nccl = communicators * calibration_.nccl_per_communicator;
  const double reserve = calibration_.allocator_reserve;

  out.stages.resize(static_cast<std::size_t>(plan.pp));
  out.capacity = cluster_.gpu().memory;
  out.peak = out.peak_reserved = out.peak_allocated = out.allocator_reserve = Bytes{};
  for (int stage = 0; stage < plan.pp; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    MemoryBreakdown& memory = out.stages[s];
    const int layers = plan.layers_per_stage[s];
    const int recomputed = plan.recompute == Recompute::full ? plan.recompute_layers[s] : 0;
    const double parameters = stage_parameters(plan, costs, stage, layers);
    add_states(plan, job_.precision, parameters, memory);
    memory.activations = saved_activations(plan, costs, stage, layers, recomputed, microbatches);
    memory.workspace = costs.layer_transient + calibration_.gemm_workspace;
    if (recomputed > 0) memory.workspace += costs.layer_saved;  // the layer being recomputed
    if (stack_.dummy_weight_gradients) {
      memory.workspace += Bytes{2 * costs.layer_parameters};
    }
    memory.communication =
        gather_buffers(plan, job_.precision, stack_, costs, parameters, layers) + nccl;
    memory.context = calibration_.context;

    const Bytes total = memory.total();
    const Bytes allocated = total - memory.context - nccl;
    const Bytes reserved = total + reserve * allocated;
    out.peak = std::max(out.peak, total);
    if (reserved > out.peak_reserved) {
      out.peak_reserved = reserved;
      out.allocator_reserve = reserve * allocated;
      out.peak_allocated = allocated;
      out.tightest_stage = stage;
    }
  }
}

}  // namespace echelon
