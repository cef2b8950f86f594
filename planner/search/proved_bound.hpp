// What a search proves without the assumption of least_of(): a bound of the plans not simulated.
#pragma once

#include <optional>
#include <vector>

#include "planner/search/plan_pool.hpp"

namespace echelon {

/// A lower bound of the expected steps of all plans that were not simulated. The plan of a single
/// stage takes what its closed form says. The layers of several stages are split by the closed
/// form, and points are pruned by it: each such point counts with the bound of all its partitions
/// that least_pipeline_time() proves.
/// Checked by: tests/planner/search/proved_bound_test.cpp.
class ProvedBound {
 public:
  /// Starts from `known`, but without the points whose plans are in its pool.
  [[nodiscard]] ProvedBound fork() const {
    ProvedBound out;
    out.least_ = least_;
    return out;
  }
  /// Takes what a fork found; its pool's plans follow `plans` others.
  void join(const ProvedBound& fork, std::size_t plans);
  void lower_to(Seconds expected);
  [[nodiscard]] bool may_lower(Seconds expected) const { return !least_ || expected < *least_; }
  /// A point whose only plans are those of the pool from `first` up to `end`: they count unless
  /// they are simulated in the end.
  void lower_unless_simulated(std::size_t first, std::size_t end, Seconds expected);
  /// Nothing where all plans were simulated. After the pool has settled.
  [[nodiscard]] std::optional<Seconds> least(const PlanPool& pool) const;

 private:
  struct Sole {
    std::size_t first = 0, end = 0;
    Seconds expected;
  };
  std::optional<Seconds> least_;
  std::vector<Sole> sole_;
};

}  // namespace echelon
