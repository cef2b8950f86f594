#include "planner/search/exchange_layers.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "planner/search/visit_point.hpp"

namespace echelon {
namespace {

/// A split whose closed form is longer by more does not simulate shorter.
constexpr double kNearlyAsGood = 0.005;
/// The most plans whose layers are exchanged: simulations of many stages take long.
constexpr int kMostPlans = 8;

/// Layers per stage of points.
using Splits = std::set<std::pair<SearchPoint, std::vector<int>>>;

bool exchanges(const SearchContext& context, const SearchPoint& point) {
  const bool none_whole =
      point.recompute.kind == Recompute::none || point.recompute.kind == Recompute::selective;
  return point.pp > 1 && none_whole && may_be_partitioned(context, point);
}

/// Prices the splits of `plan`, that of `leading`, in which one layer moved.
void price_neighbours(const SearchContext& context, const ShardingCosts& costs,
                      const PricedPoint& leading, const ParallelPlan& plan, Findings& found,
                      Splits& known, Priced& work) {
  const SearchPoint& point = leading.point;
  const auto fewest = [&](int stage) {
    return fewest_layers(context.request.framework, plan.pp, plan.vpp, stage);
  };
  const auto is_end = [&](int stage) { return stage == 0 || stage + 1 == plan.pp; };
  for (int from = 0; from < plan.pp; ++from) {
    if (plan.layers_per_stage[static_cast<std::size_t>(from)] <= fewest(from)) continue;
    for (int to = 0; to < plan.pp; ++to) {
      if (to == from || (std::abs(to - from) > 1 && !is_end(from) && !is_end(to))) continue;
      work.plan = plan;
      std::vector<int>& layers = work.plan.layers_per_stage;
      --layers[static_cast<std::size_t>(from)];
      ++layers[static_cast<std::size_t>(to)];
      if (!known.emplace(point, layers).second) continue;
      context.cost_model.price_memory(work.plan, costs, work.memory);
      if (work.memory.peak_reserved > context.usable) continue;
      context.cost_model.price_time(work.plan, costs, work.memory.contents, work.time);
      if (work.time.closed_form > leading.closed_form * (1 + kNearlyAsGood)) continue;
      LayerPartition split{.layers = layers,
                           .recomputed = plan.recompute_layers,
                           .selective = plan.selective_layers,
                           .step = work.time.closed_form};
      found.accept(point, costs, work, std::move(split));
    }
  }
}

}  // namespace

void exchange_layers(const SearchContext& context, const CostsOfShardings& costs, Findings& found) {
  Splits known;  // priced
  Splits done;   // … and their neighbours, too
  ParallelPlan plan;
  Priced work;
  int plans = 0;
  for (bool any = true; any && plans < kMostPlans;) {
    found.pool.settle(costs);
    any = false;
    std::vector<std::size_t> leading = found.pool.listed(1);
    for (const auto& each : {found.pool.fastest(), found.pool.fastest_safe()}) {
      if (each) leading.push_back(*each);
    }
    for (const std::size_t i : leading) {
      const PricedPoint leading_plan = found.pool.plans()[i];  // a copy: plans are added
      const SearchPoint& point = leading_plan.point;
      if (!exchanges(context, point)) continue;
      found.pool.fill(leading_plan, plan);
      if (!done.emplace(point, plan.layers_per_stage).second) continue;
      known.emplace(point, plan.layers_per_stage);
      price_neighbours(context, costs.at(CostsKey(point)), leading_plan, plan, found, known, work);
      any = true;
      ++plans;
    }
  }
}

}  // namespace echelon
