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

/// A point that can win and is not partitioned leaves the certificate open, unless the framework
/// has only one partition.
void note_unsearched(const SearchContext& context, const SearchPoint& point, Seconds least,
                     Findings& found) {
  if (point.pp == 1 || context.request.constraints.has<&ParallelPlan::layers_per_stage>()) return;
  const Framework& framework = context.request.framework;
  if (point.vpp > 1 && !framework.any_layout) return;
  if (point.vpp == 1 && framework.stage_layers != StageLayers::chosen) return;
  found.unsearched({OpenSplits::Kind::pinned_recompute, least});
}

/// A point that is being priced, and what its prices are needed for.
struct PointPricing {
  const SearchContext& context;
  const ShardingCosts& costs;
  Seconds least;   ///< least step of its plans
  double weight;   ///< … and least weight
  bool for_front;  ///< else only plans that can change the answer matter
  Findings& found;
  Priced& work;
};

/// Prices the point where it reserves at most `limit`, and accepts it.
bool price_point(const PointPricing& pricing, const SearchPoint& point, Bytes limit) {
  const SearchContext& context = pricing.context;
  Priced& work = pricing.work;
  price_memory(context, point, pricing.costs, work);
  if (work.memory.peak_reserved > limit) return false;
  if (context.pinned_counts && broken_rule_of(context, work.plan)) return false;
  context.cost_model.price_time(work.plan, pricing.costs, work.memory.contents, work.time);
  pricing.found.accept(point, pricing.costs, work);
  return true;
}

/// Of the counts of fully recomputed layers, each of which costs time: the fewest that fit, and
/// more of them as long as the plan then fits with a probability that can make up for it; for the
/// front every count. Some frameworks have all layers or none. `all`: layers of the fullest stage.
bool price_full_recomputation(const PointPricing& pricing, SearchPoint point, int all) {
  bool any = false;
  const auto price = [&](int layers) {
    point.recompute_layers = layers;
    any = price_point(pricing, point, pricing.context.usable) || any;
  };
  const SearchContext& context = pricing.context;
  const bool counted = !context.pinned_counts && !context.all_or_none(point.pp);
  const auto fewest_within = [&](Bytes limit) {
    return fewest_recomputed(pricing.context, point, all, limit, pricing.costs, pricing.work);
  };
  if (counted && pricing.for_front) {
    const int fewest = fewest_within(pricing.context.usable);
    for (int layers = std::max(fewest, point.vpp); layers < all; layers += point.vpp) {
      price(layers);
    }
  }
  std::optional<Bytes> limit = context.usable;
  const bool beside_none = !context.pinned_counts && !context.every_layer;  // which was priced
  if (beside_none && !counted && !pricing.for_front) {
    SearchPoint none = point;
    none.recompute = Recompute::none;
    if (price_memory(context, none, pricing.costs, pricing.work) <= Bytes{}) {
      limit = pricing.found.pool.next_limit(none, pricing.least, pricing.weight,
                                            pricing.work.memory.peak_reserved);
    }
  }
  while (limit && counted && !pricing.for_front) {
    const int fewest = fewest_within(*limit);
    if (fewest >= all) break;
    const PlanPool& pool = pricing.found.pool;
    if (fewest > 0) {
      price(fewest);
      limit = pool.next_limit(pricing.weight);
    } else {  // the policy `none` has priced it
      limit =
          pool.next_limit(point, pricing.least, pricing.weight, pricing.work.memory.peak_reserved);
    }
  }
  if (limit) price(all);
  return any;
}

/// Sets of modules by rising time and falling memory: the first that fits, none at all where that
/// does, and more as long as the plan then fits with a probability that can make up for the time;
/// for the front every one. Returns whether any plan fits.
bool price_modules(const PointPricing& pricing, SearchPoint point) {
  bool any = false;
  std::optional<Bytes> limit = pricing.context.usable;
  for (const RecomputePolicy& policy : pricing.context.recomputes(point)) {
    if (policy.kind != Recompute::none && policy.kind != Recompute::selective) continue;
    if (!limit) break;
    point.recompute = policy;
    point.recompute_layers = 0;
    if (!price_point(pricing, point, *limit)) continue;
    any = true;
    if (pricing.for_front) continue;
    limit = pricing.found.pool.next_limit(point, pricing.least, pricing.weight,
                                          pricing.work.memory.peak_reserved);
  }
  return any;
}

