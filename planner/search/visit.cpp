#include "planner/search/visit.hpp"

#include <fmt/format.h>

#include "planner/search/offload_fraction.hpp"
#include "planner/search/visit_point.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

/// One choice of ZeRO and offload for certain degrees.
struct Sharding {
  int zero = 0;
  double offload = 0;
  std::vector<int> groups{};  ///< over how many ranks, largest first
  std::size_t hopeless = 0;   ///< groups from here on end under every schedule at
  PointEnd end = PointEnd::hopeless;
};

/// A rule that some shardings break, and how many of them.
struct BrokenSharding {
  Rejection rejection;
  std::int64_t groups = 0;
};

struct Shardings {
  std::vector<Sharding> legal;
  std::vector<BrokenSharding> broken;
  [[nodiscard]] std::int64_t count() const {
    std::int64_t all = 0;
    for (const BrokenSharding& each : broken) all += each.groups;
    for (const Sharding& each : legal) all += static_cast<std::int64_t>(each.groups.size());
    return all;
  }
};

/// The choices of ZeRO and offload for these degrees. Where the hosts hold not all of the
/// optimizer, the largest fifth that they hold stands for all.
Shardings shardings_of(const SearchContext& context, SearchPoint point) {
  const PlanRequest& request = context.request;
  Shardings out;
  ParallelPlan plan = degrees_of(request, point);
  const auto broken = [&] {
    return check_sharding(request.model, request.job, request.cluster, request.framework, plan);
  };
  const bool open = !request.constraints.has<&ParallelPlan::offload_optimizer>();
  for (const int zero : zero_values(request, point)) {
    point.zero = plan.zero = zero;
    const std::vector<int> groups = shard_values(request, point);
    for (const double offload : offload_values(request, zero)) {
      std::vector<Sharding> legal;  // of falling fractions
      for (std::size_t i = 0; i < groups.size(); ++i) {
        plan.shard_group = groups[i];
        plan.offload_optimizer = offload;
        std::optional<Rejection> rejection = broken();
        for (auto part = kOffloadParts.rbegin();
             rejection && open && offload == 1 && part != kOffloadParts.rend(); ++part) {
          plan.offload_optimizer = *part;
          if (!broken()) rejection.reset();
        }
        if (rejection) {
          // A smaller group needs more memory on the host too: so are the rest.
          const std::int64_t alike =
              request.exhaustive ? 1 : static_cast<std::int64_t>(groups.size() - i);
          out.broken.push_back({*rejection, alike});
          if (!request.exhaustive) break;
          continue;
        }
        if (legal.empty() || legal.back().offload != plan.offload_optimizer)
          legal.push_back({.zero = zero, .offload = plan.offload_optimizer});
        legal.back().groups.push_back(groups[i]);
      }
      for (Sharding& sharding : legal) {
        sharding.hopeless = sharding.groups.size();
        out.legal.push_back(std::move(sharding));
      }
    }
  }
  return out;
}

/// The rule that the point's schedule or rank order breaks, whatever it recomputes.
std::optional<Rejection> broken_schedule(const SearchContext& context, const SearchPoint& point,
                                         ParallelPlan& plan) {
  const PlanRequest& request = context.request;
  if (!fill_plan(request, point, plan)) {
    return Rejection{
        RejectionReason::layers_not_divisible,
        fmt::format("{} layers on pp {} x vpp {}", request.model.layers, point.pp, point.vpp)};
  }
  return check_schedule(request.model, request.job, request.framework, plan);
}

/// A schedule and a rank order of a node.
struct ScheduledPoint {
  SearchPoint point;
  Seconds hop;
};

/// The node's schedules and rank orders that break no rule; each that does is rejected for as many
/// shardings as there are.
std::vector<ScheduledPoint> schedules_of(const SearchContext& context, const DegreeNode& node,
                                         std::int64_t shardings, Findings& found, Priced& work) {
  std::vector<ScheduledPoint> out;
  SearchPoint point = node.point;
  const std::vector<OrderHop> rank_orders = rank_orders_of(context, node);
  for (const Chunks chunks : chunk_values(context.request, point.pp)) {
    point.vpp = chunks.vpp;
    point.schedule = chunks.schedule;
    for (const auto& [order, hop] : rank_orders) {
      point.rank_order = order;
      for (const int group : group_values(context.request, point, hop, node.slowest)) {
        point.microbatch_group = group;
        if (const auto rejection = broken_schedule(context, point, work.plan)) {
          found.reject(*rejection, shardings);
        } else {
          out.push_back({point, hop});
        }
      }
    }
  }
  return out;
}

