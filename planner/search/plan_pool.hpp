// The plans that a search has priced: which of them can still win, and the best of each family.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "planner/search/bounds.hpp"
#include "planner/search/context.hpp"
#include "planner/search/layer_partition.hpp"
#include "planner/search/simulate_step.hpp"
#include "planner/space/score.hpp"

namespace echelon {

/// Plans that people call the same: a list shows the best of each family. They differ in chunks,
/// microbatch, sharding groups, rank order, recomputation, offload, overlap, CUDA graphs and layers
/// per stage.
struct PlanFamily {
  int tp = 1, cp = 1, pp = 1, ep = 1, etp = 1;
  bool shards_gradients = false;  ///< ZeRO-2 or 3
  auto operator<=>(const PlanFamily&) const = default;
};
[[nodiscard]] PlanFamily family_of(const SearchPoint& point);
[[nodiscard]] PlanFamily family_of(const ParallelPlan& plan);

/// What a lower bound of a simulated step comes from, each tighter than the one before:
/// simulate_step.hpp.
enum class StepBound {
  sum_and_largest,  ///< of the stages' times: least_step
  chains,           ///< the longest chains: least_step_of_chains
  passing,          ///< messages that pass one another: least_step_of_passing
};

/// A plan that fits, with its closed form and, once it is simulated, its step.
struct PricedPoint {
  Seconds closed_form;                           ///< step by the closed form
  Seconds least;                                 ///< the simulated step is not below it
  StepBound bound = StepBound::sum_and_largest;  ///< what `least` comes from
  Bytes memory;                                  ///< reserved peak
  Score score;
  SearchPoint point;
  std::optional<int> partition{};      ///< index of its layers; nothing: balanced
  std::optional<Seconds> simulated{};  ///< step

  [[nodiscard]] double fits_probability() const { return score.fits_probability.value_or(1); }
  /// Lower bound of what the search minimizes; that itself once simulated.
  [[nodiscard]] Seconds least_expected() const { return score.weight * simulated.value_or(least); }
};

class PlanPool {
 public:
  explicit PlanPool(const SearchContext& context) : context_(context) {}
  /// An empty pool that judges plans by what `known` has found as well. `known` stays as it is
  /// until the fork is joined or gone.
  [[nodiscard]] PlanPool fork() const;
  /// Takes the plans of a fork, in their order.
  void join(PlanPool&& fork);

  /// A priced plan that fits; it is simulated when it may be the best of its family so far, or the
  /// fastest, or is wanted: `wanted(least step, memory)`. `priced` holds its plan, memory and
  /// closed form.
  template <class Wanted>
  const PricedPoint& add(const SearchPoint& point, const ShardingCosts& costs, Priced& priced,
                         std::optional<LayerPartition> partition, Wanted wanted) {
    PricedPoint found = priced_point(point, costs, priced, std::move(partition));
    look_at(found, costs, priced, [&](const PricedPoint& plan) {
      return may_lead(plan) || wanted(plan.least, plan.memory);
    });
    plans_.push_back(std::move(found));
    return plans_.back();
  }

  /// Whether a plan of a point that takes at least `least` and is weighed by at least `weight` can
  /// change the answer: be the best of one of the families listed, or the fastest.
  [[nodiscard]] bool matters(const SearchPoint& point, Seconds least, double weight) const;
  /// The same of any point.
  [[nodiscard]] bool matters(Seconds least) const;
  /// No plan of the point with a longer step matters; nothing: any does.
  [[nodiscard]] std::optional<Seconds> longest(const SearchPoint& point, double weight) const;
  /// The bound that the simulated step of a partition of the point's layers has to be below.
  [[nodiscard]] std::optional<Seconds> bound_of(const SearchPoint& point, double weight) const;
  /// The most that plans of the point that take at least `step` may reserve in order to matter:
  /// one that needs more fits with too small a probability. Nothing where none matters.
  [[nodiscard]] std::optional<Bytes> first_limit(const SearchPoint& point, Seconds step,
                                                 double weight) const;
  /// For plans of the point that take at least `step`, and need less memory than `reserved`: the
  /// most that they may reserve in order to matter, by fitting with a larger probability. Nothing
  /// where none would. Exact: what it leaves out has no less an expected step than a plan found.
  [[nodiscard]] std::optional<Bytes> next_limit(const SearchPoint& point, Seconds step,
                                                double weight, Bytes reserved) const;
  /// The same for plans of the point of the plan added last, that need less memory than it.
  [[nodiscard]] std::optional<Bytes> next_limit(double weight) const {
    const PricedPoint& last = plans_.back();
    return next_limit(last.point, last.least, weight, last.memory);
  }
  /// The least expected step found so far.
  [[nodiscard]] std::optional<Seconds> best() const;

