// ChunkLayout: the shapes of a chunk's attention.
#include <cmath>
#include <optional>

#include "runtime/model/chunk_layout.hpp"

namespace echelon {

namespace {

/// With YaRN, scores in latent attention are multiplied by a factor (RotaryEmbedding).
double score_factor_of(const ModelSpec& model) {
  const RotaryEmbedding& rope = model.constants->rope;
  if (rope.scaling != RopeScaling::yarn || rope.score_mscale == 0 || rope.factor <= 1) return 1;
  constexpr double kPerLog = 0.1;
  const double mscale = kPerLog * rope.score_mscale * std::log(rope.factor) + 1;
  return mscale * mscale;
}

}  // namespace

LatentShape latent_shape_of(const ChunkSpec& spec) {
  const LatentAttention& mla = spec.model.mla;
  return {.rows = std::int64_t{spec.sequence / spec.cp} * spec.microbatch,
          .samples = spec.microbatch,
          .heads = spec.model.heads / spec.tp,
          .nope = mla.qk_nope_head_dim,
          .rope = mla.qk_rope_head_dim,
          .value = mla.v_head_dim,
          .q_rank = mla.q_lora_rank,
          .kv_rank = mla.kv_lora_rank};
}

AttentionShape attention_shape_of(const ChunkSpec& spec) {
  const ChunkShape s = shape_of(spec);
  const ModelSpec& model = spec.model;
  const int parts = spec.splits_heads() ? spec.cp : 1;
  return {.sequence = spec.sequence / (spec.cp / parts),
          .samples = spec.microbatch,
          .heads = s.heads / parts,
          .kv_heads = s.kv_heads / parts,
          .head_dim = model.head_dim,
          .qkv_stride = s.qkv / parts,
          .out_stride = s.attended / parts,
          .v_head_dim = model.latent() ? std::optional(model.mla.v_head_dim) : std::nullopt,
          .score_factor = model.latent() ? score_factor_of(model) : 1};
}

}  // namespace echelon
