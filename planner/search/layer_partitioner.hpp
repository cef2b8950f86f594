// Dynamic programming over the stages of one plan: the states behind partition.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "costmodel/time/stage_model.hpp"
#include "planner/search/bounds.hpp"
#include "planner/search/chunk_positions.hpp"
#include "planner/search/layer_partition.hpp"
#include "planner/space/legality.hpp"

namespace echelon {

/// Later than any finish: the neutral element of std::min.
inline constexpr Seconds kUnbounded{std::numeric_limits<double>::infinity()};

/// Times that a stage with certain layers adds, the same for all stages in the middle.
struct StagePrice {
  Stage stage;
  Seconds total, forward, backward, gather;
  Seconds after;  ///< reduction + optimizer
};

/// One stage holding certain layers.
struct StageOption {
  Stage stage;
  Bytes reserved;
  std::size_t price = 0;  ///< index into LayerPartitioner::prices_
};

/// A stage that holds certain layers from some position on.
struct StageStep {
  bool feasible = false;
  std::size_t price = 0;       ///< index into LayerPartitioner::prices_
  std::optional<int> after{};  ///< the position behind it, once it was asked for
};

/// The stages so far, up to some position. One that is no better than another is dropped.
struct PartialPartition {
  Seconds sum, slowest, latest, gather, forward, backward;
  int parent = 0;  ///< index into the previous stage's states at `from`
  int from = 0;    ///< position
  int recomputed = 0;
  int selective = 0;
};

/// Least times of any partition: all its stages together, and its slowest stage.
struct LowerBound {
  Seconds sum, slowest;
  double again = 0;  ///< share of any stages' layers that they recompute as a whole, at least
};

class LayerPartitioner {
 public:
  LayerPartitioner(const CostModel& cost_model, const ParallelPlan& plan,
                   const ShardingCosts& costs)
      : cost_model_(cost_model),
        plan_(plan),
        model_(cost_model, plan, costs),
        layers_(cost_model.model().layers),
        positions_(cost_model, plan),
        options_(static_cast<std::size_t>(plan.pp)) {
    const Calibration& c = cost_model.calibration();
    fixed_ = c.step_fixed;
    stretch_ = 1 + model_.straggler_share();
    one_kind_ = cost_model.one_kind();
    places_matter_ = !one_kind_ && cost_model.framework().fixed_blocks;
    if (positions_.kinds_alternate()) most_tried_ = 512;
  }

  [[nodiscard]] const CostModel& cost_model() const { return cost_model_; }
  [[nodiscard]] const ParallelPlan& plan() const { return plan_; }
  /// What a stage may reserve, and what the simulated step has to be below (nothing: any step),
  /// as far as least_of() says.
  void set_limits(Bytes usable, std::optional<Seconds> bound) {
    usable_ = usable;
    bound_ = bound.value_or(kUnbounded);
    closed_bound_ = kUnbounded;
  }
  /// After the plan's policy of recomputation, or the offloaded part of its optimizer, has changed.
  void follow_policy() {
    model_.follow_policy();
    ends_ = {};
    most_fit_.reset();
    forget_options();
  }
  /// Every stage recomputes min(uniform, its layers); without `uniform`, what is fastest for it.
  /// `lower` from lower_bound() of that.
  std::optional<LayerPartition> solve(std::optional<int> uniform, const LowerBound& lower);
  /// Only partitions with a shorter closed form count from now on, until limits are set.
  void tighten(Seconds closed_form) { closed_bound_ = std::min(closed_bound_, closed_form); }
  /// Chunks of two kinds are tried one partition after the other where fewer than so many come into
  /// question, which finds what positions find (partition_test).
  void try_below(std::int64_t partitions) { most_tried_ = partitions; }
  /// may_fit() then takes a stage's layers from anywhere in the model, as chunks may lie.
  void allow_any_mix() {
    any_mix_ = !one_kind_;
    most_fit_.reset();
  }
  /// Of any partition that recomputes `uniform` layers on every stage and may win.
  [[nodiscard]] LowerBound lower_bound(int uniform);
  /// The least simulated step.
  [[nodiscard]] Seconds least_step(const LowerBound& lower) const {
    const Seconds pipeline = least_of(model_.least_pipeline(lower.sum, lower.slowest),
                                      model_.pipeline(lower.sum, lower.slowest));
    return (pipeline + least_update_ + fixed_) * stretch_ * (1 - kRounding);
  }
  [[nodiscard]] bool can_win(const LowerBound& lower) const {
    return may_win(lower.sum, lower.slowest, least_update_);
  }
  /// False when the first stage makes every partition too slow, whatever memory there is: behind
  /// its last backward its own reduction and update are all exposed, and what it does not hold
  /// others do. `lower` from lower_bound(). With `any_recomputation` whatever the first stage
  /// recomputes, else where no layer is recomputed as a whole, and the stage has to fit. Cheap;
  /// true is no promise.
  [[nodiscard]] bool first_stage_may_win(const LowerBound& lower, bool any_recomputation);
  /// False when a stage of more layers, so many of them recomputed, is too slow for the bound.
  [[nodiscard]] bool holds_more_than(int layers);
  /// False when the stages together cannot hold all layers; cheap, and only a necessary condition.
  [[nodiscard]] bool may_fit(std::optional<int> uniform);

