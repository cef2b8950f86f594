#include "core/model/attention.hpp"

namespace echelon {

Bytes deterministic_workspace(const AttentionShape& s, const AttentionPart& part) {
  constexpr std::int64_t kTile = 64;
  const std::int64_t padded = (s.sequence + kTile - 1) / kTile * kTile;
  const std::int64_t heads = std::int64_t{part.samples} * part.kv_heads * (s.heads / s.kv_heads);
  const std::int64_t gradients = s.heads == s.kv_heads ? 0 : 4 * s.sequence * s.head_dim;
  return Bytes{static_cast<double>(heads * (2 * padded * padded + 4 * s.sequence + gradients))};
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

}  // namespace echelon
