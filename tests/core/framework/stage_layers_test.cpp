#include "core/framework/stage_layers.hpp"

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

ModelSpec shapes(int layers, int hidden, int ffn, int vocab) {
  ModelSpec model;
  model.layers = layers;
  model.hidden = hidden;
  model.ffn_hidden = ffn;
  model.vocab = vocab;
  return model;
}

// Parameters on rank 0 as nanotron printed them ("local params" in the notes of the published
// table): 8B at pp 2, 4; 1B at pp 2, 4 after and before the change at exact ties.
TEST_CASE("nanotron's stages balance the cost of the output head against layers") {
  const ModelSpec large = shapes(32, 4096, 14336, 131072);
  CHECK(layers_by_cost(large, 1, false) == std::vector<int>{32});
  CHECK(layers_by_cost(large, 2, false) == std::vector<int>{18, 14});
  const ModelSpec small = shapes(16, 2048, 8192, 131072);  // the head costs four layers: ties
  CHECK(layers_by_cost(small, 2, false) == std::vector<int>{10, 6});
  CHECK(layers_by_cost(small, 4, false) == std::vector<int>{5, 5, 5, 1});
  CHECK(layers_by_cost(small, 4, true) == std::vector<int>{6, 5, 5, 0});
}

TEST_CASE("each framework that deals layers deals them in one way") {
  const auto dealt = [](const char* framework, int layers, int pp) {
    return dealt_layers(*find_framework(framework), shapes(layers, 4096, 14336, 131072), pp);
  };
  // Megatron-LM v2.6, megatron/model/transformer.py:545.
  CHECK(dealt("megatron-2021", 32, 4) == std::vector<int>(4, 8));
  CHECK_FALSE(dealt("megatron-2021", 70, 12));
  // DeepSpeed's partition_balanced over the layers of 70 on 12 and 32 on 5 stages.
  CHECK(dealt("megatron-deepspeed", 70, 12) ==
        std::vector<int>{6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5, 5});
  CHECK(dealt("deepspeed", 32, 5) == std::vector<int>{7, 7, 6, 6, 6});
  CHECK(dealt("nanotron", 32, 2) == std::vector<int>{18, 14});
}

TEST_CASE("a plan's chunks are written as Megatron-Core's layout reads them") {
  const auto layout = [](int pp, int vpp, std::vector<int> layers) {
    ParallelPlan plan;
    plan.pp = pp;
    plan.vpp = vpp;
    plan.layers_per_stage = std::move(layers);
    return megatron_layout(plan);
  };
  CHECK(layout(2, 1, {4, 3}) == "Et*4|t*3L");
  CHECK(layout(4, 1, {0, 16, 16, 0}) == "E|(t*16|)*2L");
  CHECK(layout(4, 1, {18, 21, 21, 20}) == "Et*18|(t*21|)*2t*20L");
  CHECK(layout(2, 2, {3, 3}) == "Et|(t*2|)*2tL");
  CHECK(layout(3, 1, {1, 1, 1}) == "Et|t|tL");
}

}  // namespace
}  // namespace echelon
