// What the kernels of every backend are told beside pointers and counts.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/model/attention.hpp"

namespace echelon {

/// Before a norm of x, where there is a residual: sum = x (+ bias) + residual, rounded to T at each
/// +, and the norm is of that sum. `sum` may be the memory of x or of the residual.
template <class T>
struct SumBefore {
  const T* bias = nullptr;      ///< [width]; null: there is none
  const T* residual = nullptr;  ///< [rows, width]; null: nothing is added, the norm is of x
  T* sum = nullptr;             ///< [rows, width]
};

/// How fast the pairs of a rotated head turn (model/rotary.hpp).
struct RotaryFrequencies {
  std::vector<double> angles;  ///< of pair i (elements i and i + head_dim/2), per position
  double scale = 1;            ///< multiplies cosines and sines
  bool operator==(const RotaryFrequencies&) const = default;
};

struct AdamStep {
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

}  // namespace echelon
