// The byte formulas of chunk_layout.hpp, written a second time.
#include <vector>

#include "runtime/model/chunk_layout.hpp"
#include "tests/runtime/model/chunk_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

std::int64_t up64(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

ChunkMemory memory_by_formula(const ChunkSpec& spec, std::int64_t w, std::int64_t wide) {
  const ModelSpec& model = spec.model;
  const bool split = spec.sequence_parallel && spec.tp > 1;
  const std::int64_t r = std::int64_t{spec.sequence} / spec.cp * spec.microbatch;
  const std::int64_t local = split ? r / spec.tp : r;
  const std::int64_t h = model.hidden;
  const std::int64_t a = model.heads / spec.tp;
  const LatentAttention& mla = model.mla;
  const std::int64_t q = a * (model.latent() ? mla.v_head_dim : model.head_dim);
  const std::int64_t qkv = model.latent()
                               ? a * (2 * model.head_dim + mla.v_head_dim)
                               : q + 2 * std::max(1, model.kv_heads / spec.tp) * model.head_dim;
  const std::int64_t latents =
      model.latent() ? up64(w * r * (mla.q_lora_rank + mla.kv_lora_rank + mla.qk_rope_head_dim))
                     : 0;
  const std::int64_t projections = up64(w * r * a * model.head_dim) +
                                   up64(w * r * a * (mla.qk_nope_head_dim + mla.v_head_dim)) +
                                   latents;
  const std::int64_t f = model.ffn_hidden / spec.tp;
  const std::int64_t up = model.gated_mlp ? 2 * f : f;
  const std::int64_t state = up64(w * local * h);
  const std::int64_t n = r * model.moe.experts_per_token;
  const std::int64_t most =
      std::min<std::int64_t>(model.moe.experts_per_token, model.moe.experts / spec.ep);
  const std::int64_t got = spec.ep > 1 ? spec.ep * r * most : n;
  const std::int64_t ef = model.moe.expert_ffn_hidden / spec.tp;
  const std::int64_t eup = model.gated_mlp ? 2 * ef : ef;
  const std::int64_t router = up64(w * r * model.moe.experts);
  const std::int64_t routing = 3 * up64(4 * n) + up64(4 * spec.ep * model.moe.experts) +
                               up64(wide * n) + (spec.ep > 1 ? up64(wide * got) : 0);
  const std::int64_t sf = model.moe.shared_ffn_hidden / spec.tp;
  const std::int64_t sup = up64(w * r * (model.gated_mlp ? 2 * sf : sf));
  const std::int64_t gates = model.moe.shared_expert_gate ? r : 0;
  const std::int64_t shared = sup + up64(w * gates);
  const std::int64_t core = (spec.splits_heads() ? 2 : 1) * up64(w * r * q) + up64(wide * r * a);
  ChunkMemory m;
  std::int64_t reread = 0;
  for (int l = 0; l < spec.layers; ++l) {
    const Recompute how = spec.recompute[static_cast<std::size_t>(l)];
    const bool moe = model.layer_kind(spec.first_layer + l) == LayerKind::moe;
    const std::int64_t mlp =
        moe ? up64(w * got * eup) + router + routing + shared : up64(w * r * up);
    const std::int64_t rest = up64(w * r * qkv) + state + mlp + latents;
    if (l > 0 || spec.embedding) m.saved += state;
    if (how != Recompute::full) m.saved += rest;
    if (how == Recompute::none) m.saved += core;
    m.weight_inputs += 2 * state + (model.latent() ? projections : up64(w * r * qkv));
    if (how == Recompute::full) m.weight_inputs += latents;
    m.weight_inputs += moe ? up64(w * got * eup) + router + shared : up64(w * r * up);
    if (how != Recompute::none) m.weight_inputs += up64(w * r * q);
    if (how == Recompute::full)
      m.weight_inputs +=
          state + (moe ? up64(w * got * ef) + routing + up64(w * r * sf) : up64(w * r * f));
    if (how == Recompute::selective) reread = std::max(reread, core);
    if (how == Recompute::full) reread = std::max(reread, core + rest);
  }
  if (spec.loss) {
    if (spec.layers > 0 || spec.embedding) m.saved += state;
    m.saved += up64(wide * r) + up64(2 * wide * r);
  }
  std::int64_t turn = 0;
  if (spec.layers > 0) {
    const std::int64_t copies = model.qk_norm || spec.splits_heads() ? 2 : 1;
    turn = up64(w * r * q) + copies * up64(w * r * qkv);
    const std::int64_t keys = w * r * (qkv - a * model.head_dim);
    if (spec.passes_keys()) turn += 2 * up64(2 * keys) + up64(keys);
    if (model.latent()) {
      turn += projections + up64(w * r * mla.kv_lora_rank) +
              up64(w * r * (mla.q_lora_rank > 0 ? mla.q_lora_rank : h));
    }
  }
  for (int l = 0; l < spec.layers; ++l) {
    const bool moe = model.layer_kind(spec.first_layer + l) == LayerKind::moe;
    std::int64_t experts = 2 * up64(w * std::max(got * ef, r * sf)) + up64(w * got * eup) +
                           up64(w * got * h) + up64(wide * got) + router + shared +
                           2 * up64(wide * gates);
    if (spec.ep > 1) experts += up64(w * n * h) + up64(wide * n);
    turn = std::max(turn, moe ? experts : 2 * up64(w * r * f) + up64(w * r * up));
  }
  if (spec.loss) {
    turn =
        std::max(turn, up64(w * std::min<std::int64_t>(r, 4096) * (spec.padded_vocab / spec.tp)));
  }
  m.workspace = reread + state + 2 * up64(wide * local) + (split ? 2 : 1) * up64(w * r * h) + turn;
  return m;
}

TEST_CASE("memory of a chunk equals the formulas") {
  using enum Recompute;
  ModelSpec head_norms = test_llama();
  head_norms.qk_norm = true;
  head_norms.ffn_hidden = 8;  // attention takes the most
  for (const ModelSpec& model :
       {test_gpt(), test_llama(), head_norms, test_mixtral(), test_qwen3_moe(), test_qwen2_moe(),
        test_shared_experts(), test_latent(), test_latent_direct(), test_deepseek_v3()}) {
    for (const int tp : {1, 2, 4}) {
      for (const int chunks : {1, 2, 5}) {
        for (const std::vector<Recompute>& recompute :
             {std::vector{none}, {selective}, {full}, {full, none, selective}}) {
          ChunkRun run;
          run.model = model;
          run.tp = tp;
          run.sequence_parallel = tp == 4;
          run.chunks = chunks;
          run.recompute = recompute;
          run.sequence = 300;
          run.model.max_positions = 300;
          for (int chunk = 0; chunk < chunks; ++chunk) {
            for (const auto& [cp, ep] :
                 std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {1, 2}, {1, 4}, {1, 5}, {2, 4}}) {
              ChunkSpec spec = chunk_spec(run, chunk, tp - 1);
              if (model.kv_heads % (tp * cp) != 0 && cp > 1) continue;
              if (ep > 1 && (model.moe.experts == 0 || model.moe.experts % ep != 0)) continue;
              spec.cp = cp;
              spec.ep = ep;
              spec.ep_rank = ep - 1;
              const ChunkMemory brief = ChunkLayout<Bfloat16>(spec).memory();
              const ChunkMemory expected = memory_by_formula(spec, 2, 4);
              CHECK(brief.saved == expected.saved);
              CHECK(brief.weight_inputs == expected.weight_inputs);
              CHECK(brief.workspace == expected.workspace);
              const ChunkMemory twice = ChunkLayout<double>(spec).memory();
              CHECK(twice.saved == memory_by_formula(spec, 8, 8).saved);
              if (cp == 1) continue;
              spec.cp_comm = CpComm::ring;
              const ChunkMemory ring = ChunkLayout<Bfloat16>(spec).memory();
              const ChunkMemory passing = memory_by_formula(spec, 2, 4);
              CHECK(ring.saved == passing.saved);
              CHECK(ring.weight_inputs == passing.weight_inputs);
              CHECK(ring.workspace == passing.workspace);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace echelon
