// The Pareto front over step time, memory headroom, GPUs and cost.
#pragma once

#include <vector>

#include "planner/search/search.hpp"

namespace echelon {

/// A plan on one number of GPUs, and what it is weighed by. Less is better in each: with the same
/// usable memory everywhere, the least reserved peak leaves the most headroom.
struct ParetoPoint {
  ClusterTopology cluster;  ///< what the plan was priced on
  Candidate candidate;
  Seconds gpu_time;  ///< paid per step that counts: paid_per_step() of planner/economics.hpp

  [[nodiscard]] Seconds step() const { return candidate.prediction.time.step; }
  [[nodiscard]] Bytes memory() const { return candidate.prediction.memory.peak_reserved; }
  [[nodiscard]] int gpus() const { return cluster.gpus(); }
};

/// Whether `a` is no worse than `b` in all four and better in one.
[[nodiscard]] bool dominates(const ParetoPoint& a, const ParetoPoint& b);

/// The front of one search: its own over (step, memory), for on one number of GPUs the cost rises
/// with the step alone.
[[nodiscard]] std::vector<ParetoPoint> front_of(const PlanRequest& request,
                                                const SearchOutcome& report);

/// `plans` without those that another dominates; fastest first, then smallest, then fewest GPUs.
/// Given the fronts of single numbers of GPUs it is the front of all their plans: what one of them
/// leaves out is dominated inside it. Checked by: tests/planner/search/optimize_test.cpp.
[[nodiscard]] std::vector<ParetoPoint> undominated(std::vector<ParetoPoint> plans);

}  // namespace echelon
