// The shape of a rank's attention, and how cuDNN computes its backward.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "core/base/units.hpp"

namespace echelon {

/// Shape of causal attention, softmax(factor·q·kᵀ/√d).
struct AttentionShape {
  std::int64_t sequence = 0;
  int samples = 0;
  int heads = 0;     ///< of this rank
  int kv_heads = 0;  ///< of this rank; divides heads
  int head_dim = 0;
  std::int64_t qkv_stride = 0;      ///< length of a row: [q heads | k heads | v heads]
  std::int64_t out_stride = 0;      ///< length of a row of heads · value_dim
  std::optional<int> v_head_dim{};  ///< of values; none: head_dim
  double score_factor = 1;
  [[nodiscard]] int value_dim() const { return v_head_dim.value_or(head_dim); }
  auto operator<=>(const AttentionShape&) const = default;
};

/// A part of the samples and heads that one call computes.
struct AttentionPart {
  int samples = 1;
  int kv_heads = 1;
};

/// How cuDNN is to compute the backward.
struct AttentionMode {
  bool deterministic = false;  ///< the same bits in every run, whatever the size
  Bytes parts = 256_MiB;       ///< what a deterministic backward is to work in
  Bytes limit = 1_GiB;         ///< beyond it cuDNN is not used
};
/// What attention's backward may take of a GPU with this much memory, 1/16.
[[nodiscard]] constexpr Bytes attention_limit(Bytes memory) { return memory / 16; }

/// One call of cuDNN's backward.
struct AttentionBackward {
  AttentionPart part;
  Bytes workspace;  ///< to within 1 KiB
  bool deterministic = false;
};

/// nothing: the smallest part takes more than the limit, so that cuDNN does not compute the
/// backward. Slopes of scores are kept in 16 bits, or, with atomic sums, the gradient of q in 32:
///
///   deterministic   2·B·H·⌈T/64⌉²·64² + 4·B·H·T + G     in parts (largest_part)
///   atomic sums     4·B·H·T·D + 4·B·H·T + G             in one call
///   G = 4·B·H·T·D   if query heads share keys: gradients of k and v per query head
///
/// The second form, whatever the size, is that of PyTorch and Transformer Engine with cuDNN 9.
/// Source: reported by cuDNN 9.19 for compute capability 9.0; cudnn-frontend 1.32,
/// node/scaled_dot_product_flash_attention.h, where the choice by size ends with cuDNN 8.9.
/// Checked by: tests/runtime/cuda/attention/cudnn_test.cpp.
[[nodiscard]] std::optional<AttentionBackward> plan_attention_backward(const AttentionShape& shape,
                                                                       const AttentionMode& mode);
/// The first of these.
[[nodiscard]] Bytes deterministic_workspace(const AttentionShape& shape, const AttentionPart& part);
/// The largest equal part whose workspace is at most `limit`, or one KV head of one sample if none
/// is. A part consists of several samples with all heads, or of heads of one sample, so that its
/// log_sum is dense, which cuDNN before 9.26 requires.
[[nodiscard]] AttentionPart largest_part(const AttentionShape& shape, Bytes limit);

}  // namespace echelon
