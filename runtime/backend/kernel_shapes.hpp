// Arguments of kernels that all backends share, besides pointers and counts.
#pragma once

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

/// RMS norms of single heads, the same for all of queries and for all of keys (Qwen3).
template <class T>
struct HeadNorms {
  const T* q_weight = nullptr;  ///< [head_dim]
  const T* k_weight = nullptr;  ///< [head_dim]
  double eps = 0;
};

/// The heads of rows of [q heads | k heads | v heads], or of attention's output alone, split into
/// equal parts: what context-parallel ranks exchange.
struct HeadSplit {
  std::int64_t rows = 0;
  int parts = 1;
  std::int64_t query = 0;      ///< width of all q heads of a row
  std::int64_t key_value = 0;  ///< width of all k heads, and of all v heads; 0: attention's output
  [[nodiscard]] std::int64_t width() const { return query + 2 * key_value; }
};

/// Rotation frequencies of the pairs of a head (model/rotary.hpp).
struct RotaryFrequencies {
  std::vector<double> angles;  ///< of pair i (elements i and i + head_dim/2), per position
  double scale = 1;            ///< multiplies cosines and sines
  bool operator==(const RotaryFrequencies&) const = default;
};

}  // namespace echelon
