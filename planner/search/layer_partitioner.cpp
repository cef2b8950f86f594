#include "planner/search/layer_partitioner.hpp"

#include <algorithm>

#include "planner/search/recompute.hpp"

namespace echelon {
namespace {

bool no_better(const PartialPartition& a, const PartialPartition& b) {
  return a.sum >= b.sum && a.slowest >= b.slowest && a.latest >= b.latest && a.gather >= b.gather;
}

void insert(std::vector<PartialPartition>& front, const PartialPartition& state) {
  for (const PartialPartition& other : front) {
    if (no_better(state, other)) return;
  }
  // Parents are referred to by index only after the stage is complete, so erasing is safe here.
  std::erase_if(front, [&](const PartialPartition& other) { return no_better(other, state); });
  front.push_back(state);
}

}  // namespace

LayerCounts LayerPartitioner::count(int begin, int end) const {
  const int moe = cost_model_.moe_before(end) - cost_model_.moe_before(begin);
  return {end - begin - moe, moe};
}

/// Stages in the middle that hold the same cost the same.
std::size_t LayerPartitioner::price(const Stage& stage) {
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

StageOption LayerPartitioner::option(int stage_index, int begin, int end) {
  auto& known = options_[static_cast<std::size_t>(stage_index)];
  StageOption made{.stage = {.index = stage_index, .layers = count(begin, end)}};
  Stage& stage = made.stage;
  const bool counted = uniform_.has_value();
  if (counted) stage.recomputed = count(begin, begin + std::min(*uniform_, end - begin));
  const bool alike = one_kind_ || counted || plan_.recompute == Recompute::none ||
                     plan_.recompute == Recompute::selective;
  if (alike) {
    for (const StageOption& each : known) {
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

const StageOption& LayerPartitioner::row(int stage, int begin, int end) {
  if (row_.empty()) row_first_ = end;  // the first one asked for
  while (row_first_ + static_cast<int>(row_.size()) <= end) {
    row_.push_back(option(stage, begin, row_first_ + static_cast<int>(row_.size())));
  }
  return row_[static_cast<std::size_t>(end - row_first_)];
}

void LayerPartitioner::find_rest() {
  rest_.assign(static_cast<std::size_t>(layers_) + 1, Seconds{});
  ends_ = layer_and_ends(model_, plan_.pp, count(0, 1));
  for (int layer = layers_ - 1; layer >= 0; --layer) {
    const auto l = static_cast<std::size_t>(layer);
    // A stage past the last one has neither embedding nor head.
    const Stage one{.index = plan_.pp, .layers = count(layer, layer + 1)};
    rest_[l] = rest_[l + 1] + (one_kind_ ? ends_.layer : model_.times(one).total());
  }
}

LowerBound LayerPartitioner::lower_bound(int uniform) {
  if (rest_.empty()) find_rest();
  const FullStage full = fullest_stage(cost_model_, model_, plan_.pp, uniform);
  const Seconds sum = rest(0) + ends_.embedding + ends_.head + full.recompute;
  Seconds slowest = std::max(sum / plan_.pp, full.total);
  if (one_kind_) slowest = std::max(slowest, least_slowest(layers_, plan_.pp, ends_));
  return {(model_.pipeline(sum, slowest) + fixed_) * stretch_, slowest};
}

bool LayerPartitioner::holds_more_than(int layers) {
  if (rest_.empty()) find_rest();
  const std::optional<FullStage> more =
      full_stage(cost_model_, model_, plan_.pp, layers + 1, layers);
  if (!more) return false;
  const Seconds slowest = more->total;
  const Seconds sum = std::max(slowest, rest(0) + ends_.embedding + ends_.head);
  return (model_.pipeline(sum, slowest) + fixed_) * stretch_ < bound_;
}

/// Whether layers [begin, end) fit on a stage; without `uniform`: with none recomputed, or all.
bool LayerPartitioner::holds(int stage, int begin, int end, std::optional<int> uniform) const {
  const LayerCounts all = count(begin, end);
  const auto fits = [&](LayerCounts full, LayerCounts selective) {
    const Stage tried{.index = stage, .layers = all, .recomputed = full, .selective = selective};
    return model_.reserved(model_.memory(tried)) <= usable_;
  };
  if (uniform) return fits(count(begin, begin + std::min(*uniform, end - begin)), {});
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
int LayerPartitioner::furthest(int stage, int begin, int guess, std::optional<int> uniform) const {
  int last = std::min(guess, layers_);
  while (last < layers_ && holds(stage, begin, last + 1, uniform)) ++last;
  while (last > begin && last <= guess && !holds(stage, begin, last, uniform)) --last;
  return last;
}

/// Greedily: what a stage holds from some layer on it can hold from any later one on, up to the
/// same last layer. But for the buffer of the layer being recomputed, which depends on its kind:
/// for two kinds earlier first layers are tried too.
bool LayerPartitioner::may_fit(std::optional<int> uniform) const {
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

void LayerPartitioner::extend(int stage, int begin, const PartialPartition& state, int index,
                              std::vector<std::vector<PartialPartition>>& next) {
  const int left = plan_.pp - 1 - stage;
  const double m = static_cast<double>(model_.microbatches());
  const int first = begin + fewest(stage);
  const int later = left == 0 ? 0 : (left - 1) * plan_.vpp + fewest(plan_.pp - 1);
  for (int end = left == 0 ? std::max(first, layers_) : first; end <= layers_ - later; ++end) {
    const StageOption& chosen = row(stage, begin, end);
    if (!chosen.feasible) break;  // more layers need more memory, however many are recomputed
    const StagePrice& made = prices_[chosen.price];
    PartialPartition grown;
    grown.sum = state.sum + made.total;
    grown.slowest = std::max(state.slowest, made.total);
    grown.latest = std::max(state.latest, made.after - state.backward);
    grown.gather = std::max(state.gather, made.gather - state.forward);
    grown.forward = state.forward + made.forward / plan_.vpp + model_.hop();
    grown.backward = state.backward + made.backward / plan_.vpp + model_.hop();
    grown.parent = index;
    grown.from = begin;
    grown.recomputed = made.stage.recomputed.total();
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

LayerPartition LayerPartitioner::trace(int index) const {
  LayerPartition out;
  out.layers.assign(static_cast<std::size_t>(plan_.pp), 0);
  out.recomputed = out.selective = out.layers;
  int end = layers_;
  for (int stage = plan_.pp - 1; stage >= 0; --stage) {
    const auto s = static_cast<std::size_t>(stage);
    const PartialPartition& state =
        fronts_[s + 1][static_cast<std::size_t>(end)][static_cast<std::size_t>(index)];
    out.layers[s] = end - state.from;
    out.recomputed[s] = state.recomputed;
    out.selective[s] = state.selective;
    end = state.from;
    index = state.parent;
  }
  return out;
}

std::optional<LayerPartition> LayerPartitioner::solve(std::optional<int> uniform, Seconds slowest) {
  uniform_ = uniform;
  slowest_ = slowest;
  for (auto& known : options_) known.clear();
  prices_.clear();
  if (rest_.empty()) find_rest();
  const auto all = static_cast<std::size_t>(layers_) + 1;
  fronts_.assign(1, std::vector<std::vector<PartialPartition>>(all));
  PartialPartition start;
  start.latest = -kUnbounded;
  fronts_[0][0].push_back(start);
  for (int stage = 0; stage < plan_.pp; ++stage) {
    std::vector<std::vector<PartialPartition>> next(all);
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
  std::optional<int> best;
  Seconds shortest = bound_;
  for (std::size_t i = 0; i < last.size(); ++i) {
    if (const Seconds each = step(last[i]); each < shortest) {
      shortest = each;
      best = static_cast<int>(i);
    }
  }
  if (!best) return std::nullopt;
  LayerPartition partition = trace(*best);
  partition.step = shortest;
  return partition;
}

}  // namespace echelon
