// Enumeration: the tuples a request leaves open, and the plans they stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/request.hpp"

namespace echelon {

/// One point of the search space, small enough to keep by the hundred thousand. Layers per stage
/// and recomputed layers follow from it and the request.
struct Tuple {
  int tp = 1, pp = 1, vpp = 1, dp = 1, microbatch = 1, zero = 0, shard_group = 1;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  int recompute_layers = 0;  ///< on every stage (full only)
  auto operator<=>(const Tuple&) const = default;
};

/// Divisors of n in ascending order.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

/// Layers per stage of pp·vpp chunks: balanced without interleaving; with it equal chunks, or one
/// layer less on the first and on the last stage; nothing when neither divides.
[[nodiscard]] std::optional<std::vector<int>> split_layers(int layers, int pp, int vpp);

/// Fills `plan` (vectors reused) with the tuple's plan. False when its layers cannot be split.
bool fill_plan(const PlanRequest& request, const Tuple& tuple, ParallelPlan& plan);

/// Values of each axis the request leaves open, for given outer ones. Ascending, not yet checked.
struct AxisValues {
  std::vector<int> tp, pp;  ///< divisors of the GPUs, or the pinned value
  [[nodiscard]] static AxisValues of(const PlanRequest& request);
};
[[nodiscard]] std::vector<int> microbatch_values(const PlanRequest& request, int dp);
[[nodiscard]] std::vector<int> vpp_values(const PlanRequest& request, int pp);
[[nodiscard]] std::vector<int> zero_values(const PlanRequest& request, int dp);
[[nodiscard]] std::vector<bool> sequence_parallel_values(const PlanRequest& request, int tp);
[[nodiscard]] std::vector<Recompute> recompute_values(const PlanRequest& request);

}  // namespace echelon
