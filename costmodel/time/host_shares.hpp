// What the host launches itself of a layer whose kernels are replayed as CUDA graphs.
#pragma once

#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// Shares of a layer's launches, and of what experts add to them, that the host makes itself.
struct HostShares {
  double layer = 1;
  double experts = 1;   ///< router, permutation, dispatch
  double products = 1;  ///< what every local expert adds
};

/// Graphs of layers hold attention, router and preprocessing of a layer with experts, half of its
/// launches; dispatch, grouped GEMMs and combine wait for token counts. A dense layer is one graph
/// in place of about 20 kernels, but for its MLP, the other half, where expert communication
/// overlaps another microbatch (graphed_parts). Source: Megatron-LM d98e8a64, docs/cuda_graph.md.
///
/// `replayed`: a pass without recomputation of a framework that replays whole ones where no rank
/// communicates within them (Framework::replays_passes); all that is left is to compare its calls.
/// Checked by: tests/costmodel/operators/experts_test.cpp,
/// tests/costmodel/time/stage_terms_test.cpp.
[[nodiscard]] inline HostShares host_shares(const ParallelPlan& plan, bool experts, bool replayed) {
  constexpr double kOneGraph = 0.05;
  switch (plan.cuda_graphs) {
    case CudaGraphs::none:
      if (replayed && plan.tp * plan.cp * plan.ep == 1) return {kOneGraph, kOneGraph, kOneGraph};
      return {};
    case CudaGraphs::layers:
      if (experts) return {0.5, 0.5, 1};
      return {plan.overlap_ep ? 0.5 : kOneGraph, 1, 1};
    case CudaGraphs::full_iteration: break;
  }
  return {0, 0, 0};
}

/// Launches that Calibration::host_experts stands for.
inline constexpr double kLaunchesOfExperts = 100;

/// Launches that experts add to a layer, forward and backward, in units of these:
///
///   (52 · experts + (6 + q + 8 with biases) · E · products) / 100
///
///   E   local experts; a framework with one kernel for all of them counts as 100 for any number
///   q   of quantisation: 12 with a scale per tensor, 8 with one per block
///
/// A profile of Qwen3-30B-A3B, 8 local experts in bf16, has 463,348 kernels in 64 microbatches of
/// 48 layers, 151 each (Megatron-Bridge 067f987d, skills/nemo-mbridge-perf-moe-comm-overlap), about
/// 50 of which a dense layer has too. An expert has two products in the forward and four in the
/// backward (TransformerEngine v2.9, grouped_linear.py); in fp8 four quantised tensors: amax, scale
/// and cast of each, or the cast and the allocation of its scales where these need no maximum of
/// the whole (csrc/extensions/cast.cpp, split_quantize); the down projection's bias is added expert
/// by expert (Megatron-LM core_v0.16.1, moe/experts.py, _apply_bias: three operations and five
/// backward). Checked by: tests/costmodel/operators/experts_test.cpp.
[[nodiscard]] inline double expert_launches(const Framework& framework, const MixtureOfExperts& moe,
                                            const PrecisionRecipe& precision, int ep,
                                            const HostShares& shares) {
  if (!framework.product_per_expert) return shares.experts;
  const double local = static_cast<double>(moe.experts) / ep;
  constexpr double kPerTensor = 12;
  constexpr double kPerBlock = 8;
  const bool blocks = precision.fp8_input > 1;  // scales are kept next to the values
  const double quantised = precision.compute != Dtype::fp8 ? 0 : blocks ? kPerBlock : kPerTensor;
  const double each = 6 + quantised + (moe.expert_bias ? 8 : 0);
  return (52 * shares.experts + each * local * shares.products) / kLaunchesOfExperts;
}

}  // namespace echelon
