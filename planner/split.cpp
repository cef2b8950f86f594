#include "planner/split.hpp"

#include <algorithm>
#include <limits>

#include "core/base/expects.hpp"
#include "planner/bounds.hpp"
#include "planner/legality.hpp"
#include "planner/recompute.hpp"

namespace echelon {
namespace {

/// Later than any finish.
constexpr Seconds kUnbounded{1e30};

/// What a stage with certain layers adds to a state, wherever in the middle it stands.
struct StageOption {
  Stage stage;
  Seconds total, forward, backward, gather;
  Seconds after;  ///< reduction + optimizer
};

/// One stage holding certain layers.
struct Option {
  Stage stage;
  bool feasible = false;
  std::size_t price = 0;  ///< index into Programme::prices_
};

struct State {
  Seconds sum, slowest, latest, gather, forward, backward;
  int parent = -1;  ///< index into the previous stage's states of layer `from`
  int from = 0;
  int again = 0;
  int selective = 0;
};

bool no_better(const State& a, const State& b) {
  return a.sum >= b.sum && a.slowest >= b.slowest && a.latest >= b.latest && a.gather >= b.gather;
}

void insert(std::vector<State>& front, const State& state) {
  for (const State& other : front) {
    if (no_better(state, other)) return;
  }
  // Parents are referred to by index only after the stage is complete, so erasing is safe here.
  std::erase_if(front, [&](const State& other) { return no_better(other, state); });
  front.push_back(state);
}

class Programme {
 public:
  Programme(const CostModel& cost_model, const ParallelPlan& plan, const ShardingCosts& costs,
            Bytes usable, Seconds bound)
      : cost_model_(cost_model),
        plan_(plan),
        model_(cost_model, plan, costs),
        usable_(usable),
        bound_(bound),
        layers_(cost_model.model().layers),
        options_(static_cast<std::size_t>(plan.pp)) {
    const Calibration& c = cost_model.calibration();
    fixed_ = c.step_fixed;
    stretch_ = 1 + model_.straggler_share();
    one_kind_ = cost_model.one_kind();
  }

  /// `uniform` < 0: every stage recomputes what is fastest for it; else min(uniform, its layers).
  std::optional<Split> solve(int uniform);
  void tighten(Seconds bound) { bound_ = std::min(bound_, bound); }
  /// Least step time of any split that recomputes `uniform` layers on every stage.
  [[nodiscard]] Seconds lower_bound(int uniform);
  /// False when a stage of more layers, so many of them recomputed, is too slow for the bound.
  [[nodiscard]] bool holds_more_than(int layers);
  /// False when the stages together cannot hold all layers; cheap, and only a necessary condition.
  [[nodiscard]] bool may_fit(int uniform) const;

 private:
  Option option(int stage, int begin, int end);
  std::size_t price(const Stage& stage);
  /// The options of one stage and first layer, shared by all states that end there.
  const Option& row(int stage, int begin, int end);
  [[nodiscard]] int fewest(int stage) const {
    return fewest_layers(cost_model_.stack(), plan_.pp, plan_.vpp, stage);
  }
  [[nodiscard]] LayerCounts count(int begin, int end) const;
  [[nodiscard]] bool holds(int stage, int begin, int end, int uniform) const;
  [[nodiscard]] int furthest(int stage, int begin, int guess, int uniform) const;
  [[nodiscard]] Seconds step(const State& s) const {
    return (model_.pipeline(s.sum, s.slowest) + s.latest + s.gather + fixed_) * stretch_;
  }
  /// Least time the layers from `begin` on take, wherever they lie.
  [[nodiscard]] Seconds rest(int begin) const { return rest_[static_cast<std::size_t>(begin)]; }
  void find_rest();
  void extend(int stage, int begin, const State& state, int index,
              std::vector<std::vector<State>>& next);
  [[nodiscard]] Split trace(int index) const;

