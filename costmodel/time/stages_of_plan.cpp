// The stages and chunks of a plan: which layers each holds and recomputes.
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

/// `size` layers of a rank that follow `before` others of that rank and start with layer `begin`.
Stage part_of(const CostModel& cost_model, const ParallelPlan& plan, int rank, int size, int before,
              int begin) {
  const auto count = [&](int first, int end) {
    const int moe = cost_model.moe_before(end) - cost_model.moe_before(first);
    return LayerCounts{end - first - moe, moe};
  };
  const RecomputedLayers recomputed = recomputed_layers(plan, rank, before, size);
  const int full = begin + recomputed.full;
  return {.index = rank,
          .layers = count(begin, begin + size),
          .recomputed = count(begin, full),
          .selective = count(full, full + recomputed.selective)};
}

}  // namespace

void chunks_of(const CostModel& cost_model, const ParallelPlan& plan, std::vector<Stage>& out) {
  const auto ranks = static_cast<std::size_t>(plan.pp);
  std::vector<int> held(ranks, 0);
  out.clear();
  int begin = 0;
  for (int chunk = 0; chunk < plan.vpp; ++chunk) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const int size = layers_in_chunk(plan, static_cast<int>(rank), chunk);
      out.push_back(part_of(cost_model, plan, static_cast<int>(rank), size, held[rank], begin));
      held[rank] += size;
      begin += size;
    }
  }
}

void stages_of(const CostModel& cost_model, const ParallelPlan& plan, std::vector<Stage>& out) {
  out.assign(static_cast<std::size_t>(plan.pp), Stage{});
  if (cost_model.one_kind()) {  // then it does not matter which layers a rank's chunks hold
    for (int rank = 0; rank < plan.pp; ++rank) {
      out[static_cast<std::size_t>(rank)] = part_of(
          cost_model, plan, rank, plan.layers_per_stage[static_cast<std::size_t>(rank)], 0, 0);
    }
    return;
  }
  int begin = 0;
  for (int chunk = 0; chunk < plan.vpp; ++chunk) {
    for (int rank = 0; rank < plan.pp; ++rank) {
      Stage& stage = out[static_cast<std::size_t>(rank)];
      const int size = layers_in_chunk(plan, rank, chunk);
      const Stage part = part_of(cost_model, plan, rank, size, stage.layers.total(), begin);
      stage.index = rank;
      stage.layers += part.layers;
      stage.recomputed += part.recomputed;
      stage.selective += part.selective;
      begin += size;
    }
  }
}

}  // namespace echelon
