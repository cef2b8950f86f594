// What the groups of a plan send per step, and what of it each kind of link carries.
#pragma once

#include <vector>

#include "core/plan/process_grid.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "planner/search/search.hpp"

namespace echelon {

/// Collectives of one kind and size of one rank in one step.
struct Traffic {
  CollectiveKind kind = CollectiveKind::none;
  double times = 0;
  Bytes payload;
};
/// The ranks that an axis's collectives run over: of dp those of cp as well, which hold the same
/// weights.
[[nodiscard]] RankGroup traffic_group(const ProcessGrid& grid, Axis axis);

/// On the longest stage, forward and backward of every layer and microbatch; a recomputed forward's
/// again. dp, and expert_dp for the routed experts: ZeRO 0 all-reduces once per step, 1 reduces and
/// gathers once, 2 reduces and 3 also gathers twice in every microbatch. pp: one message in each
/// direction per microbatch and chunk. Empty for a group of one rank, and for ep, etp and expert_dp
/// of a model without experts.
[[nodiscard]] std::vector<Traffic> traffic_of(const PlanRequest& request, const ParallelPlan& plan,
                                              Axis axis);

/// Bytes of one axis over links, one direction, in one step.
///
///   per_gpu     Σ b·S·(n − N)/n    all-to-all  Σ S·(R − 1)/n
///   per_domain  k·Σ b·S            all-to-all  k·R·Σ S·(n − R)/n      0 for N = 1
///
///   n ranks of a group, N domains they touch, R of them in the fullest, k groups of the axis in
///   one domain, S payload, b bus factor of the collective (a message has 1)
///
/// A ring goes through every domain once, so that N of its n hops leave one. A switch that adds up
/// carries less inside. Messages of a pipeline are those of a rank in its middle.
/// Source: nccl-tests doc/PERFORMANCE.md (b); counting. Checked by:
/// tests/planner/explain/traffic_test.cpp.
struct LinkLoad {
  Axis axis{};
  int ranks = 1;     ///< of one group
  int domains = 1;   ///< it touches
  Bytes per_gpu;     ///< out of one GPU over its domain's links
  Bytes per_domain;  ///< out of one domain over its network cards
};
/// Of every axis with more than one rank, tp first.
[[nodiscard]] std::vector<LinkLoad> link_loads(const PlanRequest& request,
                                               const ParallelPlan& plan);

}  // namespace echelon
