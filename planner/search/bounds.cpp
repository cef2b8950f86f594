#include "planner/search/bounds.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/expects.hpp"

namespace echelon {

LayerAndEnds layer_and_ends(const StageModel& model, int pp, LayerCounts one, bool selective) {
  const auto time = [&](int index, LayerCounts layers) {
    const LayerCounts again = selective ? layers : LayerCounts{};
    return model.times({.index = index, .layers = layers, .selective = again}).total();
  };
  // A stage past the last one has neither embedding nor head.
  return {time(pp, one), time(0, {}), time(pp - 1, {})};
}

Seconds least_slowest(int layers, int pp, const LayerAndEnds& times) {
  const auto whole = [&](Seconds time) { return std::floor(time / times.layer + kRounding); };
  const auto next = [&](Seconds end, double held) { return end + (held + 1) * times.layer; };
  const Seconds all = layers * times.layer + times.embedding + times.head;
  Seconds slowest = std::max({times.embedding, times.head, all / pp});
  while (true) {
    const double first = whole(slowest - times.embedding);
    const double middle = whole(slowest);
    const double last = whole(slowest - times.head);
    if (first + (pp - 2) * middle + last >= layers) return slowest * (1 - kRounding);
    slowest = std::min(next(times.embedding, first), next(times.head, last));
    if (pp > 2) slowest = std::min(slowest, next(Seconds{}, middle));
  }
}

LayerTimes layer_times(const CostModel& cost_model, const StageModel& model, int pp,
                       bool selective) {
  // A stage past the last one has neither embedding nor head; its time is linear in its layers.
  const auto time = [&](LayerCounts layers, LayerCounts recomputed) {
    Stage stage{.index = pp, .layers = layers, .recomputed = recomputed};
    if (selective) stage.selective = layers;
    return model.times(stage).total();
  };
  const int layers = cost_model.model().layers;
  const int moe = cost_model.moe_before(layers);
  LayerTimes out;
  if (moe < layers) {
    out.dense = time({1, 0}, {});
    if (!selective) out.dense_recompute = time({1, 0}, {1, 0}) - out.dense;
  }
  if (moe > 0) {
    out.moe = time({0, 1}, {});
    if (!selective) out.moe_recompute = time({0, 1}, {0, 1}) - out.moe;
  }
  return out;
}

std::optional<FullStage> full_stage(const CostModel& cost_model, const LayerTimes& times, int vpp,
                                    int held, int recomputed) {
  const auto& [dense, moe, dense_recompute, moe_recompute] = times;
  const int layers = cost_model.model().layers;
  const int repeated = std::min(recomputed, held);
  if (vpp > 1 && !cost_model.one_kind()) {  // any of them may come together
    if (held > layers) return std::nullopt;
    const int experts = cost_model.moe_before(layers);
    const auto lightest = [&](int count, Seconds of_dense, Seconds of_moe) {
      const int moe =
          of_moe < of_dense ? std::min(count, experts) : std::max(0, count - (layers - experts));
      return (count - moe) * of_dense + moe * of_moe;
    };
    const Seconds recompute = lightest(repeated, dense_recompute, moe_recompute);
    const Seconds total = lightest(held, dense, moe) + recompute;
    return FullStage{total * (1 - kRounding), recompute * (1 - kRounding)};
  }
  std::optional<FullStage> least;
  for (int begin = 0; begin + held <= layers; ++begin) {
    const auto sum = [&](int count, Seconds of_dense, Seconds of_moe) {
      const int experts = cost_model.moe_before(begin + count) - cost_model.moe_before(begin);
      return (count - experts) * of_dense + experts * of_moe;
    };
    const Seconds recompute = sum(repeated, dense_recompute, moe_recompute);
    const Seconds total = sum(held, dense, moe) + recompute;
    least = least ? FullStage{std::min(least->total, total), std::min(least->recompute, recompute)}
                  : FullStage{total, recompute};
    if (cost_model.one_kind()) break;  // they are alike wherever they begin
  }
  if (!least) return std::nullopt;
  return FullStage{least->total * (1 - kRounding), least->recompute * (1 - kRounding)};
}

Seconds least_update(const CostModel& cost_model, const StageModel& model,
                     const ParallelPlan& plan) {
  const int layers = cost_model.model().layers;
  const int experts = cost_model.moe_before(layers);
  const int held = (layers + plan.pp - 1) / plan.pp;
  // Linear in the layers of each kind: as many dense ones as there are, or as few.
  const auto update = [&](int moe) {
    return model.optimizer({.index = plan.pp, .layers = {held - moe, moe}});
  };
  const Seconds least =
      std::min(update(std::max(0, held - (layers - experts))), update(std::min(held, experts)));
  if (plan.pp == 1) return least;
  const LayerCounts all{layers - experts, experts};
  const Seconds layers_behind =  // copies of offloaded activations count too
      std::max(model.times({.index = plan.pp, .layers = all, .recomputed = all}).backward,
               model.times({.index = plan.pp, .layers = all}).backward);
  const Seconds behind = layers_behind + model.times({.index = 0, .layers = {}}).backward;
  return least - behind / plan.vpp - (plan.pp - 1) * model.hop();
}

FullStage fullest_stage(const CostModel& cost_model, const LayerTimes& times, int pp, int vpp,
                        int recomputed) {
  const int held = (cost_model.model().layers + pp - 1) / pp;
  const std::optional<FullStage> stage = full_stage(cost_model, times, vpp, held, recomputed);
  EXPECTS(stage, "no stage holds at least its share of the layers");
  FullStage least = *stage;
  if (cost_model.one_kind()) return least;
  // Some stage holds its share of each kind. In place of one of these it may recompute a layer of
  // the other kind, if it holds one.
  const auto of_kind = [&](int count, Seconds layer, Seconds again, Seconds other) {
    const int share = (count + pp - 1) / pp;
    const Seconds total = share * layer + std::min(recomputed, share) * std::min(again, other);
    least.total = std::max(least.total, total * (1 - kRounding));
  };
  const int experts = cost_model.moe_before(cost_model.model().layers);
  of_kind(experts, times.moe, times.moe_recompute, times.dense + times.dense_recompute);
  of_kind(cost_model.model().layers - experts, times.dense, times.dense_recompute,
          times.moe + times.moe_recompute);
  return least;
}

}  // namespace echelon
