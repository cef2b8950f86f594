// Interleaved layers of two kinds where few numbers of layers come into question: each partition is
// priced by itself. Where its chunks begin, and so which kinds they hold, follows from the numbers
// of layers of all stages, which positions have to guess (chunk_positions.hpp).
#include <algorithm>

#include "planner/search/layer_partitioner.hpp"

namespace echelon {

/// How many compositions of the layers no stage rules out by itself; at most `most`.
std::int64_t LayerPartitioner::count_compositions(std::int64_t most) const {
  const auto all = static_cast<std::size_t>(layers_);
  std::vector<std::int64_t> ways(all + 1, 0), next;
  ways[0] = 1;
  for (int stage = 0; stage < plan_.pp; ++stage) {
    next.assign(all + 1, 0);
    const auto least = static_cast<std::size_t>(fewest(stage));
    const auto held = static_cast<std::size_t>(*most_held_[static_cast<std::size_t>(stage)]);
    for (std::size_t before = 0; before <= all; ++before) {
      if (ways[before] == 0) continue;
      for (std::size_t own = least; own <= std::min(held, all - before); ++own) {
        next[before + own] = std::min(most, next[before + own] + ways[before]);
      }
    }
    std::swap(ways, next);
  }
  return ways[all];
}

/// layers_in_chunk() of all chunks.
const std::vector<int>& LayerPartitioner::chunk_sizes(int stage, int held) {
  const bool last = stage == plan_.pp - 1;
  auto& known = chunk_sizes_[last ? 1 : 0];
  known.resize(static_cast<std::size_t>(layers_) + 1);
  std::vector<int>& sizes = known[static_cast<std::size_t>(held)];
  while (sizes.size() < static_cast<std::size_t>(plan_.vpp)) {
    sizes.push_back(layers_in_chunk(held, plan_.vpp, last, static_cast<int>(sizes.size())));
  }
  return sizes;
}

/// The kinds of the layers of each stage, and of those that it recomputes as a whole.
void LayerPartitioner::find_kinds(const std::vector<int>& layers, std::vector<Stage>& out) {
  out.resize(layers.size());
  sizes_.resize(layers.size());
  for (std::size_t s = 0; s < out.size(); ++s) {
    out[s].index = static_cast<int>(s);
    out[s].layers = out[s].recomputed = {};
    sizes_[s] = chunk_sizes(out[s].index, layers[s]).data();
  }
  const int full = uniform_.value_or(0);
  int begin = 0;
  for (int chunk = 0; chunk < plan_.vpp; ++chunk) {
    for (std::size_t s = 0; s < out.size(); ++s) {
      const int end = begin + sizes_[s][chunk];
      const int again = full - out[s].recomputed.total();
      if (again > 0) out[s].recomputed += count(begin, std::min(end, begin + again));
      out[s].layers += count(begin, end);
      begin = end;
    }
  }
  if (plan_.recompute != Recompute::selective) return;
  for (Stage& stage : out) stage.selective = stage.layers;
}

/// The state behind all stages; nothing where one of them does not fit or the bounds are passed.
std::optional<PartialPartition> LayerPartitioner::run_through(const std::vector<Stage>& stages) {
  PartialPartition state;
  state.latest = -kUnbounded;
  for (const Stage& stage : stages) {
    const StageOption& known = option(stage);
    if (known.reserved > usable_) return std::nullopt;
    const StagePrice& made = prices_[known.price];
    if (!may_win(state.sum, std::max({state.slowest, slowest_, made.total}), least_update_)) {
      return std::nullopt;
    }
    state = behind(state, made);
  }
  const Seconds exposed = std::max(state.latest, least_update_) + state.gather;
  if (!may_win(state.sum, std::max(state.slowest, slowest_), exposed)) return std::nullopt;
  return state;
}

/// What find_least_held() did not need: the most layers of a stage without being too slow.
void LayerPartitioner::find_most_held(const LowerBound& lower) {
  const int again = uniform_.value_or(0);
  std::optional<int> in_the_middle;  // where stages take equally long
  for (int stage = 0; stage < plan_.pp; ++stage) {
    std::optional<int>& most = most_held_[static_cast<std::size_t>(stage)];
    if (most) continue;
    const bool end = stage == 0 || stage == plan_.pp - 1;
    if (!end && !in_the_middle) in_the_middle = most_in_time(stage, again, lower);
    most = end ? most_in_time(stage, again, lower) : *in_the_middle;
  }
}

/// Nothing where there are too many to try, or where rounding decides between the best ones.
std::optional<LayerPartitioner::Tried> LayerPartitioner::try_all(const LowerBound& lower) {
  const bool chosen = plan_.recompute == Recompute::full || plan_.recompute == Recompute::mixed;
  if (!positions_.interleaves_kinds() || places_matter_ || (chosen && !uniform_)) return {};
  find_most_held(lower);
  if (count_compositions(most_tried_) >= most_tried_) return {};
  std::vector<int> layers(static_cast<std::size_t>(plan_.pp), 0);
  std::vector<Stage> stages;
  Tried out;
  Seconds shortest = closed_bound_;
  Seconds second = kUnbounded;
  const auto try_this = [&] {
    find_kinds(layers, stages);
    const std::optional<PartialPartition> state = run_through(stages);
    if (!state) return;
    const Seconds step = closed_form(*state);
    if (step >= shortest) {
      second = std::min(second, step);
      return;
    }
    if (out.best) second = shortest;
    shortest = step;
    out.best = LayerPartition{.layers = layers, .recomputed = {}, .selective = {}, .step = step};
    for (const Stage& stage : stages) {
      out.best->recomputed.push_back(stage.recomputed.total());
      out.best->selective.push_back(stage.selective.total());
    }
  };
  const auto fill = [&](const auto& self, int stage, int rest) -> void {
    const auto s = static_cast<std::size_t>(stage);
    if (stage == plan_.pp - 1) {
      if (rest < fewest(stage) || rest > *most_held_[s]) return;
      layers[s] = rest;
      return try_this();
    }
    int most = 0;
    for (int later = stage + 1; later < plan_.pp; ++later) {
      most += *most_held_[static_cast<std::size_t>(later)];
    }
    const int least = (plan_.pp - 2 - stage) * fewest(1) + fewest(plan_.pp - 1);
    for (layers[s] = std::max(fewest(stage), rest - most);
         layers[s] <= std::min(*most_held_[s], rest - least); ++layers[s]) {
      self(self, stage + 1, rest - layers[s]);
    }
  };
  fill(fill, 0, layers_);
  constexpr double kApart = 1e-9;
  if (out.best && second <= shortest * (1 + kApart)) return {};
  return out;
}

}  // namespace echelon
