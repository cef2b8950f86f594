#include "core/model/attention.hpp"

namespace echelon {

namespace {

/// Gradients of k and v per query head, if heads share keys.
std::int64_t shared_gradients(const AttentionShape& s) {
  return s.heads == s.kv_heads ? 0 : 4 * s.sequence * s.head_dim;
}

}  // namespace

Bytes deterministic_workspace(const AttentionShape& s, const AttentionPart& part) {
  constexpr std::int64_t kTile = 64;
  const std::int64_t padded = (s.sequence + kTile - 1) / kTile * kTile;
  const std::int64_t heads = std::int64_t{part.samples} * part.kv_heads * (s.heads / s.kv_heads);
  return Bytes{
      static_cast<double>(heads * (2 * padded * padded + 4 * s.sequence + shared_gradients(s)))};
}

AttentionPart largest_part(const AttentionShape& s, Bytes limit) {
  AttentionPart best;
  const auto consider = [&](const AttentionPart& part) {
    if (deterministic_workspace(s, part) <= limit) best = part;
  };
  for (int heads = 2; heads <= s.kv_heads; ++heads) {
    if (s.kv_heads % heads == 0) consider({1, heads});
  }
  for (int samples = 2; samples <= s.samples; ++samples) {
    if (s.samples % samples == 0) consider({samples, s.kv_heads});
  }
  return best;
}

std::optional<AttentionBackward> plan_attention_backward(const AttentionShape& s,
                                                         const AttentionMode& mode) {
  AttentionBackward found{{s.samples, s.kv_heads}, {}, mode.deterministic};
  if (mode.deterministic) {
    found.part = largest_part(s, mode.parts);
    found.workspace = deterministic_workspace(s, found.part);
  } else {
    const double heads = static_cast<double>(s.samples) * s.heads;
    const double rows = heads * static_cast<double>(s.sequence);
    found.workspace =
        Bytes{4 * rows * (1 + s.head_dim) + heads * static_cast<double>(shared_gradients(s))};
  }
  if (found.workspace > mode.limit) return std::nullopt;
  return found;
}

}  // namespace echelon
