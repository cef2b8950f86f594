#include "planner/space/score.hpp"

#include <algorithm>
#include <vector>

#include "core/plan/process_grid.hpp"

namespace echelon {
namespace {

/// Whether plain flags give these layers per stage: all stages alike, or the first and the last
/// with numbers of their own. Source: Megatron-LM d98e8a64, training/arguments.py:
/// --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split,
/// --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers.
bool plain_layout(const std::vector<int>& layers) {
  if (layers.size() <= 3) return true;
  return std::all_of(layers.begin() + 1, layers.end() - 1,
                     [&](int each) { return each == layers[1]; });
}

/// Chunks of different sizes, but for the embedding and the loss that take the place of a layer.
bool has_unequal_chunks(const ParallelPlan& plan) {
  if (plan.vpp == 1) return false;
  const int inside = plan.pp > 2 ? plan.layers_per_stage[1] / plan.vpp : 0;
  for (int rank = 0; rank < plan.pp; ++rank) {
    const bool end = rank == 0 || rank == plan.pp - 1;
    const int layers = plan.layers_per_stage[static_cast<std::size_t>(rank)];
    const int held = layers + (end && layers % plan.vpp != 0 ? 1 : 0);
    if (held % plan.vpp != 0) return true;
    if (inside > 0 && held / plan.vpp != inside) return true;
  }
  return false;
}

bool recomputes_partly(const ParallelPlan& plan) {
  if (plan.recompute == Recompute::mixed) return true;
  if (plan.recompute != Recompute::full) return false;
  for (std::size_t s = 0; s < plan.layers_per_stage.size(); ++s) {
    if (plan.recompute_layers[s] < plan.layers_per_stage[s]) return true;
  }
  return false;
}

}  // namespace

double price_of_states(Preference preference, const PrecisionRecipe& recipe) {
  if (preference == Preference::fastest) return 0;
  constexpr double kWideGradient = 4;
  constexpr double kWideMoments = 8;
  return (recipe.main_gradient + recipe.gradient < kWideGradient ? kNarrowGradients : 0) +
         (recipe.moments < kWideMoments ? kNarrowMoments : 0);
}

double risk_factor(Preference preference) {
  switch (preference) {
    case Preference::robust: return 4;
    case Preference::balanced: return 2;
    case Preference::fastest: return 0;
  }
  return 0;
}

const MemoryBand& memory_band_of(const PlanRequest& request) {
  return memory_band_of(request.calibration, request.framework);
}

std::optional<double> fit_probability(const PlanRequest& request, Bytes reserved) {
  if (request.max_memory) return std::nullopt;
  return fit_probability(memory_band_of(request), reserved, request.capacity());
}

Bytes memory_limit(const PlanRequest& request, double probability) {
  if (request.max_memory) return *request.max_memory;
  return most_need(memory_band_of(request), probability, request.capacity());
}

Bytes PlanRequest::usable_memory() const { return memory_limit(*this, least_probability); }

UnusualFeatures features_of_degrees(const PlanRequest& request, const ParallelPlan& plan) {
  using enum UnusualFeature;
  UnusualFeatures out;
  const ProcessGrid grid(plan);
  const auto crosses = [&](Axis axis) {
    return grid.degree(axis) > 1 && request.cluster.group(grid.group(axis)).domains > 1;
  };
  if (plan.vpp > 8) out.add(many_chunks);
  if (plan.zero > 0 && plan.shard_group != plan.dp * plan.cp) out.add(shard_group);
  if (plan.offload_optimizer > 0) out.add(offload);
  const bool across =
      crosses(Axis::tp) || crosses(Axis::ep) || (plan.cp_comm != CpComm::ring && crosses(Axis::cp));
  if (across) out.add(crosses_domains);
  if (plan.pp > 1) out.add(stages);
  if (request.framework.fsdp_is_another_wrapper && plan.zero >= 2) {
    out.add(fsdp);
    if (plan.tp > 1) out.add(sharded_with_tensor);
  }
  if (plan.rank_order == RankOrder::pp_inside_dp && plan.pp > 1 && plan.dp > 1) {
    out.add(pipeline_inside_data);
  }
  if (plan.overlap_ep) out.add(overlapped_experts);
  if (plan.cuda_graphs != CudaGraphs::none) out.add(graphs);
  return out;
}

UnusualFeatures features_of(const PlanRequest& request, const ParallelPlan& plan) {
  using enum UnusualFeature;
  UnusualFeatures out = features_of_degrees(request, plan);
  if (plan.pp > 1) {
    if (has_unequal_chunks(plan)) {
      out.add(UnusualFeature::unequal_chunks);
      out.add(own_layout);
    } else if (!plain_layout(plan.layers_per_stage)) {
      out.add(own_layout);
    }
  }
  if (recomputes_partly(plan)) out.add(partial_recomputation);
  return out;
}

double least_weight(const PlanRequest& request, const UnusualFeatures& unusual) {
  return request.preference == Preference::fastest ? 1 : 1 + unusual.price();
}

Score score_of(const PlanRequest& request, const UnusualFeatures& unusual, Bytes reserved) {
  Score out;
  out.fits_probability = fit_probability(request, reserved);
  out.unusual = unusual;
  const double risk = out.fits_probability ? 1 - *out.fits_probability : 0;
  out.weight = (1 + risk_factor(request.preference) * risk) * least_weight(request, unusual);
  return out;
}

}  // namespace echelon