 private:
  using Front = std::vector<PartialPartition>;

  const StageOption& option(const Stage& stage);
  StageStep step_of(int stage, int position, int layers);
  std::size_t price(const Stage& stage);
  /// The options of one stage and position, shared by all states that end there.
  StageStep& row(int stage, int position, int layers);
  [[nodiscard]] int fewest(int stage) const {
    return fewest_layers(cost_model_.framework(), plan_.pp, plan_.vpp, stage);
  }
  [[nodiscard]] LayerCounts count(int begin, int end) const;
  [[nodiscard]] bool holds(int stage, LayerCounts all, std::optional<LayerCounts> full,
                           std::optional<int> begin = {}) const;
  [[nodiscard]] bool may_fit_first(LayerCounts held) const;
  [[nodiscard]] bool holds_some(int stage, int layers, std::optional<int> uniform);
  [[nodiscard]] bool holds(int stage, int begin, int end, std::optional<int> uniform);
  [[nodiscard]] int furthest(int stage, int begin, int guess, std::optional<int> uniform, int low,
                             int high);
  [[nodiscard]] int furthest(int stage, int begin, int guess, std::optional<int> uniform) {
    return furthest(stage, begin, guess, uniform, begin, layers_ + 1);
  }
  [[nodiscard]] bool middle_alike() const;
  [[nodiscard]] const std::vector<int>& most_that_fit(std::optional<int> uniform);
  [[nodiscard]] bool mixes_kinds() const { return positions_.interleaves_kinds() || any_mix_; }
  [[nodiscard]] ChunkPositions::Range any_kinds(int layers) const;
  [[nodiscard]] int most_in_time(int stage, int uniform, const LowerBound& lower);
  [[nodiscard]] bool find_least_held(std::optional<int> uniform, const LowerBound& lower);
  [[nodiscard]] bool all_hold_their_share(std::optional<int> uniform);
  [[nodiscard]] bool all_may_fit(std::optional<int> uniform);
  [[nodiscard]] Seconds closed_form(const PartialPartition& s) const {
    return (model_.pipeline(s.sum, s.slowest) + s.latest + s.gather + fixed_) * stretch_;
  }
  /// Whether stages that take at least so much, all together and the slowest, and leave at least
  /// `exposed` outside the pipeline, may be below the bounds.
  [[nodiscard]] bool may_win(Seconds sum, Seconds slowest, Seconds exposed) const {
    const auto below = [&](Seconds pipeline, Seconds bound) {
      return (pipeline + exposed + fixed_) * stretch_ * (1 - kRounding) < bound;
    };
    const Seconds closed = model_.pipeline(sum, slowest);
    return below(closed, closed_bound_) && below((1 - kClosedFormExcess) * closed, bound_) &&
           below(model_.least_pipeline(sum, slowest), bound_);
  }
  /// The layers behind a position.
  [[nodiscard]] LayerCounts behind(int position) const {
    const int moe = cost_model_.moe_before(layers_) - positions_.moe(position);
    return {layers_ - positions_.layers(position) - moe, moe};
  }
  /// Least time of layers, wherever they lie.
  [[nodiscard]] Seconds least_time(LayerCounts layers) const {
    return layers.dense * layer_.dense + layers.moe * layer_.moe;
  }
  /// Least time of recomputing so many of these layers, whichever they are. (Where activations are
  /// copied to the host, a pass may be shorter with more of them.)
  [[nodiscard]] Seconds least_again(double recomputed, LayerCounts layers) const {
    if (!plan_.offload_modules.empty()) return {};
    const bool dense_first = layer_.dense_recompute < layer_.moe_recompute;
    const double first = std::min<double>(recomputed, dense_first ? layers.dense : layers.moe);
    const auto [less, more] = std::minmax(layer_.dense_recompute, layer_.moe_recompute);
    return first * less + (recomputed - first) * more;
  }
  /// Least time of layers that a stage or several hold, with what is recomputed of them.
  [[nodiscard]] Seconds least_repeated(LayerCounts layers) const {
    return least_time(layers) + least_again(again_ * layers.total(), layers);
  }
  /// Least time of such layers and the ends that a stage holds.
  [[nodiscard]] Seconds least_total(int stage, LayerCounts layers) const {
    return least_time(layers) + (stage == 0 ? ends_.embedding : Seconds{}) +
           (stage == plan_.pp - 1 ? ends_.head : Seconds{});
  }
  /// The least and the most of that for so many layers, some of each kind.
  struct TotalRange {
    Seconds least, most;
  };
  [[nodiscard]] TotalRange totals(int stage, int layers, ChunkPositions::Range moe) const;
  [[nodiscard]] bool no_better(const PartialPartition& a, const PartialPartition& b) const;
  void insert(Front& front, const PartialPartition& state) const;
  [[nodiscard]] bool too_slow(const StagePrice& price) const;
  /// Least time of all layers, wherever they lie.
  [[nodiscard]] Seconds all_layers() const {
    const int moe = cost_model_.moe_before(layers_);
    return least_time({layers_ - moe, moe});
  }
  void forget_options() {
    for (auto& known : options_) known.clear();
    prices_.clear();
  }
  void find_times();
  [[nodiscard]] PartialPartition behind(const PartialPartition& state,
                                        const StagePrice& made) const;
  /// The best partition of those with each possible number of layers on every stage.
  struct Tried {
    std::optional<LayerPartition> best;
  };
  void find_most_held(const LowerBound& lower);
  [[nodiscard]] std::int64_t count_compositions(std::int64_t most) const;
  const std::vector<int>& chunk_sizes(int stage, int held);
  void find_kinds(const std::vector<int>& layers, std::vector<Stage>& out);
  [[nodiscard]] std::optional<PartialPartition> run_through(const std::vector<Stage>& stages);
  [[nodiscard]] std::optional<Tried> try_all(const LowerBound& lower);
  void extend(int stage, int position, const PartialPartition& state, int index,
              std::vector<Front>& next);
  [[nodiscard]] LayerPartition trace(int position, int index) const;

