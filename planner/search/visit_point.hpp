// Step 3 of a search: one point bounded, and priced where it can be listed or lie on the front.
#pragma once

#include "planner/search/enumerate.hpp"
#include "planner/search/partition.hpp"
#include "planner/search/plan_pool.hpp"

namespace echelon {

/// What the plans of one node have to recompute in order to fit so likely that they matter.
class NeededRecomputation {
 public:
  NeededRecomputation(const SearchContext& context, const DegreeNode& node, const PlanPool& pool)
      : context_(context), node_(node), pool_(pool) {}
  /// Under any schedule and shard group; of plans that fit at all once none matters. Nothing where
  /// the request counts layers or stages recompute on their own.
  [[nodiscard]] LeastRecomputation of(int zero, double offload) {
    return known(zero, offload).least;
  }
  /// What plans reserve at most that matter.
  [[nodiscard]] Bytes limit(int zero, double offload) { return known(zero, offload).limit; }

 private:
  struct Known {
    int zero;
    double offload;
    LeastRecomputation least;
    Bytes limit;
  };
  [[nodiscard]] Known known(int zero, double offload);
  const SearchContext& context_;
  const DegreeNode& node_;
  const PlanPool& pool_;
  std::vector<Known> known_;
};

struct PointBound {
  const ShardingCosts& costs;
  Seconds least;  ///< bound of the point's degrees and schedule, as assumed by least_of()
  NeededRecomputation& needed;
};

/// Where a point ended. Smaller shard groups end at `too_large` or `bounded` with it; at `hopeless`
/// and `unlikely` so do other schedules: nothing fits, or not so likely that it matters.
enum class PointEnd { too_large, hopeless, bounded, unlikely, open };

/// Whether step 4 may look for the best partition of the point's layers: nothing of it is pinned,
/// and the framework can have it.
[[nodiscard]] bool may_be_partitioned(const SearchContext& context, const SearchPoint& point);

/// Prices a point unless its bounds say that it can neither be listed nor lie on the Pareto front:
/// its least time against the K best, and (least time, smallest memory) against the front. `work`
/// is overwritten.
PointEnd visit_point(const SearchContext& context, SearchPoint point, const PointBound& bound,
                     Findings& found, Priced& work);

}  // namespace echelon
