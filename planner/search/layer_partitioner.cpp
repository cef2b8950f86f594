#include "planner/search/layer_partitioner.hpp"

#include <algorithm>

#include "planner/search/recompute.hpp"

namespace echelon {

/// `a` takes no less time than `b` whatever follows: what b's slower pipeline costs is at most what
/// it saves in finishes and gathers, where those of later stages start behind the backwards and
/// forwards of the stages before. But for the rounding of the sums, where equals differ.
bool LayerPartitioner::no_better(const PartialPartition& a, const PartialPartition& b) const {
  if (b.slowest > a.slowest) return false;
  const Seconds more = b.sum - a.sum;
  const Seconds finish = std::max(b.latest - a.latest, a.backward - b.backward);
  const Seconds gather = std::max(b.gather - a.gather, a.forward - b.forward);
  const double slope = more > Seconds{} ? most_slope_ : least_slope_;
  constexpr double kEqual = 1e-13;
  return slope * more + finish + gather <= kEqual * a.sum;
}

void LayerPartitioner::insert(Front& front, const PartialPartition& state) const {
  for (const PartialPartition& other : front) {
    if (no_better(state, other)) return;
  }
  // Parents are referred to by index only after the stage is complete, so erasing is safe here.
  std::erase_if(front, [&](const PartialPartition& other) { return no_better(other, state); });
  front.push_back(state);
}

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

const StageOption& LayerPartitioner::option(const Stage& stage) {
  std::vector<StageOption>& known = options_[static_cast<std::size_t>(stage.index)];
  for (const StageOption& each : known) {
    if (each.stage.layers == stage.layers && each.stage.recomputed == stage.recomputed &&
        each.stage.begins == stage.begins) {
      return each;
    }
  }
  known.push_back({stage, model_.reserved(model_.memory(stage)), price(stage)});
  return known.back();
}

StageStep LayerPartitioner::step_of(int stage_index, int position, int layers) {
  const auto first = [&](int held) {
    return positions_.first_layers(position, stage_index, layers, held);
  };
  Stage stage{.index = stage_index, .layers = first(layers)};
  if (places_matter_) stage.begins = positions_.begins(position);
  const bool chosen = plan_.recompute == Recompute::full || plan_.recompute == Recompute::mixed;
  if (chosen && !uniform_) {
    const bool feasible =
        choose_recompute(model_, plan_.recompute,
                         positions_.moe_before(position, stage_index, layers), usable_, stage);
    return {.feasible = feasible, .price = feasible ? price(stage) : 0};
  }
  if (uniform_)
    stage.recomputed = first(std::min(*uniform_, layers));
  else if (plan_.recompute == Recompute::selective)
    stage.selective = stage.layers;
  const StageOption& known = option(stage);
  return {.feasible = known.reserved <= usable_, .price = known.price};
}

StageStep& LayerPartitioner::row(int stage, int position, int layers) {
  std::optional<StageStep>& step = row_[static_cast<std::size_t>(layers)];
  if (!step) step = step_of(stage, position, layers);
  return *step;
}

/// Whether a stage is too slow by itself, and with more layers only gets slower.
bool LayerPartitioner::too_slow(const StagePrice& price) const {
  Seconds least = price.total;
  if (positions_.interleaves_kinds()) {  // more layers may take others' places in recomputation
    least = price.stage.layers.dense * layer_.dense + price.stage.layers.moe * layer_.moe;
  }
  return static_cast<double>(model_.microbatches()) * least * stretch_ >=
         std::min(bound_, closed_bound_);
}

/// The state behind one more stage.
PartialPartition LayerPartitioner::behind(const PartialPartition& state,
                                          const StagePrice& made) const {
  PartialPartition out;
  out.sum = state.sum + made.total;
  out.slowest = std::max(state.slowest, made.total);
  out.latest = std::max(state.latest, made.after - state.backward);
  out.gather = std::max(state.gather, made.gather - state.forward);
  out.forward = state.forward + made.forward / plan_.vpp + model_.hop();
  out.backward = state.backward + made.backward / plan_.vpp + model_.hop();
  out.recomputed = made.stage.recomputed.total();
  out.selective = made.stage.selective.total();
  return out;
}

void LayerPartitioner::extend(int stage, int position, const PartialPartition& state, int index,
                              std::vector<Front>& next) {
  const int left = plan_.pp - 1 - stage;
  const LayerCounts rest = behind(position);
  const int first = left == 0 ? std::max(fewest(stage), rest.total()) : fewest(stage);
  const int later = left == 0 ? 0 : (left - 1) * plan_.vpp + fewest(plan_.pp - 1);
  const int last = rest.total() - later;
  const Seconds ahead = least_repeated(rest) + ends_.head;
  const Seconds sum = state.sum + ahead + (stage == 0 ? ends_.embedding : Seconds{});
  const Seconds exposed = std::max(state.latest, least_update_) + state.gather;
  const Seconds known = std::max(state.slowest, slowest_);  // with which the state may win
  const auto may_hold = [&](Seconds stage_total) {
    return stage_total <= known || may_win(sum, stage_total, exposed);
  };
  const Seconds plain = least_time(rest) + ends_.head + (stage == 0 ? ends_.embedding : Seconds{});
  const int full = uniform_.value_or(0);
  bool later_may_hold = left == 0;
  const int still = least_held_[static_cast<std::size_t>(stage)] - positions_.layers(position);
  for (int layers = std::max(first, still); layers <= last; ++layers) {
    const ChunkPositions::Range moe = positions_.moe_range(position, stage, layers);
    if (moe.least > moe.most) continue;  // the chunks cannot begin where they were taken to
    const TotalRange own = totals(stage, layers, moe);
    if (!may_hold(own.least + least_again(std::min(full, layers), rest))) {
      break;  // and more layers take longer
    }
    if (!later_may_hold) {  // with fewer layers here
      const Seconds later_total =
          plain - own.most + least_again(again_ * (rest.total() - layers), rest);
      if (!may_hold(later_total / left)) continue;
      later_may_hold = true;
    }
    StageStep& step = row(stage, position, layers);
    if (!step.feasible) {
      if (positions_.interleaves_kinds()) continue;
      break;  // more layers need more memory, however many are recomputed
    }
    const StagePrice& made = prices_[step.price];
    PartialPartition grown = behind(state, made);
    grown.parent = index;
    grown.from = position;
    const Seconds least_rest = left > 0 ? least_repeated({rest.dense - made.stage.layers.dense,
                                                          rest.moe - made.stage.layers.moe}) +
                                              ends_.head
                                        : Seconds{};
    const Seconds slowest =
        std::max({grown.slowest, known, left > 0 ? least_rest / left : Seconds{}});
    // What is exposed only grows with further stages.
    if (!may_win(grown.sum + least_rest, slowest,
                 std::max(grown.latest, least_update_) + grown.gather)) {
      if (too_slow(made)) break;
      continue;
    }
    if (!step.after) step.after = positions_.after(position, stage, layers);
    if (left == 0 && !positions_.complete(*step.after)) continue;
    const auto at = static_cast<std::size_t>(*step.after);
    if (next.size() <= at) next.resize(positions_.size());
    insert(next[at], grown);
  }
}

LayerPartition LayerPartitioner::trace(int position, int index) const {
  LayerPartition out;
  out.layers.assign(static_cast<std::size_t>(plan_.pp), 0);
  out.recomputed = out.selective = out.layers;
  for (int stage = plan_.pp - 1; stage >= 0; --stage) {
    const auto s = static_cast<std::size_t>(stage);
    const PartialPartition& state =
        fronts_[s + 1][static_cast<std::size_t>(position)][static_cast<std::size_t>(index)];
    out.layers[s] = positions_.layers(position) - positions_.layers(state.from);
    out.recomputed[s] = state.recomputed;
    out.selective[s] = state.selective;
    position = state.from;
    index = state.parent;
  }
  return out;
}

std::optional<LayerPartition> LayerPartitioner::solve(std::optional<int> uniform,
                                                      const LowerBound& lower) {
  if (uniform != uniform_) forget_options();
  uniform_ = uniform;
  slowest_ = lower.slowest;
  again_ = lower.again;
  find_times();
  if (!find_least_held(uniform, lower)) return std::nullopt;
  if (std::optional<Tried> tried = try_all(lower)) return std::move(tried->best);
  PartialPartition start;
  start.latest = -kUnbounded;
  const std::vector<int>& starts = positions_.starts();
  fronts_.assign(1, std::vector<Front>(positions_.size()));
  for (const int position : starts) {
    fronts_[0][static_cast<std::size_t>(position)].push_back(start);
  }
  for (int stage = 0; stage < plan_.pp; ++stage) {
    std::vector<Front> next(positions_.size());
    const auto& now = fronts_.back();
    for (std::size_t position = 0; position < now.size(); ++position) {
      const Front& front = now[position];
      if (!front.empty()) row_.assign(static_cast<std::size_t>(layers_) + 1, std::nullopt);
      for (std::size_t i = 0; i < front.size(); ++i) {
        extend(stage, static_cast<int>(position), front[i], static_cast<int>(i), next);
      }
    }
    const bool alive =
        std::any_of(next.begin(), next.end(), [](const Front& front) { return !front.empty(); });
    if (!alive) return std::nullopt;
    fronts_.push_back(std::move(next));
  }
  const std::vector<Front>& last = fronts_.back();
  std::optional<std::pair<int, int>> best;  // position, index
  Seconds shortest = closed_bound_;
  for (std::size_t position = 0; position < last.size(); ++position) {
    for (std::size_t i = 0; i < last[position].size(); ++i) {
      if (const Seconds each = closed_form(last[position][i]); each < shortest) {
        shortest = each;
        best = {static_cast<int>(position), static_cast<int>(i)};
      }
    }
  }
  if (!best) return std::nullopt;
  LayerPartition partition = trace(best->first, best->second);
  partition.step = shortest;
  return partition;
}

}  // namespace echelon