  const CostModel& cost_model_;
  const ParallelPlan& plan_;
  StageModel model_;
  Bytes usable_;
  Seconds bound_ = kUnbounded;         ///< of the simulated step
  Seconds closed_bound_ = kUnbounded;  ///< of its closed form
  Seconds fixed_;
  double stretch_ = 1;
  int layers_;
  std::optional<int> uniform_;
  /// More where kinds alternate, which have more positions: llama4-maverick on 64 takes 17 % longer
  /// with 128, glm-4.5 on 1,024 5 % longer with 512.
  std::int64_t most_tried_ = 128;
  bool any_mix_ = false;
  /// Per stage the most layers for its memory, with so many recomputed.
  struct MostThatFit {
    std::optional<int> uniform;
    Bytes usable;
    std::vector<int> layers;
  };
  std::optional<MostThatFit> most_fit_;  ///< of most_that_fit(); of the plan's policy
  bool one_kind_ = true;  ///< all layers dense, or all with experts: an option is its layer count
  bool places_matter_ = false;  ///< memory depends on which layers a stage begins with
  ChunkPositions positions_;
  /// Per stage, those that neither the position nor the limits matter for; of the plan's policy and
  /// uniform_, as prices_ are.
  std::vector<std::vector<StageOption>> options_;
  std::vector<StagePrice> prices_;
  std::vector<std::optional<StageStep>> row_;  ///< by layers
  /// Per stage: layers that it and those before it hold at least, since later ones hold no more.
  std::vector<int> least_held_;
  /// Per stage: layers that it holds at most for memory and time; nothing where it was not asked.
  std::vector<std::optional<int>> most_held_;
  std::array<std::vector<std::vector<int>>, 2> chunk_sizes_;  ///< [the last stage][layers][chunk]
  std::vector<const int*> sizes_;                             ///< … of the stages in find_kinds()
  Seconds slowest_;
  double again_ = 0;  ///< LowerBound::again
  LayerAndEnds ends_;
  LayerTimes layer_;
  Seconds least_update_;  ///< least of any stage's after the first one's last backward
  /// Least and most that a second of Σ t adds to the pipeline.
  double least_slope_ = 1, most_slope_ = 1;
  std::vector<std::vector<Front>> fronts_;  ///< [stage][position]
};

}  // namespace echelon
