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
  std::int64_t query = 0;  ///< width of all q heads of a row
  std::int64_t key = 0;    ///< width of all k heads; 0: attention's output
  std::int64_t value = 0;  ///< width of all v heads; the same
  [[nodiscard]] std::int64_t width() const { return query + key + value; }
};

/// Queries of a rank that attend to keys of this or another rank (context parallelism by a ring):
/// the positions of an AttentionShape from `first_query` on, and the first `keys` of as many
/// positions, rows of [k heads | v heads]. Causal: query p sees the keys up to p, else all.
struct AttentionBlock {
  std::int64_t first_query = 0;
  std::int64_t keys = 0;
  bool causal = false;
  bool begins = false;  ///< the forward of the first keys that these queries see
};

/// `rows` pieces of `width` numbers, the first of each `stride` behind that of the one before.
struct Pieces {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t from_stride = 0;
  std::int64_t to_stride = 0;
};

/// Multi-head latent attention of so many rows: a row of latents is [q latent | kv latent | rotary
/// key], of which the first is absent where queries are projected directly. A q head is [nope |
/// rope], a head of the kv latent's projection [nope | value], and a k head [nope | rotary key].
/// The rotated pairs are neighbours: elements 2i and 2i + 1 of the rotary part.
/// Source: transformers, modeling_deepseek_v3.py (DeepseekV3Attention, and
/// apply_rotary_pos_emb_interleave, which reorders the result of queries and keys alike).
struct LatentShape {
  std::int64_t rows = 0;
  int samples = 1;  ///< row r is position first_position + r / samples
  std::int64_t first_position = 0;
  int heads = 0;
  int nope = 0;
  int rope = 0;
  int value = 0;
  std::int64_t q_rank = 0;  ///< 0: no latent of queries
  std::int64_t kv_rank = 0;
  [[nodiscard]] std::int64_t latents() const { return q_rank + kv_rank + rope; }
  [[nodiscard]] std::int64_t query() const { return std::int64_t{heads} * (nope + rope); }
  [[nodiscard]] std::int64_t key_value() const { return std::int64_t{heads} * (nope + value); }
  /// Of a row of [q heads | k heads | v heads].
  [[nodiscard]] std::int64_t qkv() const { return 2 * query() + std::int64_t{heads} * value; }
};

/// RMS norms of the latents.
template <class T>
struct LatentNorms {
  const T* q_weight = nullptr;   ///< [q_rank], where there is one
  const T* kv_weight = nullptr;  ///< [kv_rank]
  double eps = 0;
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
  /// Of pair i of n (elements i and i + n; of latent attention 2i and 2i + 1), per position;
  /// elements from 2n on are not rotated.
  std::vector<double> angles;
  double scale = 1;  ///< multiplies cosines and sines
  bool operator==(const RotaryFrequencies&) const = default;
};

}  // namespace echelon
