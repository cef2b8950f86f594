#include "planner/search/offload_fraction.hpp"

#include <algorithm>
#include <array>

#include "planner/search/enumerate.hpp"
#include "planner/search/partition.hpp"
#include "planner/search/price_point.hpp"

namespace echelon {
namespace {

constexpr std::array kParts{0.2, 0.4, 0.6, 0.8};

}  // namespace

std::vector<double> offload_fractions(const SearchContext& context, const SearchPoint& point) {
  const double own = point.offload_optimizer;
  std::vector<double> fractions{own};
  if (own <= 0 || own >= 1) return fractions;
  if (context.request.constraints.has<&ParallelPlan::offload_optimizer>()) return fractions;
  for (const double larger : kParts) {
    if (larger > own) fractions.push_back(larger);
  }
  return fractions;
}

void open_offload_fractions(const SearchContext& context, SearchPoint point, Seconds least,
                            Bytes limit, const ShardingCosts& costs, Findings& found,
                            Priced& work) {
  point.recompute = Recompute::none;
  point.recompute_layers = 0;
  point.offload_optimizer = 0;
  price_memory(context, point, costs, work);
  constexpr double kCertain = 0.999;
  if (work.memory.peak_reserved <= std::min(limit, memory_limit(context.request, kCertain))) return;
  point.recompute = context.recomputes.back();
  for (const double fraction : kParts) {
    point.offload_optimizer = fraction;
    least = std::max(least, least_times_with_traffic(context, point, costs).closed_form);
    const double weight = least_weight(
        context.request, features_of_degrees(context.request, degrees_of(context.request, point)));
    if (!found.pool.matters(point, least, weight)) return;
    price_memory(context, point, costs, work);  // fills in the plan
    if (!partition_may_fit(context.cost_model, work.plan, costs, limit)) continue;
    return found.pending({least, point, &costs, weight});
  }
}

}  // namespace echelon
