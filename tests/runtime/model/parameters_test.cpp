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

ModelSpec small_experts() {
  ModelSpec model = small_model(false);
  model.qk_norm = true;
  model.moe.experts = 6;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn_hidden = 16;
  model.moe.first_dense_layers = 1;
  return model;
}

ModelSpec small_shared_experts() {
  ModelSpec model = small_experts();
  model.moe.shared_ffn_hidden = 32;
  model.moe.shared_expert_gate = true;
  model.moe.router_score = RouterScore::sigmoid;
  model.moe.router_bias = true;
  return model;
}

ModelSpec small_latent(int q_rank) {
  return like_deepseek(small_model(false), {.kv_lora_rank = 5,
                                            .q_lora_rank = q_rank,
                                            .qk_nope_head_dim = 3,
                                            .qk_rope_head_dim = 2,
                                            .v_head_dim = 4});
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
  CHECK(executed >= 50);
}

TEST_CASE("the number of parameters with latent attention equals the ModelSpec's count") {
  for (const int q_rank : {0, 7}) {
    const ModelSpec model = small_latent(q_rank);
    std::int64_t count = 0;
    for (const FlatParameters& flat : parameters_of(chunk_of(model, 1, 0, 1, 0)).flat_params) {
      for (const Parameter& p : flat.parameters) count += p.rows * p.columns;
    }
    CHECK(count == model.parameters());
  }
}

TEST_CASE("the counted blocks of all ranks cover each tensor exactly once, whatever the plan") {
  for (const ModelSpec& model : {small_model(true), small_model(false), small_experts(),
                                 small_shared_experts(), small_latent(0), small_latent(7)}) {
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

TEST_CASE("matrices of a layer's experts follow each other, and routers come first") {
  for (const int tp : {1, 2}) {
    ChunkSpec spec = chunk_of(small_experts(), 1, 0, tp, tp - 1);
    spec.sequence_parallel = false;
    spec.units = 1;
    std::map<std::string, const Parameter*> by_name;
    const std::vector<Parameter> all = parameters_of(spec).flat_params.front().parameters;
    for (const Parameter& p : all) {
      by_name[p.name] = &p;
      const bool partial = p.name.ends_with("_norm.weight") && p.name.starts_with("layers.");
      const bool router = p.name.ends_with(".router.weight");
      CHECK(p.summed_over_tp == (tp > 1 && (partial || router)));
    }
    CHECK(by_name.contains("layers.0.mlp.up.weight"));
    CHECK_FALSE(by_name.contains("layers.0.moe.router.weight"));
    CHECK_FALSE(by_name.contains("layers.1.mlp.up.weight"));
    const Parameter& router = *by_name.at("layers.1.moe.router.weight");
    CHECK(router.rows == 6);
    CHECK(router.counted == (tp == 1));
    CHECK(router.decayed);
    const auto offset = [&](int expert, const char* matrix) {
      return by_name
          .at("layers.1.moe.experts." + std::to_string(expert) + "." + matrix + ".weight")
          ->offset;
    };
    const std::int64_t width = 16 / tp;
    for (int e = 0; e < 6; ++e) {
      CHECK(offset(e, "up") - offset(e, "gate") == width * 24);
      CHECK(offset(e, "gate") - offset(0, "gate") == e * 2 * width * 24);
      CHECK(offset(e, "down") - offset(0, "down") == e * 24 * width);
    }
    const Parameter& down = *by_name.at("layers.2.moe.experts.3.down.weight");
    CHECK(down.first_column == (tp - 1) * 8);
    CHECK(down.deviation == Approx(0.02 / std::sqrt(6.0)));
  }
}

TEST_CASE("shared experts split as an MLP, and each rank has a part of their gate's gradient") {
  for (const int tp : {1, 2}) {
    ChunkSpec spec = chunk_of(small_experts(), 1, 0, tp, tp - 1);
    spec.model.moe.shared_ffn_hidden = 20;
    spec.model.moe.shared_expert_gate = true;
    spec.sequence_parallel = false;
    spec.units = 1;
    std::map<std::string, const Parameter*> by_name;
    const ChunkParameters parameters = parameters_of(spec);
    for (const Parameter& p : parameters.flat_params.front().parameters) by_name[p.name] = &p;
    const Parameter& gate = *by_name.at("layers.1.moe.shared_gate.weight");
    CHECK(gate.rows == 1);
    CHECK(gate.columns == 24);
    CHECK(gate.summed_over_tp == (tp > 1));
    CHECK(gate.counted == (tp == 1));
    const Parameter& up = *by_name.at("layers.1.moe.shared.up.weight");
    CHECK(up.local_rows == 20 / tp);
    CHECK(up.first_row == (tp - 1) * 10);
    CHECK(up.offset - by_name.at("layers.1.moe.shared.gate.weight")->offset == 20 / tp * 24);
    const Parameter& down = *by_name.at("layers.2.moe.shared.down.weight");
    CHECK(down.first_column == (tp - 1) * 10);
    CHECK(down.deviation == Approx(0.02 / std::sqrt(6.0)));
    CHECK_FALSE(by_name.contains("layers.0.moe.shared.up.weight"));
  }
}

TEST_CASE("a router's bias begins at zero, does not decay and is counted once") {
  for (const int tp : {1, 2}) {
    for (int rank = 0; rank < tp; ++rank) {
      int found = 0;
      const ChunkParameters parameters =
          parameters_of(chunk_of(small_shared_experts(), 1, 0, tp, rank));
      for (const FlatParameters& flat : parameters.flat_params) {
        for (const Parameter& p : flat.parameters) {
          if (!p.name.ends_with("moe.router.bias")) continue;
          ++found;
          CHECK(p.count() == 6);
          CHECK(p.fill == Parameter::Fill::zeros);
          CHECK_FALSE(p.decayed);
          CHECK(p.counted == (rank == 0));
        }
      }
      CHECK(found == 2);
    }
  }
}

TEST_CASE("experts that ranks share have flat parameters of their own, which cover each once") {
  const ModelSpec model = small_experts();
  std::map<std::string, int> seen;
  for (const int ep : {2, 3}) {
    seen.clear();
    for (int rank = 0; rank < ep; ++rank) {
      ChunkSpec spec = chunk_of(model, 1, 0, 1, 0);
      spec.ep = ep;
      spec.ep_rank = rank;
      spec.shards = 4;
      spec.expert_shards = 2;
      const ChunkParameters all = parameters_of(spec);
      REQUIRE(all.flat_params.size() == 6);  // three units, whose first layer is dense
      CHECK(all.flat_params[3].count == 0);
      for (int unit = 0; unit < 3; ++unit) {
        const FlatParameters& own = all.flat_params[static_cast<std::size_t>(unit)];
        const FlatParameters& experts = all.flat_params[all.experts_of(unit).value()];
        CHECK_FALSE(own.experts);
        CHECK(experts.experts);
        CHECK(experts.padded % (2 * 8) == 0);
        CHECK(experts.count == (unit == 0 ? 0 : 6 / ep * 3 * 16 * 24));
        for (const Parameter& p : own.parameters)
          CHECK(p.name.find("experts") == std::string::npos);
        for (const Parameter& p : experts.parameters) seen[p.name] += p.counted ? 1 : 0;
      }
    }
    CHECK(seen.size() == 2 * 6 * 3);
    for (const auto& [name, times] : seen) CHECK(times == 1);
  }
  CHECK_FALSE(parameters_of(chunk_of(model, 1, 0, 1, 0)).experts_of(0));
}

}  // namespace
}  // namespace echelon
