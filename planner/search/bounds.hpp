// Lower bounds on the slowest stage of a pipeline: a layer is not divided between stages.
#pragma once

#include <algorithm>
#include <optional>

#include "costmodel/time/stage_model.hpp"

namespace echelon {

/// Relative. Sums of the same times in another order differ by less: bounds are lowered by it, so
/// that they never cut off an equal, and what is to be faster must be so by more.
inline constexpr double kRounding = 1e-9;

/// A simulated step is taken to be at most so much shorter than its closed form, relative, where
/// that decides which points are priced at all. Of 500 plans of many questions the largest
/// difference is 9.7 %, in stages of very unequal size, and a random search met one of 13.4 %;
/// docs/search.md.
inline constexpr double kClosedFormExcess = 0.04;

/// The larger of a proved lower bound of a simulated time and what its closed form makes of it.
[[nodiscard]] inline Seconds least_of(Seconds proved, Seconds closed_form) {
  return std::max(proved, (1 - kClosedFormExcess) * closed_form);
}

[[nodiscard]] inline std::optional<Seconds> just_above(std::optional<Seconds> time) {
  return time ? std::optional(*time * (1 + kRounding)) : std::nullopt;
}

/// Time of one layer, and of the embedding and the head on the first and the last stage.
struct LayerAndEnds {
  Seconds layer, embedding, head;
};

/// The same of one microbatch, forward and backward, nothing recomputed unless each layer is
/// `selective`ly; `one` is a single layer.
[[nodiscard]] LayerAndEnds layer_and_ends(const StageModel& model, int pp, LayerCounts one,
                                          bool selective = false);

/// The least time T that the slowest of pp > 1 stages can take when each holds whole layers:
///   ⌊(T − embedding)/layer⌋ + (pp − 2)·⌊T/layer⌋ + ⌊(T − head)/layer⌋ ≥ layers
/// Assumes layers of one kind. A billionth less, so that rounding never cuts off an equal.
/// Checked by: tests/planner/search/partition_test.cpp (against all compositions).
[[nodiscard]] Seconds least_slowest(int layers, int pp, const LayerAndEnds& times);

/// Time of one layer of each kind, and of its recomputation as a whole; zero of kinds that the
/// model lacks. With `selective` every layer is recomputed so, and none as a whole.
struct LayerTimes {
  Seconds dense, moe, dense_recompute, moe_recompute;
};
[[nodiscard]] LayerTimes layer_times(const CostModel& cost_model, const StageModel& model, int pp,
                                     bool selective = false);

/// The least time of a stage of many layers, and the recomputation in it.
struct FullStage {
  Seconds total, recompute;
};

/// A stage that holds `held` layers or more and recomputes `recomputed` of them: the least of each
/// over all places where they may begin, consecutive and the first of them recomputed; or, for
/// chunks in several places, over any layers of the model. For layers of any kinds. A billionth
/// less, as above. Nothing where the model has fewer layers than `held`.
/// Checked by: tests/planner/search/partition_test.cpp (against all compositions).
[[nodiscard]] std::optional<FullStage> full_stage(const CostModel& cost_model,
                                                  const LayerTimes& times, int vpp, int held,
                                                  int recomputed);

/// The same of the ⌈L/pp⌉ layers that one of pp stages holds at least; for layers of two kinds
/// `total` is also at least that of the stage with the most of one kind, ⌈Lₖ/pp⌉ of them.
[[nodiscard]] FullStage fullest_stage(const CostModel& cost_model, const LayerTimes& times, int pp,
                                      int vpp, int recomputed = 0);

/// How long the update of the stage with the most layers lasts at least after the first stage's
/// last backward: it begins before by the backward of one microbatch on the stages before it, at
/// most that of all layers, recomputed, and their messages.
/// Negative where it ends before.
[[nodiscard]] Seconds least_update(const CostModel& cost_model, const StageModel& model,
                                   const ParallelPlan& plan);

}  // namespace echelon
