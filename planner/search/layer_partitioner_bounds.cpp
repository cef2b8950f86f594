// What no partition of the layers can take, or hold: cheap necessary conditions, looked at before
// and while the stages are filled (layer_partitioner.hpp).
#include <algorithm>

#include "planner/search/layer_partitioner.hpp"

namespace echelon {

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
  LowerBound out{.sum = sum, .slowest = slowest};
  if (uniform == 0 || plan_.pp == 1) return out;
  // A stage of l layers recomputes min(uniform, l) ≥ l · min(uniform / most, 1). The first stage
  // holds no more than one in the middle.
  const int last = plan_.pp - 1;
  const int most =
      std::max(most_in_time(plan_.pp > 2 ? 1 : 0, uniform, out), most_in_time(last, uniform, out));
  out.again = uniform < most ? static_cast<double>(uniform) / most : 1.0;
  const Seconds repeated = least_again(out.again * layers_, count(0, layers_));
  out.sum = std::max(sum, all_layers() + ends_.embedding + ends_.head + repeated);
  out.slowest = std::max(slowest, out.sum / plan_.pp);
  return out;
}

LayerPartitioner::TotalRange LayerPartitioner::totals(int stage, int layers,
                                                      ChunkPositions::Range moe) const {
  const Seconds fewest = least_total(stage, {layers - moe.least, moe.least});
  const Seconds most = least_total(stage, {layers - moe.most, moe.most});
  return {std::min(fewest, most), std::max(fewest, most)};
}

/// Whether the first stage holds these layers, and the second all others if there is no third.
bool LayerPartitioner::may_fit_first(LayerCounts held) const {
  if (places_matter_ && mixes_kinds()) return true;  // it depends on where the layers lie
  if (!holds(0, held, std::nullopt, 0)) return false;
  const LayerCounts all = count(0, layers_);
  const LayerCounts rest{all.dense - held.dense, all.moe - held.moe};
  return plan_.pp != 2 || holds(1, rest, std::nullopt, held.total());
}

bool LayerPartitioner::first_stage_may_win(const LowerBound& lower, bool any_recomputation) {
  // Copies to the host make a pass longer where less is recomputed.
  if (plan_.pp == 1 || (any_recomputation && !plan_.offload_modules.empty())) return true;
  const int left = plan_.pp - 1;
  const Seconds sum = all_layers() + ends_.embedding + ends_.head;
  const auto may_win_with = [&](Seconds slowest, Seconds exposed) {
    return may_win(lower.sum, std::max(lower.slowest, slowest), exposed);
  };
  const auto may_hold = [&](LayerCounts held) {
    const Seconds own = least_total(0, held);
    const Seconds slowest = std::max(own, (sum - own) / left);
    if (!may_win_with(slowest, least_update_)) return false;
    Stage stage{.index = 0, .layers = held};
    if (any_recomputation) {
      stage.recomputed = held;  // nothing hides more of the reduction
    } else {
      if (plan_.recompute == Recompute::selective) stage.selective = held;
      if (!may_fit_first(held)) return false;
    }
    const StageTimes times = model_.times(stage);
    const Seconds after = model_.reduction(stage, times) + model_.optimizer(stage);
    return may_win_with(slowest, std::max(least_update_, after) + model_.gather(stage, times));
  };
  const int most = layers_ - (left - 1) * plan_.vpp - fewest(left);
  for (int held = fewest(0); held <= most; ++held) {
    const ChunkPositions::Range moe = positions_.interleaves_kinds()
                                          ? positions_.moe_range(0, held)
                                          : positions_.moe_range(0, 0, held);
    const TotalRange own = totals(0, held, moe);
    if (!may_win_with(own.least, least_update_)) return false;  // and more layers take longer
    if (!may_win_with((sum - own.most) / left, least_update_)) continue;
    for (int each = moe.least; each <= moe.most; ++each) {
      if (may_hold({held - each, each})) return true;
    }
  }
  return false;
}

