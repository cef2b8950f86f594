#include "planner/bounds.hpp"

#include <algorithm>
#include <cmath>

namespace echelon {

LayerAndEnds layer_and_ends(const StageModel& model, int pp, LayerCounts one) {
  const auto time = [&](int index, LayerCounts layers) {
    return model.times({.index = index, .layers = layers}).total();
  };
  // A stage past the last one has neither embedding nor head.
  return {time(pp, one), time(0, {}), time(pp - 1, {})};
}

Seconds least_slowest(int layers, int pp, const LayerAndEnds& times) {
  constexpr double kRounding = 1e-9;
  const auto whole = [&](Seconds time) { return std::floor(time / times.layer + kRounding); };
  const auto next = [&](Seconds end, double held) { return end + (held + 1) * times.layer; };
  const Seconds all = layers * times.layer + times.embedding + times.head;
  Seconds slowest = std::max({times.embedding, times.head, all / pp});
  while (true) {
    const double first = whole(slowest - times.embedding);
    const double middle = whole(slowest);
    const double last = whole(slowest - times.head);
    if (first + (pp - 2) * middle + last >= layers) return slowest * (1 - kRounding);
    slowest = std::min(next(times.embedding, first), next(times.head, last));
    if (pp > 2) slowest = std::min(slowest, next(Seconds{}, middle));
  }
}

}  // namespace echelon
