// What a search tries of recomputation: policies, and sets of modules of the selective one.
#pragma once

#include <compare>
#include <vector>

#include "core/plan/parallel_plan.hpp"
#include "costmodel/cost_model.hpp"

namespace echelon {

/// A policy, and of a selective one the modules that it recomputes.
struct RecomputePolicy {
  Recompute kind = Recompute::none;
  RecomputeModules modules{};

  RecomputePolicy() = default;
  RecomputePolicy(Recompute policy) : kind(policy) {}  // NOLINT(google-explicit-constructor)
  RecomputePolicy(Recompute policy, RecomputeModules of) : kind(policy), modules(of) {}
  auto operator<=>(const RecomputePolicy&) const = default;
};

void set_policy(const RecomputePolicy& policy, ParallelPlan& plan);

/// The sets of modules that a search tries, each a part of the next one. Modules are taken by the
/// time that a byte costs which they free, cheapest first:
///
///   ratio = Σ layers · time repeated / Σ layers · bytes freed   over dense layers and of experts
///
/// for one sample on one rank with experts inside a node, until whole layers cost less per byte.
/// A set is tried when it frees a twentieth of what the layers keep more than the one before; the
/// last one always. Under flash attention core_attn frees nothing that counts and is left out, and
/// so are modules that the framework refuses in the job's precision.
/// Empty for a framework without modules.
///
/// With flash attention DeepSeek-V3 has three or four sets. Other sets are no part of a search's
/// space: of modules with fixed ratios the best of every size lie on this chain or between two of
/// its sets (greedy solution of the fractional knapsack problem, Dantzig 1957). Checked by:
/// tests/planner/space/recompute_policy_test.cpp.
[[nodiscard]] std::vector<RecomputeModules> module_chain(const CostModel& cost_model);

}  // namespace echelon
