// Arguments of kernels that all backends share, besides pointers and counts.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/attention.hpp"
#include "core/model/model.hpp"
#include "runtime/comm/element.hpp"

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

/// The router of a layer with experts, for so many rows: each row visits the `choices` experts with
/// the largest scores, of equal ones those with the lowest numbers. Scores: parts of the softmax
/// over all experts, or sigmoids of the logits; with a bias (DeepSeek-V3's correction) score + bias
/// decides. The weights are the scores of the chosen, `normalized` divided by their sum (of
/// sigmoids
/// + 1e-20), times `scaling`.
///
/// With several groups, equal parts of the experts in their order, only those of the best
/// `group_choices` are chosen from: groups are compared by the sum of their `group_best` best
/// experts, one or two.
/// Source: transformers 5.24, DeepseekV3TopkRouter (models/deepseek_v3/modeling_deepseek_v3.py),
/// DeepseekV2TopkRouter with topk_method group_limited_greedy (models/deepseek_v2/),
/// MixtralTopKRouter; which of equal experts torch.topk chooses is not defined. Checked by:
/// tests/runtime/cpu/experts_test.cpp, tests/runtime/model/chunk_golden_test.cpp.
struct Router {
  std::int64_t rows = 0;
  int experts = 0;
  int choices = 0;
  bool normalized = true;
  double scaling = 1;
  RouterScore score = RouterScore::softmax;
  int groups = 1;  ///< at most kMaxRouterGroups
  int group_choices = 1;
  int group_best = 2;
};

/// Groups of experts are bits of a number.
inline constexpr int kMaxRouterGroups = 64;
/// Added to the sum of a token's sigmoids before it divides them. Source: transformers, as above.
inline constexpr double kLeastSum = 1e-20;

/// Where the router sends rows. Choice c = row · choices + j is the row's j-th largest score. The
/// slots are the choices ordered by expert, those of one expert as they were.
template <class T>
struct Routing {
  std::int32_t* experts = nullptr;  ///< [rows · choices]: of each choice
  std::int32_t* slots = nullptr;    ///< [rows · choices]: of each choice
  std::int32_t* rows = nullptr;     ///< [rows · choices]: by slot
  std::int32_t* counts = nullptr;   ///< [experts]: slots of each expert
  Wide<T>* weights = nullptr;       ///< [rows · choices]: by slot
};

/// Rotation frequencies of the pairs of a head (model/rotary.hpp).
struct RotaryFrequencies {
  /// Of pair i of n (elements i and i + n), per position; elements from 2n on are not rotated.
  std::vector<double> angles;
  double scale = 1;  ///< multiplies cosines and sines
  bool operator==(const RotaryFrequencies&) const = default;
};

}  // namespace echelon
