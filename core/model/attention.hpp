// The shape of a rank's attention, and the parts that its deterministic backward goes over.
#pragma once

#include <compare>
#include <cstdint>

#include "core/base/units.hpp"

namespace echelon {

/// Of causal attention, softmax(q·kᵀ/√d).
struct AttentionShape {
  std::int64_t sequence = 0;
  int samples = 0;
  int heads = 0;     ///< of this rank
  int kv_heads = 0;  ///< of this rank; divides heads
  int head_dim = 0;
  std::int64_t qkv_stride = 0;  ///< of a row: [q heads | k heads | v heads]
  std::int64_t out_stride = 0;  ///< of a row of heads · head_dim
  auto operator<=>(const AttentionShape&) const = default;
};

/// A part of the samples and heads that is computed at once.
struct AttentionPart {
  int samples = 1;
  int kv_heads = 1;
};

/// What cuDNN's deterministic backward of a part works in, but for less than 1 KiB.
/// Source: asked of cuDNN 9.19 for compute capability 9.0: 2·B·H·⌈T/64⌉²·64² + 4·B·H·T, and
/// 4·B·H·T·D where query heads share keys: gradients of k and v by query head.
[[nodiscard]] Bytes deterministic_workspace(const AttentionShape& shape, const AttentionPart& part);
/// The largest of equal parts whose workspace is at most `most`, or one head of k of one sample:
/// several samples with all heads, or heads of one sample, so that its log_sum is dense, which
/// cuDNN before 9.26 demands.
[[nodiscard]] AttentionPart largest_part(const AttentionShape& shape, Bytes most);
/// Where even the smallest part takes more, the backward is not cuDNN's.
inline constexpr Bytes kDeterministicWorkspaceAtMost = 1_GiB;

}  // namespace echelon
