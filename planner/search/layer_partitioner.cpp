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

StageOption LayerPartitioner::option(int stage_index, int position, int layers) {
  auto& known = options_[static_cast<std::size_t>(stage_index)];
  const auto first = [&](int held) {
    return positions_.first_layers(position, stage_index, layers, held);
  };
  StageOption made{.stage = {.index = stage_index, .layers = first(layers)}};
  Stage& stage = made.stage;
  if (places_matter_) stage.begins = positions_.begins(position);
  const bool counted = uniform_.has_value();
  if (counted) stage.recomputed = first(std::min(*uniform_, layers));
  const bool alike = one_kind_ || counted || plan_.recompute == Recompute::none ||
                     plan_.recompute == Recompute::selective;
  if (alike) {
    for (const StageOption& each : known) {
      if (each.stage.layers == stage.layers && each.stage.begins == stage.begins &&
          (!counted || each.stage.recomputed == stage.recomputed)) {
        return each;
      }
    }
  }
  if (counted) {
    made.feasible = model_.reserved(model_.memory(stage)) <= usable_;
  } else {
    made.feasible =
        choose_recompute(model_, plan_.recompute,
                         positions_.moe_before(position, stage_index, layers), usable_, stage);
  }
  if (made.feasible) made.price = price(stage);
  if (alike) known.push_back(made);
  return made;
}

const StageStep& LayerPartitioner::row(int stage, int position, int layers) {
  if (row_.empty()) row_first_ = layers;  // the first one asked for
  while (row_first_ + static_cast<int>(row_.size()) <= layers) {
    const int held = row_first_ + static_cast<int>(row_.size());
    StageStep made{option(stage, position, held)};
    if (made.option.feasible) made.after = positions_.after(position, stage, held);
    row_.push_back(made);
  }
  return row_[static_cast<std::size_t>(layers - row_first_)];
}

void LayerPartitioner::find_times() {
  if (ends_.layer > Seconds{}) return;
  const bool selective = plan_.recompute == Recompute::selective;
  ends_ = layer_and_ends(model_, plan_.pp, count(0, 1), selective);
  if (plan_.pp == 1) ends_.head = Seconds{};  // in ends_.embedding
  layer_ = layer_times(cost_model_, model_, plan_.pp, selective);
  // Short unless it runs on the host.
  if (plan_.offload_optimizer > 0) {
    least_update_ = std::max(Seconds{}, least_update(cost_model_, model_, plan_)) * (1 - kRounding);
  }
  const double chunks = plan_.vpp;
  const bool zero_bubble = plan_.schedule == ScheduleKind::zero_bubble_h1;
  least_slope_ = zero_bubble ? 1.0 / 3 : 1 / chunks;  // costmodel/time/pipeline.cpp
  most_slope_ = zero_bubble ? 2.0 / 3 : 1 / chunks;
  if (cost_model_.ablated() == AblatedFeature::no_bubble) least_slope_ = most_slope_ = 0;
}

LowerBound LayerPartitioner::lower_bound(int uniform) {
  find_times();
  const FullStage full = fullest_stage(cost_model_, layer_, plan_.pp, plan_.vpp, uniform);
  const Seconds sum = all_layers() + ends_.embedding + ends_.head + full.recompute;
  Seconds slowest = std::max(sum / plan_.pp, full.total);
  if (one_kind_ && plan_.pp > 1)
    slowest = std::max(slowest, least_slowest(layers_, plan_.pp, ends_));
  return {(model_.pipeline(sum, slowest) + least_update_ + fixed_) * stretch_, slowest};
}

bool LayerPartitioner::holds_more_than(int layers) {
  find_times();
  const std::optional<FullStage> more =
      full_stage(cost_model_, layer_, plan_.vpp, layers + 1, layers);
  if (!more) return false;
  const Seconds slowest = more->total;
  const Seconds sum = std::max(slowest, all_layers() + ends_.embedding + ends_.head);
  return (model_.pipeline(sum, slowest) + least_update_ + fixed_) * stretch_ < bound_;
}

