// The stages and chunks of a plan: which layers each holds and recomputes.
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

/// `size` layers of a rank that follow `before` others of that rank and start with layer `begin`,
/// recomputed as the plan has it of its entry `owner`.
Stage part_of(const CostModel& cost_model, const ParallelPlan& plan, int rank, int owner, int size,
              int before, int begin, std::optional<int> chunk = {}) {
  const auto count = [&](int first, int end) {
    const int moe = cost_model.moe_before(end) - cost_model.moe_before(first);
    return LayerCounts{end - first - moe, moe};
  };
  const RecomputedLayers recomputed = recomputed_layers(plan, owner, before, size);
  const int full = begin + recomputed.full;
  return {.index = rank,
          .layers = count(begin, begin + size),
          .recomputed = count(begin, full),
          .selective = count(full, full + recomputed.selective),
          .chunk = chunk};
}

/// Every chunk of the plan, in the order of the virtual stages, with the layer that it begins with.
template <class Visit>
void visit_chunks(const CostModel& cost_model, const ParallelPlan& plan, const Visit& visit) {
  const StagePlacement placement = placement_of(plan);
  std::vector<int> held(static_cast<std::size_t>(plan.pp), 0);
  const bool copied = plan.copies() > 1;
  int begin = 0;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const int rank = placement.rank_of(stage);
    const int chunk = stage / plan.pp;
    const int size = layers_in_chunk(plan, rank, chunk);
    if (placement.enters(stage)) begin = 0;  // of DualPipe's second copy of the model
    const int owner = copied ? stage % plan.pp : rank;
    int& before = held[static_cast<std::size_t>(rank)];
    visit(part_of(cost_model, plan, rank, owner, size, copied ? 0 : before, begin, chunk), begin);
    before += size;
    begin += size;
  }
}

}  // namespace

void chunks_of(const CostModel& cost_model, const ParallelPlan& plan, std::vector<Stage>& out) {
  out.clear();
  visit_chunks(cost_model, plan, [&](const Stage& part, int) { out.push_back(part); });
}

void stages_of(const CostModel& cost_model, const ParallelPlan& plan, std::vector<Stage>& out) {
  out.assign(static_cast<std::size_t>(plan.pp), Stage{});
  if (cost_model.one_kind() &&
      plan.copies() == 1) {  // then it does not matter which layers a rank's chunks hold
    for (int rank = 0; rank < plan.pp; ++rank) {
      out[static_cast<std::size_t>(rank)] =
          part_of(cost_model, plan, rank, rank,
                  plan.layers_per_stage[static_cast<std::size_t>(rank)], 0, 0);
    }
    return;
  }
  const bool places_matter = cost_model.framework().fixed_blocks && plan.copies() == 1;
  visit_chunks(cost_model, plan, [&](const Stage& part, int begin) {
    Stage& stage = out[static_cast<std::size_t>(part.index)];
    stage.index = part.index;
    if (places_matter) stage.begins.push_back(begin);
    if (plan.copies() > 1 && part.chunk == 0) {
      stage.first_chunk = {part.layers, part.recomputed, part.selective};
    }
    stage.layers += part.layers;
    stage.recomputed += part.recomputed;
    stage.selective += part.selective;
  });
}

}  // namespace echelon
