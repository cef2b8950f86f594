// Lower bounds of the plans of a set of degrees, and of a point of the search.
#pragma once

#include <vector>

#include "planner/search/context.hpp"
#include "planner/search/partition.hpp"

namespace echelon {

/// Degrees, microbatch and rank layout of a layer: what the first bound is computed for. The rest
/// of the point is open.
struct DegreeNode {
  SearchPoint point;
  const ShardingCosts* costs = nullptr;  ///< in DegreeSpace::costs
  Seconds work;                          ///< the least time of all stages together
  Seconds slowest;                       ///< the least time of the slowest stage
  Seconds least;                         ///< bound as assumed by least_of()
  Seconds proved;                        ///< no plan with these degrees takes less
};

/// A rank order that the node's plans may have, and one message between stages under it.
struct OrderHop {
  RankOrder order;
  Seconds hop;
};
[[nodiscard]] std::vector<OrderHop> rank_orders_of(const SearchContext& context,
                                                   const DegreeNode& node);

/// Two lower bounds of a simulated step.
struct LeastStep {
  Seconds assumed;  ///< with the assumption of least_of(): decides which points are priced
  Seconds proved;   ///< without; at most as large
};

/// No layer partition and no choice of ZeRO, recomputation or offload makes the degrees and the
/// schedule of `point` faster: Σt ≥ work and max t ≥ slowest, and the pipeline's time falls with
/// neither. `hop`: of the point's rank order, from rank_orders_of().
[[nodiscard]] LeastStep least_time(const SearchContext& context, const SearchPoint& point,
                                   const DegreeNode& node, Seconds hop);

/// Bounds of all plans of a point.
struct LeastTimes {
  Seconds step;    ///< of the simulated step, with the assumption of least_of()
  Seconds proved;  ///< … without it
};

/// The same with what ZeRO moves in every microbatch and the first stage's optimizer step on its
/// embedding, where every stage recomputes `least` at least.
[[nodiscard]] LeastTimes least_times_with_traffic(const SearchContext& context,
                                                  const SearchPoint& point,
                                                  const ShardingCosts& costs,
                                                  const LeastRecomputation& least = {});

}  // namespace echelon
