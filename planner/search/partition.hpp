// The exact partition of layers over the stages of one point: dynamic programming over Pareto
// fronts.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "costmodel/time/stage_model.hpp"
#include "planner/search/layer_partition.hpp"
#include "planner/space/recompute_policy.hpp"

namespace echelon {

class LayerPartitioner;  // layer_partitioner.hpp

/// Fastest partition of the layers over the stages of the partitioner's plan such that every stage
/// fits, or nothing when no partition takes less than the bound: LayerPartitioner::set_limits. Each
/// stage recomputes what is
/// fastest for it (`per_stage`), or all stages the same number of layers; with `every_layer` all
/// that they hold.
///
/// States after s stages and a position (chunk_positions.hpp) are (Σ t, max t, latest finish,
/// exposed gather, forwards and backwards before); one that takes no less time than another
/// whatever follows is dropped, so no optimum is lost:
///   step = (pipeline(Σ t, max t) + max_s(reduction + optimizer − backwards before s)
///           + exposed gather + fixed) · (1 + straggler)
///   pipeline = Σ t + (m − 1)·max t + hops, interleaved m·max t + (Σ t − max t)/v + hops; ZB-H1:
///              pipeline_time()
/// Later finishes subtract the backwards before them (interleaved: 1/v of them), of which a smaller
/// Σ t has fewer. The pipeline is shorter by as much, but under ZB-H1 only by a third to two thirds
/// of it; so the difference of two states is bounded as a whole (LayerPartitioner::no_better).
/// Source: pipeline partition with Pareto fronts, ours; objective of Alpa (arXiv 2201.12023).
/// Checked by: tests/planner/search/partition_test.cpp (against all compositions).
[[nodiscard]] std::optional<LayerPartition> best_partition(LayerPartitioner& partitioner,
                                                           bool every_layer = false);

/// False when no partition takes less than the bound, whatever it recomputes and however much
/// memory there is. Cheap; true is no promise. The partitioner's plan recomputes nothing.
[[nodiscard]] bool any_partition_may_win(LayerPartitioner& partitioner);

/// What the plans of a point have to recompute at least in order to fit: so many whole layers of
/// every stage (or all that it holds), or all of them by the selective policy, if there is one.
struct LeastRecomputation {
  int full = 0;
  std::optional<RecomputePolicy> selective{};
  bool whole = true;  ///< whole layers may be recomputed; else only the policy counts
  bool fits = true;   ///< false: nothing fits, whatever is recomputed
  bool operator==(const LeastRecomputation&) const = default;
};

/// What a stage of a partition may reserve whose step is at least so long; nothing: none matters.
using MemoryLimit = std::function<std::optional<Bytes>(Seconds)>;

/// False when no partition that takes less than `bound` reserves at most `limit`, whichever of
/// `policies` it recomputes by; those that free less than `needed` are not looked at. Cheap; true
/// is no promise. Leaves the last policy in `plan`. With `most_offloaded` false only where that is
/// so of every part of the optimizer on the host from the plan's up to that: what it takes is the
/// plan's, what it reserves that of the largest part.
[[nodiscard]] bool partition_may_win(const CostModel& cost_model, ParallelPlan& plan,
                                     const ShardingCosts& costs, const MemoryLimit& limit,
                                     std::optional<Seconds> bound,
                                     std::span<const RecomputePolicy> policies,
                                     const LeastRecomputation& needed = {},
                                     std::optional<double> most_offloaded = {});

/// That for any partition of the layers to fit, whatever its schedule, where `policies` are none,
/// selective ones by rising time, and maybe full: `plan` is 1F1B, which keeps least of all
/// schedules. Of the selective policies the first that may fit, next to which one whole layer is
/// the least, since none does not fit. All layers where nothing fits. Overwrites the plan's policy.
[[nodiscard]] LeastRecomputation least_recomputation(const CostModel& cost_model,
                                                     ParallelPlan& plan, const ShardingCosts& costs,
                                                     Bytes usable,
                                                     std::span<const RecomputePolicy> policies);

/// False when no partition of the layers fits, whatever one of `policies` lets each stage
/// recompute. Cheap; true is no promise (layers of two kinds are not looked at). Overwrites the
/// plan's policy.
[[nodiscard]] bool partition_may_fit(const CostModel& cost_model, ParallelPlan& plan,
                                     const ShardingCosts& costs, Bytes usable,
                                     std::span<const RecomputePolicy> policies);

}  // namespace echelon
