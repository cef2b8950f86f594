#include "planner/search/visit_point.hpp"

#include <algorithm>

#include "core/base/expects.hpp"
#include "planner/search/bounds.hpp"
#include "planner/search/partition.hpp"
#include "planner/search/price_point.hpp"
#include "planner/search/recompute.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

std::optional<Rejection> broken_rule_of(const SearchContext& context, const ParallelPlan& plan) {
  const PlanRequest& request = context.request;
  return check_plan(request.model, request.job, request.cluster, request.framework, plan);
}

/// A point that can win and is not partitioned leaves the certificate open, unless equal chunks are
/// all that the framework can.
void note_unsearched(const SearchContext& context, const SearchPoint& point, Seconds least,
                     Findings& found) {
  if (point.pp == 1 || context.request.constraints.has<&ParallelPlan::layers_per_stage>()) return;
  if (point.vpp > 1 && !context.request.framework.any_layout) return;
  found.unsearched({OpenSplits::Kind::pinned_recompute, least});
}

/// Prices the point where it fits, and accepts it. Returns its step.
std::optional<Seconds> price_point(const SearchContext& context, const SearchPoint& point,
                                   const ShardingCosts& costs, Findings& found, Priced& work) {
  if (price_memory(context, point, costs, work) > Bytes{}) return std::nullopt;
  if (context.pinned_counts && broken_rule_of(context, work.plan)) return std::nullopt;
  context.cost_model.price_time(work.plan, costs, work.memory.contents, work.time);
  found.accept(point, work);
  return work.time.step;
}

/// Recomputation costs time, so of the counts of fully recomputed layers only two matter: the
/// fewest that fit (the fastest), and all (the smallest, for the Pareto front). Returns the fastest
/// step. `all`: layers of the fullest stage.
std::optional<Seconds> price_recomputations(const SearchContext& context, SearchPoint point,
                                            int all, const ShardingCosts& costs, Findings& found,
                                            Priced& work) {
  std::optional<Seconds> fastest;
  const auto price = [&] {
    fastest = smaller(fastest, price_point(context, point, costs, found, work));
  };
  for (const Recompute recompute : context.recomputes) {
    point.recompute = recompute;
    point.recompute_layers = 0;
    const bool counts = recompute == Recompute::full || recompute == Recompute::mixed;
    // Equal counts on every stage are none, selective or full.
    if (recompute == Recompute::mixed && context.recomputes.size() > 1) continue;
    if (!counts) {
      price();
      continue;
    }
    if (!context.pinned_counts) {
      const int fewest = fewest_recomputed(context, point, all, costs, work);
      if (fewest > 0 && fewest < all) {
        point.recompute_layers = fewest;
        price();
      }
    }
    point.recompute_layers = all;
    price();
  }
  return fastest;
}

/// Where layers are not partitioned but each stage may recompute on its own: the fastest for each.
/// Accepted when it is faster than `bound`. Returns whether one was.
bool price_mix(const SearchContext& context, SearchPoint point, const ShardingCosts& costs,
               std::optional<Seconds> bound, Findings& found, Priced& work) {
  if (!context.request.framework.per_stage_recompute) return false;
  bool any = false;
  for (const Recompute recompute : context.recomputes) {
    if (recompute != Recompute::full && recompute != Recompute::mixed) continue;
    point.recompute = recompute;
    point.recompute_layers = 0;
    ParallelPlan& plan = work.plan;
    EXPECTS(fill_plan(context.request, point, plan), "a point that was legal before");
    if (!recompute_each_stage(context.cost_model, costs, context.usable, plan)) continue;
    context.cost_model.price_memory(plan, costs, work.memory);
    context.cost_model.price_time(plan, costs, work.memory.contents, work.time);
    if (bound && work.time.step >= *bound) continue;
    bound = work.time.step;
    found.accept(point, work,
                 {plan.layers_per_stage, plan.recompute_layers, plan.selective_layers, *bound});
    any = true;
  }
  return any;
}

}  // namespace

bool may_be_partitioned(const SearchContext& context, const SearchPoint& point) {
  return (point.vpp == 1 || context.request.framework.any_layout) &&
         !context.request.constraints.has<&ParallelPlan::layers_per_stage>() &&
         !context.pinned_counts;
}

PointEnd visit_point(const SearchContext& context, SearchPoint point, const PointBound& bound,
                     Findings& found, Priced& work) {
  const ShardingCosts& costs = bound.costs;
  Seconds least = bound.least;
  const bool some_can_win = found.can_be_listed(least);
  // The second bound is this shard group's own: smaller groups move less.
  if (some_can_win) least = std::max(least, least_time_with_traffic(context, point, costs));
  const bool can_win = found.can_be_listed(least);
  const auto end_bounded = [&] {
    found.count_bounded();
    return some_can_win ? PointEnd::open : PointEnd::bounded;
  };
  if (!can_win && context.winners_only) return end_bounded();
  const Bytes shortage = least_shortage(context, point, costs, work);
  const bool fits = shortage <= Bytes{};
  if (!can_win && fits && found.front_dominates(least, shortage + context.usable)) {
    return end_bounded();
  }
  const bool partitioned = point.pp > 1 && may_be_partitioned(context, point);
  const bool least_held = partitioned && point.schedule == ScheduleKind::one_f_one_b;
  const bool may_fit =
      fits || (partitioned && (some_can_win || least_held) &&
               partition_may_fit(context.cost_model, work.plan, costs, context.usable));
  std::optional<Seconds> balanced;
  if (fits) {
    const std::vector<int>& layers = work.plan.layers_per_stage;
    const int all = *std::max_element(layers.begin(), layers.end());
    balanced = price_recomputations(context, point, all, costs, found, work);
  }
  bool priced = balanced.has_value();
  if (can_win && partitioned && may_fit) found.pending({least, point, &costs, balanced});
  if (can_win && !partitioned) {
    note_unsearched(context, point, least, found);
    const auto beaten = just_below(balanced);
    if (!context.pinned_counts && price_mix(context, point, costs, beaten, found, work)) {
      priced = true;
    }
  }
  if (priced) {
    found.count_fitting();
    return PointEnd::open;
  }
  if (context.pinned_counts) {  // they were not checked with the rest
    price_memory(context, point, costs, work);
    if (const auto rejection = broken_rule_of(context, work.plan)) {
      found.reject(*rejection);
      return PointEnd::open;
    }
  }
  found.too_large({shortage, point});
  if (!may_fit && least_held) return PointEnd::hopeless;
  return may_fit && some_can_win ? PointEnd::open : PointEnd::too_large;
}

}  // namespace echelon