/// Whether a stage of these layers fits, `full` of them recomputed; without `full`: with none
/// recomputed, or all.
bool LayerPartitioner::holds(int stage, LayerCounts all, std::optional<LayerCounts> full,
                             std::optional<int> begin) const {
  const auto fits = [&](LayerCounts whole, LayerCounts selective) {
    Stage tried{.index = stage, .layers = all, .recomputed = whole, .selective = selective};
    if (begin && places_matter_) tried.begins = {*begin};
    return model_.reserved(model_.memory(tried)) <= usable_;
  };
  if (full) return fits(*full, {});
  switch (plan_.recompute) {
    case Recompute::none: break;
    case Recompute::selective: return fits({}, all);
    case Recompute::full: return fits({}, {}) || fits(all, {});
    case Recompute::mixed: return fits({}, all) || fits(all, {});
  }
  return fits({}, {});
}

/// Whether chunks of so many layers fit, of whichever kinds they can be. Memory is linear in the
/// recomputed layers but for the buffer of one, which takes the experts' as soon as there are any.
bool LayerPartitioner::holds_some(int stage, int layers, std::optional<int> uniform) {
  ChunkPositions::Range range;
  if (any_mix_) {
    const int experts = cost_model_.moe_before(layers_);
    range = {std::max(0, layers - (layers_ - experts)), std::min(layers, experts)};
  } else {
    range = positions_.moe_range(stage, layers);
  }
  for (int moe = range.least; moe <= range.most; ++moe) {
    const LayerCounts all{layers - moe, moe};
    if (!uniform) {
      if (holds(stage, all, std::nullopt)) return true;
      continue;
    }
    const int full = std::min(*uniform, layers);
    const int fewest = std::max(0, full - all.dense);
    const int most = std::min(full, moe);
    const auto held = [&](int again) {
      return holds(stage, all, LayerCounts{full - again, again});
    };
    if (held(fewest) || (fewest < most && (held(fewest + 1) || held(most)))) return true;
  }
  return false;
}

/// Whether layers [begin, end) fit on a stage, or some as many of interleaved kinds.
bool LayerPartitioner::holds(int stage, int begin, int end, std::optional<int> uniform) {
  if (mixes_kinds()) return holds_some(stage, end - begin, uniform);
  std::optional<LayerCounts> full;
  if (uniform) full = count(begin, begin + std::min(*uniform, end - begin));
  return holds(stage, count(begin, end), full, begin);
}

/// Last layer that a stage can hold all layers from `begin` up to, from a guess on: memory grows
/// with every layer.
int LayerPartitioner::furthest(int stage, int begin, int guess, std::optional<int> uniform) {
  int low = begin;         // fits, or holds nothing
  int high = layers_ + 1;  // does not
  int tried = guess;
  for (int step = 1; high - low > 1; step *= 2) {
    tried = std::clamp(tried, low + 1, high - 1);
    const bool fits = holds(stage, begin, tried, uniform);
    (fits ? low : high) = tried;
    const bool between = low > begin && high <= layers_;
    tried = between ? low + (high - low) / 2 : fits ? tried + step : tried - step;
  }
  return low;
}

/// Whether all stages together hold all layers if those in the middle hold what the last of them
/// does: it keeps the fewest microbatches in flight. (Fixed blocks differ in more than that.)
bool LayerPartitioner::all_may_fit(std::optional<int> uniform) {
  if (plan_.pp <= 3 || cost_model_.framework().fixed_blocks) return true;
  const int share = (layers_ + plan_.pp - 3) / (plan_.pp - 2);
  if (holds(plan_.pp - 2, 0, share, uniform)) return true;
  const int middle = furthest(plan_.pp - 2, 0, share - 1, uniform);
  const int rest = layers_ - (plan_.pp - 2) * middle;
  const int last = furthest(plan_.pp - 1, 0, share, uniform);
  return last >= rest || last + furthest(0, 0, share, uniform) >= rest;
}