bool LayerPartitioner::holds_more_than(int layers) {
  find_times();
  const std::optional<FullStage> more =
      full_stage(cost_model_, layer_, plan_.vpp, layers + 1, layers);
  if (!more) return false;
  const Seconds slowest = more->total;
  const Seconds sum = std::max(slowest, all_layers() + ends_.embedding + ends_.head);
  return may_win(sum, slowest, least_update_);
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
  const ChunkPositions::Range range =
      any_mix_ ? any_kinds(layers) : positions_.moe_range(stage, layers);
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
/// with every layer. `low` fits, or holds nothing; `high` does not.
int LayerPartitioner::furthest(int stage, int begin, int guess, std::optional<int> uniform, int low,
                               int high) {
  int tried = guess;
  bool above = false, below = false;  // tried with success, without
  for (int step = 1; high - low > 1; step *= 2) {
    tried = std::clamp(tried, low + 1, high - 1);
    const bool fits = holds(stage, begin, tried, uniform);
    (fits ? low : high) = tried;
    (fits ? above : below) = true;
    tried = above && below ? low + (high - low) / 2 : fits ? tried + step : tried - step;
  }
  return low;
}

/// Whether stages in the middle differ in the microbatches in flight alone, of which none has more
/// than the one before it.
bool LayerPartitioner::middle_alike() const {
  return plan_.pp > 3 && !cost_model_.framework().fixed_blocks && !runs_both_ways(plan_.schedule);
}

/// How many layers with experts so many layers can have, from anywhere in the model.
ChunkPositions::Range LayerPartitioner::any_kinds(int layers) const {
  const int experts = cost_model_.moe_before(layers_);
  return {std::max(0, layers - (layers_ - experts)), std::min(layers, experts)};
}

/// The most layers that a stage may hold, `uniform` of them recomputed, without being too slow for
/// the bounds.
int LayerPartitioner::most_in_time(int stage, int uniform, const LowerBound& lower) {
  const LayerCounts all = count(0, layers_);
  const auto in_time = [&](int layers) {
    const ChunkPositions::Range moe =
        positions_.interleaves_kinds() ? positions_.moe_range(stage, layers) : any_kinds(layers);
    const Seconds own =
        totals(stage, layers, moe).least + least_again(std::min(uniform, layers), all);
    return may_win(lower.sum, std::max(lower.slowest, own), least_update_);
  };
  int low = 0;
  int high = layers_ + 1;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (in_time(middle) ? low : high) = middle;
  }
  return low;
}

/// False where the stages cannot hold all layers, for lack of memory or of time.
bool LayerPartitioner::find_least_held(std::optional<int> uniform, const LowerBound& lower) {
  least_held_.assign(static_cast<std::size_t>(plan_.pp), 0);
  most_held_.assign(static_cast<std::size_t>(plan_.pp), std::nullopt);
  if (!one_kind_ && !mixes_kinds())
    return true;  // what a stage can hold depends on where it begins
  const int again = uniform.value_or(0);
  int held = layers_;
  int guess = (layers_ + plan_.pp - 1) / plan_.pp;
  std::optional<int> in_the_middle;  // where stages take equally long
  for (int stage = plan_.pp - 1; stage > 0 && held > 0; --stage) {
    const bool middle = stage < plan_.pp - 1;
    if (middle && !in_the_middle) in_the_middle = most_in_time(stage, again, lower);
    guess = middle_alike() ? most_that_fit(uniform)[static_cast<std::size_t>(stage)]
                           : furthest(stage, 0, guess, uniform);
    const int most = std::min(guess, middle ? *in_the_middle : most_in_time(stage, again, lower));
    most_held_[static_cast<std::size_t>(stage)] = most;
    held -= most;
    least_held_[static_cast<std::size_t>(stage) - 1] = std::max(0, held);
  }
  const int first = most_in_time(0, again, lower);
  most_held_[0] = first;
  return held <= first && (held <= 0 || holds(0, 0, held, uniform));
}

