#include "planner/search/offload_fraction.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/expects.hpp"
#include "planner/search/enumerate.hpp"
#include "planner/search/partition.hpp"
#include "planner/search/price_point.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

/// Whether the balanced plan certainly fits with nothing recomputed and nothing offloaded.
bool fits_without_offload(const SearchContext& context, SearchPoint point, Bytes limit,
                          const ShardingCosts& costs, Priced& work) {
  constexpr double kCertain = 0.999;
  point.recompute = Recompute::none;
  point.recompute_layers = 0;
  point.offload_optimizer = 0;
  price_memory(context, point, costs, work);
  return work.memory.peak_reserved <= std::min(limit, memory_limit(context.request, kCertain));
}

}  // namespace

std::vector<double> offload_fractions(const SearchContext& context, const SearchPoint& point) {
  const double own = point.offload_optimizer;
  std::vector<double> fractions{own};
  if (own <= 0 || own >= 1) return fractions;
  if (context.request.constraints.has<&ParallelPlan::offload_optimizer>()) return fractions;
  const PlanRequest& request = context.request;
  ParallelPlan plan = degrees_of(request, point);
  for (const double larger : kOffloadParts) {
    if (larger <= own) continue;
    plan.offload_optimizer = larger;
    if (check_sharding(request.model, request.job, request.cluster, request.framework, plan)) break;
    fractions.push_back(larger);
  }
  return fractions;
}

bool open_offload_fractions(const SearchContext& context, SearchPoint point,
                            const PointBound& bound, Bytes limit, Findings& found, Priced& work) {
  const ShardingCosts& costs = bound.costs;
  const double most = point.offload_optimizer;
  const double weight = least_weight(
      context.request, features_of_degrees(context.request, degrees_of(context.request, point)));
  point.recompute = context.recomputes(point).back();
  point.recompute_layers = 0;
  Seconds least = bound.least;
  const auto may_win = [&](const LeastRecomputation& recomputed,
                           std::optional<double> most_offloaded) {
    EXPECTS(fill_plan(context.request, point, work.plan), "a point that was legal before");
    return partition_may_win(
        context.cost_model, work.plan, costs,
        [&](Seconds step) { return found.pool.first_limit(point, std::max(least, step), weight); },
        found.pool.bound_of(point, weight), context.recomputes(point), recomputed, most_offloaded);
  };
  const auto smaller = std::ranges::lower_bound(kOffloadParts, most) - kOffloadParts.begin();
  const std::span parts(kOffloadParts.begin(), static_cast<std::size_t>(smaller));
  bool asked = false;
  ParallelPlan plan = degrees_of(context.request, point);
  for (const double fraction : parts) {
    plan.offload_optimizer = fraction;  // a framework may offload all or none
    if (check_sharding(context.request.model, context.request.job, context.request.cluster,
                       context.request.framework, plan)) {
      continue;
    }
    point.offload_optimizer = fraction;
    const auto least_step = [&](const LeastRecomputation& recomputed) {
      return least_times_with_traffic(context, point, costs, recomputed).step;
    };
    least = std::max(least, least_step({}));  // larger fractions may recompute less
    if (!found.pool.matters(point, least, weight)) return false;
    // Of all fractions the largest needs least recomputation: known from the point itself.
    const LeastRecomputation of_most = bound.needed.of(point.zero, most);
    if (!found.pool.matters(point, least_step(of_most), weight)) return false;
    if (!std::exchange(asked, true)) {  // the same for every fraction
      if (fits_without_offload(context, point, limit, costs, work)) return false;
      if (!may_win(of_most, parts.back())) return false;
    }
    const LeastRecomputation recomputed = bound.needed.of(point.zero, fraction);
    if (!found.pool.matters(point, least_step(recomputed), weight)) continue;
    if (!may_win(recomputed, std::nullopt)) continue;
    found.pending({least, point, &costs, weight});
    return true;
  }
  return false;
}

}  // namespace echelon