  const CostModel& cost_model_;
  const ParallelPlan& plan_;
  StageModel model_;
  Bytes usable_;
  Seconds bound_;
  Seconds fixed_;
  double stretch_ = 1;
  int layers_;
  int uniform_ = -1;
  bool one_kind_ = true;  ///< all layers dense, or all with experts: an option is its layer count
  std::vector<std::vector<Option>> options_;  ///< per stage, those that begin does not matter for
  std::vector<StageOption> prices_;
  std::vector<Option> row_;
  int row_first_ = 0;  ///< where the row's first option ends
  std::vector<Seconds> rest_;
  Seconds slowest_;  ///< what the slowest stage takes at least, as lower_bound() found
  LayerAndEnds ends_;
  std::vector<std::vector<std::vector<State>>> fronts_;  ///< [stage][layers so far]
};

LayerCounts Programme::count(int begin, int end) const {
  const int moe = cost_model_.moe_before(end) - cost_model_.moe_before(begin);
  return {end - begin - moe, moe};
}

/// Stages in the middle that hold the same cost the same.
std::size_t Programme::price(const Stage& stage) {
  const auto place = [&](int index) { return index == 0 ? 0 : index == plan_.pp - 1 ? 2 : 1; };
  for (std::size_t i = 0; i < prices_.size(); ++i) {
    const Stage& known = prices_[i].stage;
    if (place(known.index) == place(stage.index) && known.layers == stage.layers &&
        known.recomputed == stage.recomputed && known.selective == stage.selective) {
      return i;
    }
  }
  const StageTimes times = model_.times(stage);
  prices_.push_back({.stage = stage,
                     .total = times.total(),
                     .forward = times.forward,
                     .backward = times.backward,
                     .gather = model_.gather(stage, times),
                     .after = model_.reduction(stage, times) + model_.optimizer(stage)});
  return prices_.size() - 1;
}

Option Programme::option(int stage_index, int begin, int end) {
  auto& known = options_[static_cast<std::size_t>(stage_index)];
  Option made{.stage = {.index = stage_index, .layers = count(begin, end)}};
  Stage& stage = made.stage;
  const bool counted = uniform_ >= 0;
  if (counted) stage.recomputed = count(begin, begin + std::min(uniform_, end - begin));
  const bool alike = one_kind_ || counted || plan_.recompute == Recompute::none ||
                     plan_.recompute == Recompute::selective;
  if (alike) {
    for (const Option& each : known) {
      if (each.stage.layers == stage.layers &&
          (!counted || each.stage.recomputed == stage.recomputed)) {
        return each;
      }
    }
  }
  if (counted) {
    made.feasible = model_.reserved(model_.memory(stage)) <= usable_;
  } else {
    const auto layers = cost_model_.moe_before().subspan(static_cast<std::size_t>(begin),
                                                         static_cast<std::size_t>(end - begin) + 1);
    made.feasible = choose_recompute(model_, plan_.recompute, layers, usable_, stage);
  }
  if (made.feasible) made.price = price(stage);
  if (alike) known.push_back(made);
  return made;
}

const Option& Programme::row(int stage, int begin, int end) {
  if (row_.empty()) row_first_ = end;  // the first one asked for
  while (row_first_ + static_cast<int>(row_.size()) <= end) {
    row_.push_back(option(stage, begin, row_first_ + static_cast<int>(row_.size())));
  }
  return row_[static_cast<std::size_t>(end - row_first_)];
}

void Programme::find_rest() {
  rest_.assign(static_cast<std::size_t>(layers_) + 1, Seconds{});
  ends_ = layer_and_ends(model_, plan_.pp, count(0, 1));
  for (int layer = layers_ - 1; layer >= 0; --layer) {
    const auto l = static_cast<std::size_t>(layer);
    // A stage past the last one has neither embedding nor head.
    const Stage one{.index = plan_.pp, .layers = count(layer, layer + 1)};
    rest_[l] = rest_[l + 1] + (one_kind_ ? ends_.layer : model_.times(one).total());
  }
}

Seconds Programme::lower_bound(int uniform) {
  if (rest_.empty()) find_rest();
  const FullStage full = full_stage(cost_model_, model_, plan_.pp, fullest(cost_model_, plan_.pp),
                                    std::max(0, uniform));
  const Seconds sum = rest(0) + ends_.embedding + ends_.head + full.again;
  slowest_ = std::max(sum / plan_.pp, full.total);
  if (one_kind_) slowest_ = std::max(slowest_, least_slowest(layers_, plan_.pp, ends_));
  return (model_.pipeline(sum, slowest_) + fixed_) * stretch_;
}

bool Programme::holds_more_than(int layers) {
  if (rest_.empty()) find_rest();
  const Seconds slowest = full_stage(cost_model_, model_, plan_.pp, layers + 1, layers).total;
  const Seconds sum = std::max(slowest, rest(0) + ends_.embedding + ends_.head);
  return (model_.pipeline(sum, slowest) + fixed_) * stretch_ < bound_;
}

/// Whether layers [begin, end) fit on a stage; `uniform` < 0: with none recomputed, or all.
bool Programme::holds(int stage, int begin, int end, int uniform) const {
  const LayerCounts all = count(begin, end);
  const auto fits = [&](LayerCounts full, LayerCounts selective) {
    const Stage tried{.index = stage, .layers = all, .recomputed = full, .selective = selective};
    return model_.reserved(model_.memory(tried)) <= usable_;
  };
  if (uniform >= 0) return fits(count(begin, begin + std::min(uniform, end - begin)), {});
  switch (plan_.recompute) {
    case Recompute::none: break;
    case Recompute::selective: return fits({}, all);
    case Recompute::full: return fits({}, {}) || fits(all, {});
    case Recompute::mixed: return fits({}, all) || fits(all, {});
  }
  return fits({}, {});
}

/// Last layer that a stage can hold all layers from `begin` up to, stepping from a guess: memory
/// grows with every layer.
int Programme::furthest(int stage, int begin, int guess, int uniform) const {
  int last = std::min(guess, layers_);
  while (last < layers_ && holds(stage, begin, last + 1, uniform)) ++last;
  while (last > begin && last <= guess && !holds(stage, begin, last, uniform)) --last;
  return last;
}

/// Greedily: what a stage holds from some layer on it can hold from any later one on, up to the
/// same last layer. But for the buffer of the layer being recomputed, which depends on its kind:
/// for two kinds earlier first layers are tried too.
bool Programme::may_fit(int uniform) const {
  int held = 0;
  int most = 0;  // what the stage before could hold: stages alike hold alike
  for (int stage = 0; stage < plan_.pp && held < layers_; ++stage) {
    int last = furthest(stage, held, held + most, uniform);
    most = last - held;
    if (one_kind_ && last < layers_ && last - held < fewest(stage)) return false;
    for (int begin = 0; begin < held && !one_kind_ && last < layers_; ++begin) {
      while (last < layers_ && holds(stage, begin, last + 1, uniform)) ++last;
    }
    held = last;
  }
  return held >= layers_;
}

void Programme::extend(int stage, int begin, const State& state, int index,
                       std::vector<std::vector<State>>& next) {
  const int left = plan_.pp - 1 - stage;
  const double m = static_cast<double>(model_.microbatches());
  const int first = begin + fewest(stage);
  const int later = left == 0 ? 0 : (left - 1) * plan_.vpp + fewest(plan_.pp - 1);
  for (int end = left == 0 ? std::max(first, layers_) : first; end <= layers_ - later; ++end) {
    const Option& chosen = row(stage, begin, end);
    if (!chosen.feasible) break;  // more layers need more memory, however many are recomputed
    const StageOption& made = prices_[chosen.price];
    State grown;
    grown.sum = state.sum + made.total;
    grown.slowest = std::max(state.slowest, made.total);
    grown.latest = std::max(state.latest, made.after - state.backward);
    grown.gather = std::max(state.gather, made.gather - state.forward);
    grown.forward = state.forward + made.forward / plan_.vpp + model_.hop();
    grown.backward = state.backward + made.backward / plan_.vpp + model_.hop();
    grown.parent = index;
    grown.from = begin;
    grown.again = made.stage.recomputed.total();
    grown.selective = made.stage.selective.total();
    const Seconds least_rest = left > 0 ? rest(end) + ends_.head : Seconds{};
    const Seconds slowest =
        std::max({grown.slowest, slowest_, left > 0 ? least_rest / left : Seconds{}});
    // What is exposed only grows with further stages.
    const Seconds least =
        (model_.pipeline(grown.sum + least_rest, slowest) + grown.latest + grown.gather + fixed_) *
        stretch_;
    if (least >= bound_) {
      // A stage that is too slow by itself only gets slower with more layers.
      if (m * made.total * stretch_ >= bound_) break;
      continue;
    }
    insert(next[static_cast<std::size_t>(end)], grown);
  }
}

Split Programme::trace(int index) const {
  Split split;
  split.layers.assign(static_cast<std::size_t>(plan_.pp), 0);
  split.recomputed = split.selective = split.layers;
  int end = layers_;
  for (int stage = plan_.pp - 1; stage >= 0; --stage) {
    const auto s = static_cast<std::size_t>(stage);
    const State& state =
        fronts_[s + 1][static_cast<std::size_t>(end)][static_cast<std::size_t>(index)];
    split.layers[s] = end - state.from;
    split.recomputed[s] = state.again;
    split.selective[s] = state.selective;
    end = state.from;
    index = state.parent;
  }
  return split;
}

std::optional<Split> Programme::solve(int uniform) {
  uniform_ = uniform;
  for (auto& known : options_) known.clear();
  prices_.clear();
  if (rest_.empty()) find_rest();
  const auto all = static_cast<std::size_t>(layers_) + 1;
  fronts_.assign(1, std::vector<std::vector<State>>(all));
  State start;
  start.latest = -kUnbounded;
  fronts_[0][0].push_back(start);
  for (int stage = 0; stage < plan_.pp; ++stage) {
    std::vector<std::vector<State>> next(all);
    const auto& now = fronts_.back();
    for (int begin = 0; begin <= layers_; ++begin) {
      const auto& front = now[static_cast<std::size_t>(begin)];
      row_.clear();
      for (std::size_t i = 0; i < front.size(); ++i) {
        extend(stage, begin, front[i], static_cast<int>(i), next);
      }
    }
    const bool alive =
        std::any_of(next.begin(), next.end(), [](const auto& front) { return !front.empty(); });
    if (!alive) return std::nullopt;
    fronts_.push_back(std::move(next));
  }
  const auto& last = fronts_.back()[static_cast<std::size_t>(layers_)];
  int best = -1;
  Seconds shortest = bound_;
  for (std::size_t i = 0; i < last.size(); ++i) {
    if (const Seconds each = step(last[i]); each < shortest) {
      shortest = each;
      best = static_cast<int>(i);
    }
  }
  if (best < 0) return std::nullopt;
  Split split = trace(best);
  split.step = shortest;
  return split;
}

}  // namespace

bool split_may_fit(const CostModel& cost_model, const ParallelPlan& plan,
                   const ShardingCosts& costs, Bytes usable) {
  return Programme(cost_model, plan, costs, usable, kUnbounded).may_fit(-1);
}

std::optional<Split> best_split(const CostModel& cost_model, const ParallelPlan& plan,
                                const ShardingCosts& costs, Bytes usable, Seconds bound) {
  EXPECTS(plan.vpp == 1 || cost_model.one_kind(), "chunks of layers of one kind");
  Programme programme(cost_model, plan, costs, usable, bound);
  if (programme.lower_bound(0) >= bound) return std::nullopt;
  const auto solve = [&](int uniform) -> std::optional<Split> {
    if (!programme.may_fit(uniform)) return std::nullopt;
    return programme.solve(uniform);
  };
  if (plan.recompute == Recompute::none || cost_model.stack().per_stage_recompute ||
      plan.recompute == Recompute::selective) {
    return solve(-1);
  }
  if (!programme.may_fit(-1)) return std::nullopt;
  const int layers = cost_model.model().layers;
  // Of a chunk each and more, more recomputed layers need less memory; none need no buffer for it.
  int low = 0;
  int high = (layers + plan.vpp - 1) / plan.vpp;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (programme.may_fit(middle * plan.vpp) ? high : low) = middle;
  }
  std::optional<Split> best;
  for (int uniform = 0; uniform < layers + plan.vpp; uniform += plan.vpp) {
    if (uniform > 0 && uniform < high * plan.vpp) continue;
    // Where every stage recomputes all it holds, recomputing more is the same.
    if (uniform > plan.vpp && !programme.holds_more_than(uniform - plan.vpp)) break;
    if (programme.lower_bound(uniform) >= (best ? best->step : bound)) break;
    if (auto found = solve(uniform)) {
      programme.tighten(found->step);
      best = std::move(found);
    }
  }
  return best;
}

}  // namespace echelon
