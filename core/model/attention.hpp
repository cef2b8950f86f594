// The shape of a rank's attention, and how its deterministic backward is split into parts.
#pragma once

#include <compare>
#include <cstdint>

#include "core/base/units.hpp"

namespace echelon {

/// Shape of causal attention, softmax(q·kᵀ/√d).
struct AttentionShape {
  std::int64_t sequence = 0;
  int samples = 0;
  int heads = 0;     ///< of this rank
  int kv_heads = 0;  ///< of this rank; divides heads
  int head_dim = 0;
  std::int64_t qkv_stride = 0;  ///< length of a row: [q heads | k heads | v heads]
  std::int64_t out_stride = 0;  ///< length of a row of heads · head_dim
  auto operator<=>(const AttentionShape&) const = default;
};

/// A part of the samples and heads that one call computes.
struct AttentionPart {
  int samples = 1;
  int kv_heads = 1;
};

/// Workspace of cuDNN's deterministic backward for one part, to within 1 KiB.
/// Source: reported by cuDNN 9.19 for compute capability 9.0: 2·B·H·⌈T/64⌉²·64² + 4·B·H·T, plus
/// 4·B·H·T·D if query heads share keys (gradients of k and v per query head).
[[nodiscard]] Bytes deterministic_workspace(const AttentionShape& shape, const AttentionPart& part);
/// The largest equal part whose workspace is at most `limit`, or one KV head of one sample if none
/// is. A part consists of several samples with all heads, or of heads of one sample, so that its
/// log_sum is dense, which cuDNN before 9.26 requires.
[[nodiscard]] AttentionPart largest_part(const AttentionShape& shape, Bytes limit);
/// If even the smallest part needs more, cuDNN does not compute the backward.
inline constexpr Bytes kMaxDeterministicWorkspace = 1_GiB;

}  // namespace echelon