/// A smaller part of the optimizer offloaded, where step 4 can place the layers.
bool open_fractions(const SearchContext& context, const SearchPoint& point, const PointBound& bound,
                    Findings& found, Priced& work) {
  const bool one_stage = point.pp == 1 && !context.pinned_counts;  // all layers, whoever deals them
  if (point.offload_optimizer <= 0 || (!one_stage && !may_be_partitioned(context, point)) ||
      context.request.constraints.has<&ParallelPlan::offload_optimizer>()) {
    return false;
  }
  return open_offload_fractions(context, point, bound, context.usable, found, work);
}

/// Plans priced and points bounded so far.
struct Progressed {
  std::size_t plans;
  std::int64_t bounded;
  explicit Progressed(const Findings& found)
      : plans(found.pool.plans().size()), bounded(found.counts().bounded) {}
};

/// Lowers the proved bound to that of a point of several stages, once it was visited. `least`: of
/// its degrees and schedule.
void lower_proved(const SearchContext& context, SearchPoint point, PointEnd end, Seconds least,
                  const ShardingCosts& costs, const Progressed& before, Findings& found) {
  // Where only a balanced plan was too large, a partition that fits may have been bounded.
  const bool none_fits = end == PointEnd::hopeless ||
                         (end == PointEnd::too_large && !may_be_partitioned(context, point));
  // For the front a point is also priced if it cannot win; then nothing says that none fits.
  if (point.pp == 1 || (none_fits && !context.whole_front)) return;
  if (!found.proved.may_lower(least)) return;
  point.offload_optimizer = 0;  // a part of it may be less than the point's
  const double weight = least_weight(
      context.request, features_of_degrees(context.request, degrees_of(context.request, point)));
  const Seconds proved = weight * least_times_with_traffic(context, point, costs).proved;
  // Of the numbers of recomputed layers only those are priced that memory and risk ask for.
  const bool counts_open = !context.pinned_counts && !context.every_layer &&
                           context.recomputes(point).back().kind != Recompute::none &&
                           !context.request.exhaustive;
  const Progressed now(found);
  if (may_be_partitioned(context, point) || counts_open || now.bounded > before.bounded) {
    found.proved.lower_to(proved);
  } else if (now.plans > before.plans) {
    found.proved.lower_unless_simulated(before.plans, now.plans, proved);
  }
}

/// A smaller shard group needs more memory on the GPU, and its bound is no lower unless visit_point
/// says so: where the largest is bounded or too large, so are the rest. 1F1B keeps the fewest
/// microbatches of all schedules: what does not fit under it, whatever the partition, fits under
/// none.
void visit_groups(const SearchContext& context, SearchPoint point, Sharding& sharding,
                  const LeastStep& least, const PointBound& bound, Findings& found, Priced& work) {
  // Without lower_proved(): of points that are out by their bounds the degrees and the schedule.
  const auto end_here = [&](PointEnd end, std::size_t count) {
    const auto points = static_cast<std::int64_t>(count);
    const bool bounded = end == PointEnd::bounded || end == PointEnd::unlikely;
    bounded ? found.count_bounded(points) : found.count_too_large(points);
    const bool none_fits = end == PointEnd::hopeless ||
                           (end == PointEnd::too_large && !may_be_partitioned(context, point));
    if (point.pp > 1 && !none_fits) found.proved.lower_to(least.proved);
  };
  const std::vector<int>& groups = sharding.groups;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i == sharding.hopeless) return end_here(sharding.end, groups.size() - i);
    point.shard_group = groups[i];
    const Progressed before(found);
    const PointEnd end = visit_point(context, point, bound, found, work);
    lower_proved(context, point, end, least.proved, bound.costs, before, found);
    const bool of_all = end == PointEnd::hopeless || end == PointEnd::unlikely;
    const bool opened = !of_all && open_fractions(context, point, bound, found, work);
    if (context.request.exhaustive || end == PointEnd::open || opened) continue;
    if (of_all) {
      sharding.hopeless = i;
      sharding.end = end;
    }
    return end_here(end, groups.size() - i - 1);
  }
}

}  // namespace

/// Rules about the schedule are asked once for all shardings, and the other way round.
void visit(const SearchContext& context, const DegreeNode& node, Findings& found, Priced& work) {
  Shardings shardings = shardings_of(context, node.point);
  std::vector<ScheduledPoint> points = schedules_of(context, node, shardings.count(), found, work);
  if (points.empty()) return;
  for (const BrokenSharding& broken : shardings.broken) {
    found.reject(broken.rejection, broken.groups * static_cast<std::int64_t>(points.size()));
  }
  NeededRecomputation needed(context, node, found.pool);
  for (auto& [point, hop] : points) {
    const LeastStep least = least_time(context, point, node, hop);
    const PointBound bound{*node.costs, least.assumed, needed};
    for (Sharding& sharding : shardings.legal) {
      point.zero = sharding.zero;
      point.offload_optimizer = sharding.offload;
      visit_groups(context, point, sharding, least, bound, found, work);
    }
  }
}

}  // namespace echelon
