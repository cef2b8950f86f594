#include "planner/search/recompute.hpp"

#include <optional>
#include <vector>

namespace echelon {
namespace {

/// One stage, and what of it is tried.
class Recomputation {
 public:
  Recomputation(const StageModel& model, std::span<const int> moe_before, Bytes usable,
                Stage& stage)
      : model_(model),
        moe_before_(moe_before),
        usable_(usable),
        stage_(stage),
        layers_(static_cast<int>(moe_before.size()) - 1) {}

  [[nodiscard]] int layers() const { return layers_; }
  void set(int full, int selective) {
    stage_.recomputed = count(0, full);
    stage_.selective = count(full, full + selective);
  }
  bool fits(int full, int selective) {
    set(full, selective);
    return model_.reserved(model_.memory(stage_)) <= usable_;
  }
  Seconds time(int full, int selective) {
    set(full, selective);
    return model_.times(stage_).total();
  }

 private:
  [[nodiscard]] LayerCounts count(int begin, int end) const {
    const int moe =
        moe_before_[static_cast<std::size_t>(end)] - moe_before_[static_cast<std::size_t>(begin)];
    return {end - begin - moe, moe};
  }

  const StageModel& model_;
  std::span<const int> moe_before_;
  Bytes usable_;
  Stage& stage_;
  int layers_;
};

/// Smallest number in (low, high] that fits, when `high` does and `low` does not.
template <class Fits>
int smallest(int low, int high, Fits fits) {
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

bool fewest_full(Recomputation& stage) {
  const int all = stage.layers();
  if (stage.fits(0, 0)) return true;
  if (!stage.fits(all, 0)) return false;
  stage.set(smallest(0, all, [&](int full) { return stage.fits(full, 0); }), 0);
  return true;
}

bool fastest_mix(Recomputation& stage) {
  if (stage.fits(0, 0)) return true;
  std::optional<Seconds> best;
  int best_full = 0;
  int best_selective = 0;
  for (int full = 0; full <= stage.layers(); ++full) {
    if (best && stage.time(full, 0) >= *best) break;
    const int rest = stage.layers() - full;
    int selective = 0;
    if (!stage.fits(full, 0)) {
      if (!stage.fits(full, rest)) continue;
      selective = smallest(0, rest, [&](int cores) { return stage.fits(full, cores); });
    }
    const Seconds time = stage.time(full, selective);
    if (best && time >= *best) continue;
    best = time;
    best_full = full;
    best_selective = selective;
  }
  stage.set(best_full, best_selective);
  return best.has_value();
}

/// MoE layers among the first i layers of one rank, for every i, chunk after chunk.
std::vector<int> moe_before_of(const CostModel& cost_model, const ParallelPlan& plan, int of_rank) {
  std::vector<int> before{0};
  int layer = 0;
  const StagePlacement placement = placement_of(plan);
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const int rank = placement.rank_of(stage);
    const int end = layer + layers_in_chunk(plan, rank, stage / plan.pp);
    for (; layer < end; ++layer) {
      if (rank != of_rank) continue;
      before.push_back(before.back() + cost_model.moe_before(layer + 1) -
                       cost_model.moe_before(layer));
    }
  }
  return before;
}

}  // namespace

bool choose_recompute(const StageModel& model, Recompute policy, std::span<const int> moe_before,
                      Bytes usable, Stage& stage) {
  Recomputation tried(model, moe_before, usable, stage);
  switch (policy) {
    case Recompute::none: return tried.fits(0, 0);
    case Recompute::selective: return tried.fits(0, tried.layers());
    case Recompute::full: return fewest_full(tried);
    case Recompute::mixed: return fastest_mix(tried);
  }
  return false;
}

bool recompute_each_stage(const CostModel& cost_model, const ShardingCosts& costs, Bytes usable,
                          ParallelPlan& plan) {
  const StageModel model(cost_model, plan, costs);
  std::vector<Stage> stages;
  stages_of(cost_model, plan, stages);
  for (int rank = 0; rank < plan.pp; ++rank) {
    const auto s = static_cast<std::size_t>(rank);
    const std::vector<int> moe_before = moe_before_of(cost_model, plan, rank);
    const int layers = plan.layers_per_stage[s];
    Stage stage{.index = rank,
                .layers = {layers - moe_before.back(), moe_before.back()},
                .begins = stages[s].begins};
    if (!choose_recompute(model, plan.recompute, moe_before, usable, stage)) return false;
    plan.recompute_layers[s] = stage.recomputed.total();
    if (plan.recompute == Recompute::mixed) plan.selective_layers[s] = stage.selective.total();
  }
  return true;
}

}  // namespace echelon
