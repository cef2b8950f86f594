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
  const std::int64_t q = a * model.head_dim;
  const std::int64_t qkv = q + 2 * std::max(1, model.kv_heads / spec.tp) * model.head_dim;
  const std::int64_t f = model.ffn_hidden / spec.tp;
  const std::int64_t up = model.gated_mlp ? 2 * f : f;
  const std::int64_t state = up64(w * local * h);
  const std::int64_t rest = up64(w * r * qkv) + state + up64(w * r * up);
  const std::int64_t core = (spec.cp > 1 ? 2 : 1) * up64(w * r * q) + up64(wide * r * a);
  ChunkMemory m;
  std::int64_t reread = 0;
  for (int l = 0; l < spec.layers; ++l) {
    const Recompute how = spec.recompute[static_cast<std::size_t>(l)];
    if (l > 0 || spec.embedding) m.saved += state;
    if (how != Recompute::full) m.saved += rest;
    if (how == Recompute::none) m.saved += core;
    m.weight_inputs += 2 * state + up64(w * r * up) + up64(w * r * qkv);
    if (how != Recompute::none) m.weight_inputs += up64(w * r * q);
    if (how == Recompute::full) m.weight_inputs += state + up64(w * r * f);
    if (how == Recompute::selective) reread = std::max(reread, core);
    if (how == Recompute::full) reread = std::max(reread, core + rest);
  }
  if (spec.loss) {
    if (spec.layers > 0 || spec.embedding) m.saved += state;
    m.saved += up64(wide * r) + up64(2 * wide * r);
  }
  std::int64_t turn = 0;
  if (spec.layers > 0) {
    const std::int64_t copies = model.qk_norm || spec.cp > 1 ? 2 : 1;
    turn = std::max(2 * up64(w * r * f) + up64(w * r * up),
                    up64(w * r * q) + copies * up64(w * r * qkv));
  }
  if (spec.loss) {
    turn =
        std::max(turn, up64(w * std::min<std::int64_t>(r, 1024) * (spec.padded_vocab / spec.tp)));
  }
  m.workspace = reread + state + 2 * up64(wide * local) + (split ? 2 : 1) * up64(w * r * h) + turn;
  return m;
}

TEST_CASE("memory of a chunk equals the formulas") {
  using enum Recompute;
  ModelSpec head_norms = test_llama();
  head_norms.qk_norm = true;
  head_norms.ffn_hidden = 8;  // attention takes the most
  for (const ModelSpec& model : {test_gpt(), test_llama(), head_norms}) {
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
            ChunkSpec spec = chunk_spec(run, chunk, tp - 1);
            for (const int cp : {1, 2}) {
              if (model.kv_heads % (tp * cp) != 0 && cp > 1) continue;
              spec.cp = cp;
              const ChunkMemory brief = ChunkLayout<Bfloat16>(spec).memory();
              const ChunkMemory expected = memory_by_formula(spec, 2, 4);
              CHECK(brief.saved == expected.saved);
              CHECK(brief.weight_inputs == expected.weight_inputs);
              CHECK(brief.workspace == expected.workspace);
              const ChunkMemory twice = ChunkLayout<double>(spec).memory();
              CHECK(twice.saved == memory_by_formula(spec, 8, 8).saved);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace echelon
