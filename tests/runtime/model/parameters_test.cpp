#include "runtime/model/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "tests/runtime/training/small_models.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// The model as one chunk, or chunk `stage` of `pp` chunks.
ChunkSpec chunk_of(const ModelSpec& model, int pp, int stage, int tp, int tp_rank) {
  ChunkSpec spec;
  spec.model = model;
  spec.first_layer = stage * model.layers / pp;
  spec.layers = (stage + 1) * model.layers / pp - spec.first_layer;
  spec.embedding = stage == 0;
  spec.loss = stage == pp - 1;
  spec.units = std::max(1, spec.layers);
  spec.tp = tp;
  spec.tp_rank = tp_rank;
  spec.sequence_parallel = tp > 1;
  spec.padded_vocab = (model.vocab + 127) / 128 * 128;
  spec.recompute.assign(static_cast<std::size_t>(spec.layers), Recompute::none);
  return spec;
}

ModelSpec small_model(bool gpt) {
  ModelSpec model;
  model.constants.emplace();
  model.layers = 3;
  model.hidden = 24;
  model.heads = 8;
  model.kv_heads = 2;
  model.head_dim = 4;
  model.ffn_hidden = 40;
  model.vocab = 301;
  model.max_positions = 32;
  if (gpt) model = like_gpt2(model);
  model.head_bias = !gpt;
  return model;
}

TEST_CASE("the number of parameters of the catalog's models equals the ModelSpec's count") {
  int executed = 0;
  for (const CatalogModel& entry : model_catalog()) {
    ModelSpec model = load_model(entry.name).value();
    model.hidden_dropout = model.attention_dropout = 0;
    if (!not_executed(model).empty()) continue;
    ++executed;
    ChunkSpec spec = chunk_of(model, 1, 0, 1, 0);
    std::int64_t count = 0;
    for (const FlatParameters& flat : parameters_of(spec).flat_params) {
      for (const Parameter& p : flat.parameters) count += p.rows * p.columns;
    }
    INFO(entry.name);
    CHECK(count == model.parameters());
  }
  CHECK(executed >= 45);
}

TEST_CASE("the counted blocks of all ranks cover each tensor exactly once, whatever the plan") {
  for (const bool gpt : {true, false}) {
    const ModelSpec model = small_model(gpt);
    std::map<std::string, std::int64_t> shapes;  // of the first plan
    for (const int pp : {1, 2, 5}) {
      for (const int tp : {1, 2, 4, 8}) {
        std::map<std::string, std::vector<int>> seen;
        std::map<std::string, std::int64_t> sizes;
        for (int stage = 0; stage < pp; ++stage) {
          for (int rank = 0; rank < tp; ++rank) {
            for (const FlatParameters& flat :
                 parameters_of(chunk_of(model, pp, stage, tp, rank)).flat_params) {
              for (const Parameter& p : flat.parameters) {
                std::vector<int>& times = seen[p.name];
                times.resize(static_cast<std::size_t>(p.rows * p.columns));
                sizes[p.name] = p.rows * p.columns;
                if (!p.counted) continue;
                // In two parts, so that pieces begin and end anywhere.
                const std::int64_t cut = p.count() * 3 / 7;
                const auto count_them = [&](std::int64_t global, std::int64_t, std::int64_t n) {
                  for (std::int64_t i = 0; i < n; ++i)
                    ++times[static_cast<std::size_t>(global + i)];
                };
                for_each_piece(p, 0, cut, count_them);
                for_each_piece(p, cut, p.count(), count_them);
              }
            }
          }
        }
        if (shapes.empty()) shapes = sizes;
        CHECK(sizes == shapes);
        for (const auto& [name, times] : seen) {
          INFO(name << " with tp " << tp << " and pp " << pp);
          CHECK(times == std::vector<int>(times.size(), 1));
        }
      }
    }
  }
}

TEST_CASE("offsets, order and padding of a region") {
  ChunkSpec spec = chunk_of(small_model(false), 1, 0, 4, 3);
  spec.shards = 7;
  spec.units = 2;
  for (const FlatParameters& flat : parameters_of(spec).flat_params) {
    std::int64_t at = 0;
    bool matrices = false;
    for (const Parameter& p : flat.parameters) {
      CHECK(p.offset == at);
      at += p.count();
      matrices = matrices || !p.summed_over_tp;
      CHECK(p.summed_over_tp == !matrices);  // first those, then the rest
      if (p.name == "layers.0.attention.k.weight") {
        CHECK(p.local_rows == 4);  // one head of two, held by ranks 2 and 3
        CHECK(p.first_row == 4);
        CHECK(p.summed_over_kv);
        CHECK_FALSE(p.counted);
      }
      if (p.name == "layers.0.mlp.down.weight") {
        CHECK(p.deviation == Approx(0.02 / std::sqrt(6.0)));
        CHECK(p.first_column == 30);
      }
    }
    CHECK(flat.count == at);
    CHECK(flat.padded % (7 * 8) == 0);
    CHECK(flat.padded - flat.count < 7 * 8);
  }
}

TEST_CASE("norms of heads come first, and each tensor-parallel rank has a part of their gradient") {
  for (const int tp : {1, 2}) {
    ChunkSpec spec = chunk_of(small_model(false), 1, 0, tp, tp - 1);
    spec.model.qk_norm = true;
    spec.sequence_parallel = false;
    spec.units = 1;
    const std::vector<Parameter> all = parameters_of(spec).flat_params.front().parameters;
    const auto of_heads = static_cast<std::size_t>(2 * spec.layers);
    REQUIRE(all.size() > of_heads);
    CHECK(all[0].name == "layers.0.attention.q_norm.weight");
    CHECK(all[1].name == "layers.0.attention.k_norm.weight");
    for (std::size_t i = 0; i < all.size(); ++i) {
      INFO(all[i].name);
      CHECK(all[i].summed_over_tp == (tp > 1 && i < of_heads));
      if (i >= of_heads) continue;
      CHECK(all[i].count() == spec.model.head_dim);
      CHECK(all[i].fill == Parameter::Fill::ones);
      CHECK_FALSE(all[i].decayed);
      CHECK(all[i].counted == (tp == 1));
    }
  }
}

}  // namespace
}  // namespace echelon
