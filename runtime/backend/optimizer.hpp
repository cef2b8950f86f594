// The optimizer of a run: its hyperparameters, and the states it keeps for each parameter.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/comm/element.hpp"

namespace echelon {

/// The values that a checkpoint stores for each parameter: weights, fp32 masters, optimizer states.
enum class StateKind : std::uint8_t { weight, master, first_moment, second_moment };
struct StateKindInfo {
  StateKind kind;
  const char* name;       ///< in messages on memory
  std::string_view file;  ///< in a checkpoint
};
inline constexpr std::array kStateKinds{
    StateKindInfo{StateKind::weight, "weights", "weights.safetensors"},
    StateKindInfo{StateKind::master, "master weights", "master.safetensors"},
    StateKindInfo{StateKind::first_moment, "first moments", "exp_avg.safetensors"},
    StateKindInfo{StateKind::second_moment, "second moments", "exp_avg_sq.safetensors"}};
[[nodiscard]] constexpr const StateKindInfo& info_of(StateKind kind) {
  return kStateKinds[static_cast<std::size_t>(kind)];
}

/// One step of Adam (arXiv 1412.6980, algorithm 1) or AdamW (arXiv 1711.05101, algorithm 2).
struct AdamStep {
  static constexpr std::array kStates{StateKind::first_moment, StateKind::second_moment};

  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;  ///< decoupled (AdamW), or added to the gradient (Adam)
  bool decoupled = true;
  double gradient_scale = 1;  ///< clipping
  std::int64_t step = 1;      ///< from 1, for the bias corrections
};

/// An AdamStep in the precision it is computed in, with the bias corrections multiplied out.
template <class W>
struct AdamFactors {
  explicit AdamFactors(const AdamStep& s)
      : rate(
            static_cast<W>(s.learning_rate / (1 - std::pow(s.beta1, static_cast<double>(s.step))))),
        root(static_cast<W>(1 / std::sqrt(1 - std::pow(s.beta2, static_cast<double>(s.step))))),
        beta1(static_cast<W>(s.beta1)),
        beta2(static_cast<W>(s.beta2)),
        rest1(static_cast<W>(1 - s.beta1)),
        rest2(static_cast<W>(1 - s.beta2)),
        scale(static_cast<W>(s.gradient_scale)),
        eps(static_cast<W>(s.eps)),
        added(static_cast<W>(s.decoupled ? 0 : s.weight_decay)),
        kept(static_cast<W>(s.decoupled ? 1 - s.learning_rate * s.weight_decay : 1)) {}
  W rate, root, beta1, beta2, rest1, rest2, scale, eps, added, kept;
};

/// The optimizer that runs use. A second one makes this a std::variant of both.
using OptimizerStep = AdamStep;
inline constexpr std::size_t kOptimizerStates = OptimizerStep::kStates.size();

/// A rank's part of a parameter and its states, as OptimizerStep::kStates lists them.
template <class T>
struct OptimizerOperands {
  const Wide<T>* gradient = nullptr;
  Wide<T>* master = nullptr;  ///< may be the weights themselves (T = Wide<T>)
  std::array<Wide<T>*, kOptimizerStates> states{};
  T* weights = nullptr;  ///< written, rounded, where they are not the masters
  std::int64_t count = 0;
};

}  // namespace echelon