/// All policies. Returns whether any plan fits.
bool price_recomputations(const PointPricing& pricing, SearchPoint point, int all) {
  const std::vector<RecomputePolicy>& recomputes = pricing.context.recomputes(point);
  const bool modules =
      recomputes.size() > 1 && !pricing.context.request.framework.recompute_modules.empty();
  bool any = modules && price_modules(pricing, point);
  for (const RecomputePolicy& policy : recomputes) {
    const Recompute recompute = policy.kind;
    point.recompute = policy;
    point.recompute_layers = 0;
    const bool counts = recompute == Recompute::full || recompute == Recompute::mixed;
    // Equal counts on every stage are none, selective or full.
    if (recompute == Recompute::mixed && recomputes.size() > 1) continue;
    if (modules && !counts) continue;
    any = (counts ? price_full_recomputation(pricing, point, all)
                  : price_point(pricing, point, pricing.context.usable)) ||
          any;
  }
  return any;
}

/// Where layers are not partitioned but each stage may recompute on its own: the fastest for each.
/// Returns whether a plan fits.
bool price_mix(const PointPricing& pricing, SearchPoint point) {
  const SearchContext& context = pricing.context;
  if (!context.request.framework.per_stage_recompute || context.every_layer) return false;
  bool any = false;
  for (const RecomputePolicy& recompute : context.recomputes(point)) {
    if (recompute.kind != Recompute::full && recompute.kind != Recompute::mixed) continue;
    std::optional<Bytes> limit = context.usable;
    while (limit) {
      point.recompute = recompute;
      point.recompute_layers = 0;
      ParallelPlan& plan = pricing.work.plan;
      EXPECTS(fill_plan(context.request, point, plan), "a point that was legal before");
      if (!recompute_each_stage(context.cost_model, pricing.costs, *limit, plan)) break;
      context.cost_model.price_memory(plan, pricing.costs, pricing.work.memory);
      if (pricing.work.memory.peak_reserved > *limit)
        break;  // blocks of a whole plan may be larger
      context.cost_model.price_time(plan, pricing.costs, pricing.work.memory.contents,
                                    pricing.work.time);
      pricing.found.accept(
          point, pricing.costs, pricing.work,
          LayerPartition{plan.layers_per_stage, plan.recompute_layers, plan.selective_layers, {}});
      any = true;
      limit = pricing.found.pool.next_limit(pricing.weight);
    }
  }
  return any;
}

double least_weight_of(const PlanRequest& request, const SearchPoint& point) {
  return least_weight(request, features_of_degrees(request, degrees_of(request, point)));
}

/// Where a point ends that no balanced plan fits and no partition that may win.
PointEnd end_too_large(const SearchContext& context, const SearchPoint& point,
                       const ShardingCosts& costs, bool least_held, bool smaller_may_win,
                       Priced& work) {
  const bool may_fit = partition_may_fit(context.cost_model, work.plan, costs, context.usable,
                                         context.recomputes(point));
  if (!may_fit && least_held) return PointEnd::hopeless;
  return may_fit && smaller_may_win ? PointEnd::open : PointEnd::too_large;
}

/// Where a point ends of which no partition matters: out by its bounds, or nothing reserves at most
/// `most`, then of smaller groups neither, nor where this schedule holds least of others.
PointEnd end_unwanted(const SearchContext& context, const SearchPoint& point,
                      const ShardingCosts& costs, Bytes most, bool least_held, bool smaller_may_win,
                      Findings& found, Priced& work) {
  const bool asked = least_held || smaller_may_win;
  const bool may_fit = !asked || partition_may_fit(context.cost_model, work.plan, costs, most,
                                                   context.recomputes(point));
  if (!may_fit && most == context.usable) {
    found.count_too_large();
    return least_held ? PointEnd::hopeless : PointEnd::too_large;
  }
  found.count_bounded();
  if (!may_fit) return least_held ? PointEnd::unlikely : PointEnd::bounded;
  return smaller_may_win ? PointEnd::open : PointEnd::bounded;
}

}  // namespace

bool may_be_partitioned(const SearchContext& context, const SearchPoint& point) {
  const Framework& framework = context.request.framework;
  if (runs_both_ways(point.schedule)) return false;  // equal chunks, or nearly
  const bool chosen =
      point.vpp > 1 ? framework.any_layout : framework.stage_layers == StageLayers::chosen;
  return chosen && !context.request.constraints.has<&ParallelPlan::layers_per_stage>() &&
         !context.pinned_counts;
}