  [[nodiscard]] const std::vector<PricedPoint>& plans() const { return plans_; }
  /// Fills the plan of a point, with its layers and their recomputation.
  void fill(const PricedPoint& priced, ParallelPlan& plan) const;

  /// Simulates until the answers below are certain.
  void settle(const CostsOfShardings& costs);
  /// Indices into plans(): the winner, then the best plans of the other families, least expected
  /// step first; at most `most`.
  [[nodiscard]] std::vector<std::size_t> listed(std::size_t most) const;
  /// The plan with the shortest step.
  [[nodiscard]] std::optional<std::size_t> fastest() const;
  /// … of those that fit with kSafeProbability without offload, counted with the prices of its
  /// unusual features.
  [[nodiscard]] std::optional<std::size_t> fastest_safe() const;
  [[nodiscard]] std::int64_t simulated() const { return simulated_; }

 private:
  [[nodiscard]] PricedPoint priced_point(const SearchPoint& point, const ShardingCosts& costs,
                                         const Priced& priced,
                                         std::optional<LayerPartition> partition);
  /// Whether its expected step may be at most that of the plan known beforehand, if there is one.
  [[nodiscard]] bool may_win(const PricedPoint& found) const;
  /// Whether it may be so fast that the winner, whose step is at most that, may be too slow.
  [[nodiscard]] bool may_limit_winner(const PricedPoint& found) const;
  [[nodiscard]] bool may_lead(const PricedPoint& found) const;
  /// Tightens the bound of a plan, twice, and simulates it, as long as it matters.
  template <class Matters>
  void look_at(PricedPoint& found, const ShardingCosts& costs, Priced& priced, Matters matters) {
    while (!found.simulated && matters(found)) {
      if (found.bound == StepBound::passing) {
        simulate(found, costs, priced);
      } else {
        tighten(found, costs, priced);
      }
    }
  }
  template <class Matters>
  void look_at(std::size_t index, const CostsOfShardings& costs, Matters matters) {
    PricedPoint& found = plans_[index];
    if (found.simulated || !matters(found)) return;
    const ShardingCosts& its = costs.at(CostsKey(found.point));
    price_again(found, its);
    look_at(found, its, work_, matters);
  }
  void price_again(const PricedPoint& found, const ShardingCosts& costs);
  void tighten(PricedPoint& found, const ShardingCosts& costs, const Priced& priced);
  void simulate(PricedPoint& found, const ShardingCosts& costs, Priced& priced);
  void note(const PricedPoint& found);
  [[nodiscard]] std::optional<Seconds> best_of(const PlanFamily& family) const;
  [[nodiscard]] std::optional<Seconds> last_listed() const;
  [[nodiscard]] std::optional<Seconds> most_given_up() const;
  [[nodiscard]] std::optional<Seconds> most_expected(const SearchPoint& point) const;
  [[nodiscard]] Seconds limiting(const SearchPoint& point, double weight) const;
  [[nodiscard]] double least_probability(const SearchPoint& point, Seconds step, double weight,
                                         double now) const;
  void note_winner(const PricedPoint& found);
  void note_winners();
  void note_undominated(Seconds step, Seconds expected);
  [[nodiscard]] std::optional<Seconds> least_expected_within(Seconds step) const;
  [[nodiscard]] Seconds longest_unbeaten(double weight) const;
  void settle_fastest(const CostsOfShardings& costs, auto counts,
                      const std::optional<Seconds>& shortest);
  [[nodiscard]] std::optional<std::size_t> first_of(auto counts, auto seconds) const;
  void settle_winner(const CostsOfShardings& costs);
  void settle_families(const CostsOfShardings& costs);

  const SearchContext& context_;
  const PlanPool* known_ = nullptr;  ///< of a fork: what it was forked from
  std::vector<PricedPoint> plans_;
  std::vector<LayerPartition> partitions_;
  /// Least expected step of each family's simulated plans; of a fork's own where it is less.
  std::map<PlanFamily, Seconds> best_;
  std::vector<Seconds> listed_;     ///< the smallest of those, ascending, at most request.top
  std::optional<Seconds> fastest_;  ///< step of any simulated plan
  /// … of those that fit with kSafeProbability without offload, raised by the prices of its unusual
  /// features
  std::optional<Seconds> fastest_safe_;
  std::optional<Seconds> winner_;  ///< least expected step within most_given_up()
  /// Step and expected step of the simulated plans that no other beats in both; steps ascend. What
  /// beats a plan in both does so however the limit of the winner falls later.
  std::vector<std::pair<Seconds, Seconds>> undominated_;
  std::int64_t simulated_ = 0;
  Priced work_;
  MakespanSimulator simulator_;
};

}  // namespace echelon