/// Whether each stage may hold as many layers as the others.
bool LayerPartitioner::all_hold_their_share(std::optional<int> uniform) {
  const int share = (layers_ + plan_.pp - 1) / plan_.pp;
  // Those in the middle differ in the microbatches in flight alone: the first of them keeps most.
  const bool alike = !cost_model_.framework().fixed_blocks && !runs_both_ways(plan_.schedule);
  for (int stage = 0; stage < plan_.pp; ++stage) {
    if (alike && stage > 1 && stage < plan_.pp - 1) continue;
    if (!holds(stage, 0, share, uniform)) return false;
  }
  return true;
}

/// The most layers that each stage can hold, from anywhere in the model. Of stages that are alike a
/// later one holds no fewer, so where two of them hold as many, so do all between them.
const std::vector<int>& LayerPartitioner::most_that_fit(std::optional<int> uniform) {
  if (most_fit_ && most_fit_->uniform == uniform && most_fit_->usable == usable_) {
    return most_fit_->layers;
  }
  std::vector<int> most(static_cast<std::size_t>(plan_.pp), 0);
  const auto at = [&](int stage) -> int& { return most[static_cast<std::size_t>(stage)]; };
  const int last = plan_.pp - 1;
  const int share = (layers_ + last) / plan_.pp;
  at(last) = furthest(last, 0, share, uniform);
  at(last - 1) = furthest(last - 1, 0, share, uniform);
  at(1) = furthest(1, 0, at(last - 1), uniform, 0, at(last - 1) + 1);
  at(0) = furthest(0, 0, at(1), uniform);
  const auto fill = [&](const auto& self, int from, int to) -> void {
    if (to - from < 2) return;
    const int middle = from + (to - from) / 2;
    at(middle) = furthest(middle, 0, at(from) + 1, uniform, at(from), at(to) + 1);
    self(self, from, middle);
    self(self, middle, to);
  };
  fill(fill, 1, last - 1);
  most_fit_ = {uniform, usable_, std::move(most)};
  return most_fit_->layers;
}

/// Whether all stages together hold all layers if those in the middle hold what the last of them
/// does.
bool LayerPartitioner::all_may_fit(std::optional<int> uniform) {
  const int share = (layers_ + plan_.pp - 3) / (plan_.pp - 2);
  if (holds(plan_.pp - 2, 0, share, uniform)) return true;
  const int middle = furthest(plan_.pp - 2, 0, share - 1, uniform, 0, share);
  const int rest = layers_ - (plan_.pp - 2) * middle;
  const int last = furthest(plan_.pp - 1, 0, share, uniform);
  return last >= rest || holds(0, 0, rest - last, uniform);
}

/// Greedily: what a stage holds from some layer on it can hold from any later one on, up to the
/// same last layer. But for the buffer of the layer being recomputed, which depends on its kind:
/// for two kinds earlier first layers are tried too.
bool LayerPartitioner::may_fit(std::optional<int> uniform) {
  const bool anywhere = one_kind_ || mixes_kinds();
  if (anywhere && all_hold_their_share(uniform)) return true;
  if (anywhere && middle_alike()) {
    if (!all_may_fit(uniform)) return false;
    const std::vector<int>& most = most_that_fit(uniform);
    int held = 0;
    for (int stage = 0; stage < plan_.pp; ++stage) {
      const int own = most[static_cast<std::size_t>(stage)];
      held += own;
      if (held >= layers_) return true;
      if (own < fewest(stage)) return false;
    }
    return false;
  }
  int held = 0;
  int most = layers_ / plan_.pp;  // what the stage before could hold: stages alike hold alike
  for (int stage = 0; stage < plan_.pp && held < layers_; ++stage) {
    int last = furthest(stage, held, held + most, uniform);
    most = last - held;
    if (anywhere && last < layers_ && most < fewest(stage)) return false;
    for (int begin = 0; begin < held && !anywhere && last < layers_; ++begin) {
      while (last < layers_ && holds(stage, begin, last + 1, uniform)) ++last;
    }
    held = last;
  }
  return held >= layers_;
}

}  // namespace echelon
