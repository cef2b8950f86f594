// The entry of the planner: the best plan by an objective, over one or several numbers of GPUs.
// Also which plans are tied.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/pareto_front.hpp"

namespace echelon {

/// The value that an objective minimizes, smaller first; equal values are ordered by `then`.
///
///   step-time         the step                                    then memory
///   cost              GPUs · step / goodput: paid_per_step()       then the step
///   memory-headroom   the reserved peak of the fullest stage       then the step
///   goodput           step / goodput: wall time per step that counts      then GPUs
///
/// goodput is the expected useful fraction (planner/economics.hpp), 1 where it is unknown.
struct ObjectiveKey {
  double value = 0;
  double then = 0;
  auto operator<=>(const ObjectiveKey&) const = default;
};
/// `request.cluster` is the one `candidate` was priced on.
[[nodiscard]] ObjectiveKey objective_key(const PlanRequest& request, const Candidate& candidate);

/// The best plan of one of several searches.
struct BestPlan {
  std::optional<Candidate> best;  ///< by the objective
  ObjectiveKey key;               ///< of `best`
  std::string why_none;           ///< where there is no `best`
};
struct GpuCountResult : BestPlan {
  int gpus = 0;
};
struct RecipeResult : BestPlan {
  std::string recipe;
};

/// A search that answered its request's objective.
struct SearchResult {
  PlanRequest request;                 ///< on the chosen number of GPUs, with the chosen recipe
  SearchOutcome report;                ///< candidates best first by the objective
  std::vector<GpuCountResult> counts;  ///< with max_gpus, ascending; else empty
  std::vector<RecipeResult> recipes;   ///< one of each of request.recipes; else empty
  /// Over step, memory, GPUs and cost of every number of GPUs searched: no plan dominates another,
  /// and none is dominated by a plan that any of the searches could have put on its own front.
  std::vector<ParetoPoint> front;
};

/// The best plan by request.objective, exact over the searched space. search() finds the fastest
/// plans and the whole Pareto front over (step, memory) of one GPU count, and
///   - cost and goodput rise with the step on a given number of GPUs: neither the price of the GPUs
///     nor the goodput depends on the plan (a checkpoint holds the states of the whole model,
///     however they are split), so the fastest plan is best and the order is that of the steps;
///   - the plan with the least memory, and the fastest of those, is the front's last: a plan off
///     the front has another that is neither slower nor larger. Runners-up are the front's, too:
///     each is the fastest that needs as little.
/// With max_gpus, every count of gpu_counts() is searched, the best keys are compared and the
/// fronts are joined. With request.recipes so is each of these, its key raised by the price of its
/// states (score.hpp); the answer, its list, front and certificate are those of the chosen recipe.
[[nodiscard]] Result<SearchResult> optimize(const PlanRequest& request,
                                            const Progress& progress = {});

/// GPU counts a search up to `most` tries, ascending: m·2^j GPUs of a node, then m·2^j nodes, for m
/// up to 8, and the largest number of whole nodes in `most`.
[[nodiscard]] std::vector<int> gpu_counts(const ClusterTopology& cluster, int most);

/// Whether the difference of two plans of one request is within the error of the model.
///
/// Two plans of one model on one machine share most of their error: a GEMM rate that is 10 % off
/// slows both. So the band of their difference is not that of the steps. With parts aᵢ, bᵢ of the
/// two steps A, B and the calibration's 80 % band β (relative half width):
///
///   w² = β²·Σ(aᵢ − bᵢ)²  +  (κ·β)²·(A² + B²),      tied when |A − B| ≤ w
///
/// The first term is the shared error: one relative error per part, the same in both plans, so only
/// parts that differ carry it. The second is the error of each plan alone, κ = kOwnError of the
/// band. Symmetric; every plan is tied with itself.
[[nodiscard]] bool tied(const TimePrediction& a, const TimePrediction& b, double band);

/// Share of the band that is a plan's own. Measured: in 159 pairs of published runs of one job
/// under different plans (up to 64 GPUs, no pipeline) whose predicted steps lie within 10 %, 80 %
/// of the differences are off by less than 12 %, while 80 % of the steps themselves are off by less
/// than 38 %: 0.12 / (√2·0.38) = 0.22. docs/explain.md.
inline constexpr double kOwnError = 0.2;

}  // namespace echelon
