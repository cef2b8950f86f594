#include "planner/search/improve_partition.hpp"

#include <algorithm>

#include "core/base/expects.hpp"
#include "planner/search/bounds.hpp"
#include "planner/search/enumerate.hpp"
#include "planner/search/offload_fraction.hpp"
#include "planner/search/partition.hpp"

namespace echelon {

void improve_partition(const SearchContext& context, const PendingPartition& open, Findings& found,
                       Priced& work) {
  SearchPoint point = open.point;
  std::optional<Seconds> bound = just_below(open.balanced);
  if (!context.request.exhaustive) bound = smaller(bound, just_above(found.incumbent()));
  for (const double fraction : offload_fractions(context, open.point)) {
    point.offload_optimizer = fraction;
    // The step rises with the fraction.
    const bool between = fraction > open.point.offload_optimizer;
    if (between && bound && least_time_with_traffic(context, point, *open.costs) >= *bound) return;
    for (const Recompute recompute : context.recomputes) {
      point.recompute = recompute;
      point.recompute_layers = 0;
      EXPECTS(fill_plan(context.request, point, work.plan), "a point that was legal before");
      found.count_partitioned();
      std::optional<LayerPartition> partition =
          best_partition(context.cost_model, work.plan, *open.costs, context.usable, bound);
      if (!partition) continue;
      bound = partition->step;
      apply_partition(*partition, work.plan);
      point.recompute_layers =
          *std::max_element(work.plan.recompute_layers.begin(), work.plan.recompute_layers.end());
      context.cost_model.price_memory(work.plan, *open.costs, work.memory);
      context.cost_model.price_time(work.plan, *open.costs, work.memory.contents, work.time);
      found.accept(point, work, *std::move(partition));
    }
  }
}

}  // namespace echelon
