// What the slowest of a pipeline's stages takes at least, because layers come whole.
#pragma once

#include "costmodel/time/stage_model.hpp"

namespace echelon {

/// Time of one layer, and of what the first and the last stage have beside theirs.
struct LayerAndEnds {
  Seconds layer, embedding, head;
};

/// The same of one microbatch, forward and backward, nothing recomputed; `one` is a single layer.
[[nodiscard]] LayerAndEnds layer_and_ends(const StageModel& model, int pp, LayerCounts one);

/// The least time T that the slowest of pp > 1 stages can take when each holds whole layers:
///   ⌊(T − embedding)/layer⌋ + (pp − 2)·⌊T/layer⌋ + ⌊(T − head)/layer⌋ ≥ layers
/// Assumes layers of one kind. A billionth less, so that rounding never cuts off an equal.
/// Checked by: tests/planner/split_test.cpp (against all compositions).
[[nodiscard]] Seconds least_slowest(int layers, int pp, const LayerAndEnds& times);

/// What a stage of many layers takes at least, and what of it is recomputation.
struct FullStage {
  Seconds total, again;
};

/// A stage that holds `held` consecutive layers or more and recomputes the first `recomputed` of
/// them: the least of each over all places where they may begin. For layers of any kinds. Of pp
/// stages one holds ⌈L/pp⌉. A billionth less, as above.
/// Checked by: tests/planner/split_test.cpp (against all compositions).
[[nodiscard]] FullStage full_stage(const CostModel& cost_model, const StageModel& model, int pp,
                                   int held, int recomputed);

/// ⌈L/pp⌉.
[[nodiscard]] inline int fullest(const CostModel& cost_model, int pp) {
  return (cost_model.model().layers + pp - 1) / pp;
}

}  // namespace echelon