/// Greedily: what a stage holds from some layer on it can hold from any later one on, up to the
/// same last layer. But for the buffer of the layer being recomputed, which depends on its kind:
/// for two kinds earlier first layers are tried too.
bool LayerPartitioner::may_fit(std::optional<int> uniform) {
  const bool anywhere = one_kind_ || mixes_kinds();
  if (anywhere && !all_may_fit(uniform)) return false;
  int held = 0;
  int most = layers_ / plan_.pp;  // what the stage before could hold: stages alike hold alike
  most_.assign(static_cast<std::size_t>(plan_.pp), layers_);
  for (int stage = 0; stage < plan_.pp && held < layers_; ++stage) {
    int last = furthest(stage, held, held + most, uniform);
    most = last - held;
    if (anywhere && last < layers_ && most < fewest(stage)) return false;
    if (anywhere && last < layers_) most_[static_cast<std::size_t>(stage)] = most;
    for (int begin = 0; begin < held && !anywhere && last < layers_; ++begin) {
      while (last < layers_ && holds(stage, begin, last + 1, uniform)) ++last;
    }
    held = last;
  }
  return held >= layers_;
}

/// Whether a stage is too slow by itself, and with more layers only gets slower.
bool LayerPartitioner::too_slow(const StagePrice& price) const {
  Seconds least = price.total;
  if (positions_.interleaves_kinds()) {  // more layers may take others' places in recomputation
    least = price.stage.layers.dense * layer_.dense + price.stage.layers.moe * layer_.moe;
  }
  return static_cast<double>(model_.microbatches()) * least * stretch_ >= bound_;
}

void LayerPartitioner::extend(int stage, int position, const PartialPartition& state, int index,
                              std::vector<Front>& next) {
  const int left = plan_.pp - 1 - stage;
  const int behind = layers_ - positions_.layers(position);
  const int first = left == 0 ? std::max(fewest(stage), behind) : fewest(stage);
  const int later = left == 0 ? 0 : (left - 1) * plan_.vpp + fewest(plan_.pp - 1);
  const int last = std::min(behind - later, most_[static_cast<std::size_t>(stage)]);
  for (int layers = first; layers <= last; ++layers) {
    const auto& [chosen, after] = row(stage, position, layers);
    if (!chosen.feasible) {
      if (positions_.interleaves_kinds()) continue;
      break;  // more layers need more memory, however many are recomputed
    }
    if (left == 0 && !positions_.complete(after)) continue;
    const StagePrice& made = prices_[chosen.price];
    PartialPartition grown;
    grown.sum = state.sum + made.total;
    grown.slowest = std::max(state.slowest, made.total);
    grown.latest = std::max(state.latest, made.after - state.backward);
    grown.gather = std::max(state.gather, made.gather - state.forward);
    grown.forward = state.forward + made.forward / plan_.vpp + model_.hop();
    grown.backward = state.backward + made.backward / plan_.vpp + model_.hop();
    grown.parent = index;
    grown.from = position;
    grown.recomputed = made.stage.recomputed.total();
    grown.selective = made.stage.selective.total();
    const Seconds least_rest = left > 0 ? rest(after) + ends_.head : Seconds{};
    const Seconds slowest =
        std::max({grown.slowest, slowest_, left > 0 ? least_rest / left : Seconds{}});
    // What is exposed only grows with further stages.
    const Seconds least = (model_.pipeline(grown.sum + least_rest, slowest) +
                           std::max(grown.latest, least_update_) + grown.gather + fixed_) *
                          stretch_;
    if (least >= bound_) {
      if (too_slow(made)) break;
      continue;
    }
    const auto at = static_cast<std::size_t>(after);
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

std::optional<LayerPartition> LayerPartitioner::solve(std::optional<int> uniform, Seconds slowest) {
  uniform_ = uniform;
  slowest_ = slowest;
  for (auto& known : options_) known.clear();
  prices_.clear();
  find_times();
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
      row_.clear();
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
  Seconds shortest = bound_;
  for (std::size_t position = 0; position < last.size(); ++position) {
    for (std::size_t i = 0; i < last[position].size(); ++i) {
      if (const Seconds each = step(last[position][i]); each < shortest) {
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