NeededRecomputation::Known NeededRecomputation::known(int zero, double offload) {
  const Framework& framework = context_.request.framework;
  const std::vector<RecomputePolicy>& recomputes = context_.recomputes(node_.point);
  const bool chosen = recomputes.size() > 1 || recomputes.back().kind == Recompute::full;
  if (framework.per_stage_recompute || framework.fixed_blocks || context_.pinned_counts ||
      !chosen || context_.request.exhaustive) {
    return {zero, offload, {}, context_.usable};
  }
  for (const Known& known : known_) {
    if (known.zero == zero && known.offload == offload) return known;
  }
  // Memory falls as the offloaded part grows: what none and all of it need alike, every part does.
  if (offload > 0 && offload < 1) {
    const Known most = known(zero, 0);
    if (const Known least = known(zero, 1); most.least == least.least) {
      known_.push_back({zero, offload, least.least, std::max(least.limit, most.limit)});
      return known_.back();
    }
  }
  SearchPoint point = node_.point;
  point.schedule = ScheduleKind::one_f_one_b;
  point.vpp = 1;
  point.microbatch_group = 1;
  // It keeps one more chunk, which is smaller than a microbatch where chunks interleave.
  if (point.pp > 1) point.sharding.overlap_ep = false;
  point.zero = zero;
  point.shard_group = point.dp * point.sharding.cp;
  point.offload_optimizer = offload;
  ParallelPlan plan = degrees_of(context_.request, point);
  const double weight = least_weight(context_.request, features_of_degrees(context_.request, plan));
  Bytes limit = context_.usable;
  if (!context_.whole_front) {
    limit = pool_.first_limit(point, node_.least, weight).value_or(limit);
  }
  known_.push_back({zero, offload,
                    least_recomputation(context_.cost_model, plan, *node_.costs, limit, recomputes),
                    limit});
  return known_.back();
}

PointEnd visit_point(const SearchContext& context, SearchPoint point, const PointBound& bound,
                     Findings& found, Priced& work) {
  const ShardingCosts& costs = bound.costs;
  Seconds least = bound.least;
  const bool some_can_win = found.pool.matters(point, least, 1);
  double weight = 1;
  LeastRecomputation needed;
  if (some_can_win) {
    needed = bound.needed.of(point.zero, point.offload_optimizer);
    if (!needed.fits && !context.whole_front) {  // under any schedule
      if (bound.needed.limit(point.zero, point.offload_optimizer) < context.usable) {
        found.count_bounded();
        return PointEnd::unlikely;
      }
      found.too_large({least_shortage(context, point, costs, work), point});
      return PointEnd::hopeless;
    }
    const LeastTimes times = least_times_with_traffic(context, point, costs, needed);
    least = std::max(least, times.step);
    weight = least_weight_of(context.request, point);
  }
  const bool can_win = some_can_win && found.pool.matters(point, least, weight);
  // At ZeRO-0 and 1 the bounds rise as the group shrinks; at 2 and 3 smaller groups move less.
  const bool smaller_may_win = some_can_win && (point.zero >= 2 || context.whole_front);
  const auto end_bounded = [&] {
    found.count_bounded();
    return smaller_may_win ? PointEnd::open : PointEnd::bounded;
  };
  if (!can_win && !context.whole_front) return end_bounded();
  const bool partitioned = point.pp > 1 && may_be_partitioned(context, point);
  const bool partition_can_win = can_win && partitioned;
  const bool least_held = partitioned && point.schedule == ScheduleKind::one_f_one_b;
  std::optional<bool> may_win;  // a partition, of which the balanced one is one
  const auto find_may_win = [&] {
    point.recompute = context.recomputes(point).back();
    point.recompute_layers = 0;
    EXPECTS(fill_plan(context.request, point, work.plan), "a point that was legal before");
    may_win = partition_may_win(
        context.cost_model, work.plan, costs,
        [&](Seconds step) { return found.pool.first_limit(point, std::max(least, step), weight); },
        found.pool.bound_of(point, weight), context.recomputes(point), needed);
  };
  if (partition_can_win && !context.whole_front && found.pool.best()) {
    find_may_win();
    if (!*may_win) {
      const Bytes most =
          least_held ? bound.needed.limit(point.zero, point.offload_optimizer)
                     : found.pool.first_limit(point, bound.least, weight).value_or(context.usable);
      return end_unwanted(context, point, costs, most, least_held, smaller_may_win, found, work);
    }
  }
  const Bytes shortage = least_shortage(context, point, costs, work);
  const bool fits = shortage <= Bytes{};
  if (!can_win && fits && found.front_dominates(least, shortage + context.usable)) {
    return end_bounded();
  }
  bool priced = false;
  const PointPricing pricing{context, costs, least, weight, context.whole_front, found, work};
  if (fits) {
    const std::vector<int>& layers = work.plan.layers_per_stage;
    priced = price_recomputations(pricing, point, *std::max_element(layers.begin(), layers.end()));
  }
  if (partition_can_win && !may_win) find_may_win();
  if (may_win.value_or(false)) found.pending({least, point, &costs, weight});
  if (can_win && !partitioned) {
    note_unsearched(context, point, least, found);
    if (!context.pinned_counts && price_mix(pricing, point)) priced = true;
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
  if (partitioned && !partition_can_win && !least_held) return end_bounded();
  found.too_large({shortage, point});
  if (may_win.value_or(false)) return PointEnd::open;
  if (!partitioned || (!least_held && !smaller_may_win)) return PointEnd::too_large;
  return end_too_large(context, point, costs, least_held, smaller_may_win, work);
}

}  // namespace echelon
