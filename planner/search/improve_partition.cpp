#include "planner/search/improve_partition.hpp"

#include <algorithm>

#include "core/base/expects.hpp"
#include "planner/search/bounds.hpp"
#include "planner/search/enumerate.hpp"
#include "planner/search/layer_partitioner.hpp"
#include "planner/search/offload_fraction.hpp"
#include "planner/search/partition.hpp"

namespace echelon {
namespace {

/// The best partition under the policy of the point that reserves at most `limit`, accepted.
/// Returns the limit below it at which another one matters. `partitioner` of the plan in `work`.
std::optional<Bytes> accept_best(const SearchContext& context, const PendingPartition& open,
                                 SearchPoint point, Bytes limit, LayerPartitioner& partitioner,
                                 Findings& found, Priced& work) {
  EXPECTS(fill_plan(context.request, point, work.plan), "a point that was legal before");
  found.count_partitioned();
  partitioner.set_limits(limit, found.pool.bound_of(point, open.weight));
  std::optional<LayerPartition> partition = best_partition(
      partitioner, point.recompute.kind == Recompute::full && context.all_or_none(point.pp));
  if (!partition) return std::nullopt;
  apply_partition(*partition, work.plan);
  point.recompute_layers =
      *std::max_element(work.plan.recompute_layers.begin(), work.plan.recompute_layers.end());
  context.cost_model.price_memory(work.plan, *open.costs, work.memory);
  // Blocks of a whole plan may be larger than those of its stages one by one (block_memory.cpp).
  if (work.memory.peak_reserved > limit) return std::nullopt;
  context.cost_model.price_time(work.plan, *open.costs, work.memory.contents, work.time);
  found.accept(point, *open.costs, work, *std::move(partition));
  return found.pool.next_limit(open.weight);
}

}  // namespace

void improve_partition(const SearchContext& context, const PendingPartition& open, Findings& found,
                       Priced& work) {
  SearchPoint point = open.point;
  point.recompute_layers = 0;
  const auto fill = [&] {
    EXPECTS(fill_plan(context.request, point, work.plan), "a point that was legal before");
  };
  fill();
  LayerPartitioner partitioner(context.cost_model, work.plan, *open.costs);
  for (const double fraction : offload_fractions(context, open.point)) {
    point.offload_optimizer = fraction;
    // The step rises with the fraction.
    const bool between = fraction > open.point.offload_optimizer;
    if (between &&
        !found.pool.matters(point, least_times_with_traffic(context, point, *open.costs).step,
                            open.weight)) {
      return;
    }
    point.recompute = Recompute::none;
    fill();
    partitioner.follow_policy();
    partitioner.set_limits(context.usable, found.pool.bound_of(point, open.weight));
    if (!any_partition_may_win(partitioner)) return;
    for (const RecomputePolicy& recompute : context.recomputes(point)) {
      point.recompute = recompute;
      fill();  // for the partitioner
      partitioner.follow_policy();
      const Seconds least = partitioner.least_step(partitioner.lower_bound(0));
      std::optional<Bytes> limit =
          found.pool.first_limit(point, std::max(open.least, least), open.weight);
      while (limit) limit = accept_best(context, open, point, *limit, partitioner, found, work);
    }
  }
}

}  // namespace echelon
