// The fastest recomputation with which a stage fits.
#pragma once

#include <span>

#include "costmodel/time/stage_model.hpp"

namespace echelon {

/// Sets what `stage` recomputes under `policy`, and returns whether it then fits into `usable`.
/// `moe_before[i]` counts the MoE layers among the first i of the model or of the stage; the stage
/// holds the layers between its entries, whose differences alone matter.
///   none, selective   nothing, or every layer's attention core
///   full              the fewest whole layers: memory falls with each after the first
///   mixed             of all (k whole layers, s attention cores of the layers after them) that fit
///                     the one that takes least time; found by the smallest s for every k, up to
///                     the k that alone takes as long as the best
/// Checked by: tests/planner/search/partition_test.cpp (against all pairs).
[[nodiscard]] bool choose_recompute(const StageModel& model, Recompute policy,
                                    std::span<const int> moe_before, Bytes usable, Stage& stage);

/// choose_recompute for every stage of a plan with its layers as they are, into the plan's counts.
/// False when some stage does not fit.
[[nodiscard]] bool recompute_each_stage(const CostModel& cost_model, const ShardingCosts& costs,
                                        Bytes usable, ParallelPlan& plan);

}  // namespace echelon
