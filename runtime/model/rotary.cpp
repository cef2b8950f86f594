#include "runtime/model/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

double llama3_angle(const RotaryEmbedding& rope, double angle) {
  const double turns = angle * rope.original_positions / kTurn;
  if (turns > rope.high_frequency_factor) return angle;
  if (turns < rope.low_frequency_factor) return angle / rope.factor;
  const double width = rope.high_frequency_factor - rope.low_frequency_factor;
  if (width == 0) return angle;
  const double smooth = (turns - rope.low_frequency_factor) / width;
  return (1 - smooth) * angle / rope.factor + smooth * angle;
}

/// The pair that turns so many times in the original context, as a real number.
double yarn_pair(const RotaryEmbedding& rope, int rotated, double turns) {
  return rotated * std::log(rope.original_positions / (turns * kTurn)) / (2 * std::log(rope.theta));
}

void scale_by_yarn(const RotaryEmbedding& rope, int rotated, std::vector<double>& angles) {
  double first = yarn_pair(rope, rotated, rope.beta_fast);
  double last = yarn_pair(rope, rotated, rope.beta_slow);
  if (rope.whole_pairs) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, rotated - 1.0);
  constexpr double kMinWidth = 0.001;  // as in transformers: a step rather than 0/0
  if (first == last) last += kMinWidth;
  for (std::size_t i = 0; i < angles.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    angles[i] = angles[i] / rope.factor * divided + angles[i] * (1 - divided);
  }
}

}  // namespace

RotaryFrequencies rotary_frequencies(const RotaryEmbedding& rope, int head_dim) {
  const int rotated = rope.rotated_width(head_dim);
  EXPECTS(rope.scaling != RopeScaling::dynamic && rope.scaling != RopeScaling::longrope,
          "a scaling that is not executed");
  RotaryFrequencies frequencies;
  for (int i = 0; i < rotated / 2; ++i) {
    frequencies.angles.push_back(std::pow(rope.theta, -2.0 * i / rotated));
  }
  if (rope.scaling == RopeScaling::linear) {
    for (double& angle : frequencies.angles) angle /= rope.factor;
  }
  if (rope.scaling == RopeScaling::llama3) {
    for (double& angle : frequencies.angles) angle = llama3_angle(rope, angle);
  }
  if (rope.scaling == RopeScaling::yarn) {
    scale_by_yarn(rope, rotated, frequencies.angles);
    frequencies.scale = rope.attention_factor;
  }
  return frequencies;
}

}  // namespace echelon
