// Gated delta nets, gated attention and norms over all heads: counts and FLOPs, against published
// totals and hand arithmetic.
#include <cstdint>
#include <string>

#include "core/model/model.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ModelSpec delta_model(const std::string& name) {
  const Result<ModelSpec> model = load_model(name);
  INFO(name << ": " << (model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

/// The vision encoder of Qwen3.5: 27 layers of 1152 with an MLP of 4304, patches of 3 · 2 · 16 ·
/// 16, 2304 positions, and a merger of 4 patches whose output is as wide as the language model.
std::int64_t qwen35_vision(std::int64_t out) {
  constexpr std::int64_t h = 1152, f = 4304, merged = 4 * h;
  constexpr std::int64_t layer = 4 * (h * h + h) + 2 * h * f + f + h + 2 * 2 * h;
  constexpr std::int64_t ends = 3 * 2 * 16 * 16 * h + h + 2304 * h;
  return 27 * layer + ends + 2 * h + merged * merged + merged + merged * out + out;
}

/// The module for multi-token prediction: one layer with full attention, three norms and the
/// projection of two hidden states to one; embedding and head are the model's.
std::int64_t prediction_module(const ModelSpec& model) {
  const LayerKind kind = model.moe.experts > 0 ? LayerKind::moe : LayerKind::dense;
  const std::int64_t h = model.hidden;
  return model.layer_parameters(kind).total() + 3 * h + 2 * h * h;
}

}  // namespace

TEST_CASE("Qwen3-Next and Qwen3.5 have the published number of weights") {
  // Totals of the published safetensors files; they include what training the language model alone
  // leaves out.
  const ModelSpec next = delta_model("qwen3-next-80b-a3b");
  CHECK(next.parameters() + prediction_module(next) == 81'324'862'720);
  const ModelSpec moe = delta_model("qwen3.5-35b-a3b");
  CHECK(moe.parameters() + prediction_module(moe) + qwen35_vision(2048) == 35'951'822'704);
  const ModelSpec dense = delta_model("qwen3.5-27b");
  CHECK(dense.parameters() + prediction_module(dense) + qwen35_vision(5120) == 27'781'427'952);
}

TEST_CASE("GLM-4.5-Air and GLM-4.6 have the published number of weights") {
  // Air's files repeat the embedding and the head in the next-token layer, GLM-4.6's do not.
  const ModelSpec air = delta_model("glm-4.5-air");
  const std::int64_t ends = 2 * std::int64_t{air.vocab} * air.hidden;
  CHECK(air.parameters() + prediction_module(air) + ends == 110'468'824'832);
  const ModelSpec glm = delta_model("glm-4.6");
  CHECK(glm.parameters() + prediction_module(glm) == 356'785'898'816);
}

TEST_CASE("MiniMax-M2 has the published number of weights") {
  // Its files are in fp8 with one scale per block of 128 × 128 of experts, queries, keys, values
  // and output projection.
  const ModelSpec model = delta_model("minimax-m2");
  const ModelSpec::LayerParameters layer = model.layer_parameters(LayerKind::moe);
  const std::int64_t scales =
      model.layers * (layer.expert_matrices + layer.attention_matrices) / (128 * 128);
  CHECK(scales == 13'880'064);
  CHECK(model.parameters() + scales == 228'703'644'928);
}

TEST_CASE("norms over all heads are counted as OLMo stores them") {
  CHECK(delta_model("olmo3-7b").parameters() == 7'298'011'136);
  CHECK(delta_model("olmo3-32b").parameters() == 32'233'522'176);
  CHECK(delta_model("olmoe-7b").parameters() == 6'919'161'856);
}

TEST_CASE("a delta net's FLOPs per token do not depend on the sequence") {
  const ModelSpec model = delta_model("qwen3-next-80b-a3b");
  // Only the 12 layers with attention see the sequence: 6 · 16 heads · (256 + 256) per key.
  const double per_key = 6.0 * 16 * 512 * 12;
  const double shorter = model.flops_per_token(4096).in(kFlop);
  const double longer = model.flops_per_token(8192).in(kFlop);
  CHECK(longer - shorter == Approx(per_key * 4096));
  // A model whose delta nets were attention would need 48 such layers.
  ModelSpec attention = model;
  attention.delta = {};
  CHECK((attention.flops_per_token(8192) - attention.flops_per_token(4096)).in(kFlop) ==
        Approx(4 * per_key * 4096));
}

TEST_CASE("a delta net's FLOPs are projections, convolution and recurrence") {
  // Hand arithmetic for Qwen3-Next, multiplications per token and layer: input projection
  // 2048 · (2 · 2048 + 2 · 4096 + 2 · 32), output 4096 · 2048, convolution 4 · 8192, recurrence
  // 32 heads · 4 · 128 · 128.
  constexpr double delta = 2048.0 * 12352 + 4096.0 * 2048 + 4 * 8192 + 32.0 * 4 * 128 * 128;
  // Attention: queries with their gate 2 · 4096, keys and values 2 · 512, output 4096.
  constexpr double attention = 2048.0 * (2 * 4096 + 2 * 512) + 4096.0 * 2048;
  // Ten experts and the shared one of 512, and a router of 512; the head.
  constexpr double experts = 11 * 3 * 2048.0 * 512 + 512 * 2048.0;
  constexpr double head = 151'936 * 2048.0;
  constexpr double scores = 2 * 16 * 256 * 4096.0;
  constexpr double expected = 6 * (36 * delta + 12 * (attention + scores) + 48 * experts + head);
  CHECK(delta_model("qwen3-next-80b-a3b").flops_per_token(4096).in(kFlop) ==
        Approx(expected).epsilon(1e-12));
}

TEST_CASE("a model file with delta nets is read back as it was written") {
  const ModelSpec model = delta_model("qwen3-next-80b-a3b");
  const Result<ModelSpec> again = parse_model(model_to_json(model), "model.json");
  REQUIRE(again.ok());
  CHECK(*again == model);
  CHECK(again->delta.layers == 36);
}

TEST_CASE("impossible delta nets and norms are refused with the field") {
  const auto refused = [](const char* field, auto change) {
    ModelSpec model = delta_model("qwen3-next-80b-a3b");
    change(model);
    const Result<ModelSpec> read = parse_model(model_to_json(model), "model.json");
    REQUIRE_FALSE(read.ok());
    INFO(read.error().message());
    CHECK(read.error().where == "model.json at /" + std::string(field));
  };
  refused("delta/key_heads", [](ModelSpec& m) { m.delta.key_heads = 5; });
  refused("delta/layers", [](ModelSpec& m) { m.delta.layers = 48; });
  refused("delta/layers", [](ModelSpec& m) { m.sliding_window = 128, m.windowed_layers = 1; });
  refused("delta/conv_kernel", [](ModelSpec& m) { m.delta.conv_kernel = 4096; });
  refused("qk_norm_all_heads", [](ModelSpec& m) { m.qk_norm_all_heads = true; });
}

TEST_CASE("the own runtime refuses delta nets and gates by name") {
  CHECK(not_executed(delta_model("qwen3.5-27b")) == "gated delta nets");
  ModelSpec gated = delta_model("llama3-8b");
  gated.attention_output_gate = true;
  CHECK(not_executed(gated) == "a gate on attention's output");
  CHECK_FALSE(not_executed(delta_model("olmo3-7b")).empty());
}
