// Which models plan run executes, which it refuses, and why.
#include "core/plan/executable.hpp"

#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "core/model/router_arithmetic.hpp"
#include "tests/core/model/config_files.hpp"

using namespace echelon;

namespace {

std::string reason(const char* name) {
  ModelSpec model = load_model(name).value();
  model.hidden_dropout = model.attention_dropout = 0;  // the executing framework ignores dropout
  return not_executed(model);
}

}  // namespace

TEST_CASE("a feature that is not executed is named") {
  for (const auto& [name, why] :
       {std::pair("bloom-7b1", "ALiBi positions"), std::pair("olmoe-7b", "QK-norm over all heads"),
        std::pair("gemma2-9b", "windowed attention"), std::pair("mistral-7b", "windowed attention"),
        std::pair("nemotron-h-8b", "state spaces"),
        std::pair("phi-2", "parallel attention and MLP blocks")}) {
    INFO(name);
    CHECK(reason(name) == why);
  }
  CHECK(not_executed(load_model("gpt2").value()) == "dropout");
  ModelSpec model = load_model("qwen3-8b").value();
  model.normalization = Normalization::layer_norm;
  CHECK(not_executed(model) == "QK-norm by layer norms");
}

TEST_CASE("latent attention is executed, and its variants that are not are named") {
  const auto with = [](auto change) {
    ModelSpec model = load_model("deepseek-v2-lite").value();
    model.moe = {};
    change(model);
    return not_executed(model);
  };
  CHECK(with([](ModelSpec&) {}).empty());
  CHECK(with([](ModelSpec& m) { m.mla.q_lora_rank = 64; }).empty());
  CHECK(with([](ModelSpec& m) { m.qkv_bias = true; }) == "biases in latent attention");
  CHECK(with([](ModelSpec& m) { m.qk_norm = true; }) == "QK-norm in latent attention");
  CHECK(with([](ModelSpec& m) { m.normalization = Normalization::layer_norm; }) ==
        "latent attention with layer norms");
  CHECK(with([](ModelSpec& m) { m.position = PositionEmbedding::none; }) ==
        "latent attention without rotary positions");
  CHECK(with([](ModelSpec& m) { m.mla.qk_rope_head_dim = 63; }) ==
        "an odd rotary part in latent attention");
}

TEST_CASE("routers and experts that are not executed are named") {
  using Moe = MixtureOfExperts;
  const auto with = [](auto change) {
    ModelSpec model = load_model("mixtral-8x7b").value();
    change(model.moe);
    return not_executed(model);
  };
  CHECK(with([](Moe&) {}).empty());
  CHECK(with([](Moe& m) { m.router_normalized = false, m.router_scaling = 2; }).empty());
  CHECK(with([](Moe& m) { m.first_dense_layers = 3, m.every = 2; }).empty());
  CHECK(with([](Moe& m) { m.expert_bias = true; }) == "biases inside the experts");
  CHECK(with([](Moe& m) { m.router_bias = true; }) == "a bias of a router with softmax scores");
  CHECK(with([](Moe& m) { m.shared_ffn_hidden = 8; }).empty());
  CHECK(with([](Moe& m) { m.shared_ffn_hidden = 8, m.shared_expert_gate = true; }).empty());
  CHECK(with([](Moe& m) { m.latent_hidden = 8; }) == "experts on a latent");
  CHECK(with([](Moe& m) { m.router_groups = 2; }) ==
        "groups of experts chosen by the sum of several softmax scores");
  ModelSpec by_best = load_model("mixtral-8x7b").value();
  by_best.moe.router_groups = 2;
  by_best.constants->other_arithmetic = {kGroupsByBestExpert};
  CHECK(not_executed(by_best).empty());
  CHECK(with([](Moe& m) { m.router_groups = 65, m.router_score = RouterScore::sigmoid; }) ==
        "a router that chooses among 65 groups of experts");
  CHECK(with([](Moe& m) {
          m.router_score = RouterScore::sigmoid, m.router_bias = true, m.router_groups = 4;
        }).empty());
}

TEST_CASE("operations beyond the shapes are refused instead of executed as plain Llama") {
  // Each of these was once executed as Llama or GPT-2, because their shapes do not differ.
  CHECK(reason("gemma-2b") == "word embeddings multiplied by the root of the hidden width");
  CHECK(reason("gemma-7b") == reason("gemma-2b"));
  CHECK(reason("nemotron-4-15b") == "gains of norms counted from one");
  CHECK(reason("glm-130b") == "DeepNorm: norms behind the residual sums, which are scaled");
}

TEST_CASE("Llama-like families with their rotary bases and scalings are executed") {
  for (const char* name :
       {"gpt2", "gpt3-175b", "opt-175b", "llama-65b", "llama2-7b", "llama3-8b", "llama3.1-8b",
        "llama3.2-1b", "qwen2-7b", "qwen2.5-14b", "qwen3-8b", "phi-4", "mixtral-8x7b",
        "qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "glm-4.5", "glm-4.5-air"}) {
    INFO(name);
    CHECK(reason(name).empty());
  }
}

TEST_CASE("the catalog contains the published constants") {
  const auto constants = [](const char* name) { return *load_model(name)->constants; };
  CHECK(constants("gpt2").norm_epsilon == 1e-5);
  CHECK(constants("llama-7b").norm_epsilon == 1e-6);
  CHECK(constants("llama-65b").norm_epsilon == 1e-5);
  CHECK(constants("llama2-7b").rope == RotaryEmbedding{});
  CHECK(constants("llama3-8b").rope == RotaryEmbedding{.theta = 500'000});
  RotaryEmbedding extended{.theta = 500'000, .scaling = RopeScaling::llama3, .factor = 8};
  extended.original_positions = 8192;
  CHECK(constants("llama3.1-405b").rope == extended);
  extended.factor = 32;
  CHECK(constants("llama3.2-3b").rope == extended);
  CHECK(constants("qwen2-7b").rope.theta == 1e6);
  CHECK(constants("qwen2-7b").norm_epsilon == 1e-6);
  CHECK(constants("qwen2.5-32b").norm_epsilon == 1e-5);
  CHECK(constants("mixtral-8x7b").rope.theta == 1e6);
  CHECK(constants("phi-4").rope.theta == 250'000);
  for (const CatalogModel& entry : model_catalog()) {
    INFO(entry.name);
    CHECK(load_model(entry.name)->constants.has_value());
  }
}

TEST_CASE("of the fixtures of HuggingFace families only those with plain blocks are executed") {
  // A reader that forgets what it does not model would add its family here.
  const std::set<std::string> expected{"arcee-4.5b",
                                       "aria-25b-text",
                                       "cwm-32b",
                                       "deepseek-v2",
                                       "deepseek-v2-lite",
                                       "deepseek-v3",
                                       "dots-llm1",
                                       "ernie4.5-0.3b",
                                       "exaone3-7.8b",
                                       "glm-4.5-air",
                                       "glm-4.6",
                                       "glm-4.7-flash",
                                       "gpt2-old",
                                       "gpt2-xl",
                                       "iquest-coder-40b",
                                       "jais2-8b",
                                       "kimi-k2",
                                       "kimi-k2.5-multimodal",
                                       "ling-1t",
                                       "ling-lite",
                                       "llama-7b-old",
                                       "llama2-70b",
                                       "llama2-7b-null-kv",
                                       "llama3.2-1b",
                                       "mimo-7b",
                                       "ministral-8b",
                                       "mistral-7b-v0.1",
                                       "mistral-7b-v0.3",
                                       "mistral-small-3.1-multimodal",
                                       "mixtral-8x22b",
                                       "mixtral-8x22b-instruct",
                                       "mixtral-8x7b",
                                       "phi-3-mini",
                                       "qwen1.5-moe-a2.7b",
                                       "qwen2-0.5b",
                                       "qwen2-57b-a14b",
                                       "qwen2-72b",
                                       "qwen3-235b-a22b",
                                       "qwen3-30b-a3b",
                                       "qwen3-4b",
                                       "sarvam-105b",
                                       "sarvam-30b",
                                       "seed-oss-36b",
                                       "stablelm2-1.6b",
                                       "starcoder-15b",
                                       "starcoder2-3b"};
  std::set<std::string> executed;
  for (const auto& entry :
       std::filesystem::directory_iterator(ECHELON_SOURCE_DIR "/tests/core/model/configs")) {
    const Result<ModelSpec> model = load_model(entry.path().string());
    if (!model) continue;
    ModelSpec trained = *model;
    trained.hidden_dropout = trained.attention_dropout = 0;
    trained.prediction_modules = 0;  // the executing framework trains without them
    if (!not_executed(trained, 1)) executed.insert(entry.path().stem().string());
  }
  CHECK(executed == expected);
}

TEST_CASE("norms of heads behind the rotation are not executed as those before it") {
  Json document = Json::parse(slurp(family_path("hunyuan-7b")));
  document.erase("rope_scaling");
  const Result<ModelSpec> model = parse_model(document.dump(), "config.json");
  REQUIRE(model.ok());
  ModelSpec trained = *model;
  trained.hidden_dropout = trained.attention_dropout = 0;
  CHECK(not_executed(trained) == "norms of query and key heads after the rotation");
}

TEST_CASE("scalings that are not executed are named") {
  ModelSpec model = load_model("llama3.1-8b").value();
  CHECK(not_executed(model).empty());
  for (const auto& [scaling, word] : {std::pair(RopeScaling::dynamic, "'dynamic' scaling"),
                                      std::pair(RopeScaling::longrope, "'longrope' scaling")}) {
    model.constants->rope.scaling = scaling;
    CHECK(not_executed(model).find(word) == 0);
  }
  model.position = PositionEmbedding::learned;  // without a rotary embedding
  CHECK(not_executed(model).empty());
}

TEST_CASE("a rotary embedding of a part of each head is executed if the part is of pairs") {
  ModelSpec model = load_model("llama3.1-8b").value();
  model.constants->rope.rotated_part = 0.25;
  CHECK(not_executed(model).empty());
  CHECK(model.constants->rope.rotated_width(128) == 32);
  CHECK(RotaryEmbedding{.rotated_part = 7.0 / 25}.rotated_width(25) == 7);
  model.constants->rope.rotated_part = 0.2;
  CHECK(not_executed(model) == "a rotary embedding of 25 of the 128 numbers of a head");
  model.constants->rope.rotated_part = 0.001;
  CHECK(not_executed(model) == "a rotary embedding of 0 of the 128 numbers of a head");
}

TEST_CASE("a model without constants is planned but not executed") {
  ModelSpec model = load_model("llama2-7b").value();
  model.constants.reset();
  const auto why = not_executed(model, 2048);
  REQUIRE(why);
  CHECK(why->found.find("norm_epsilon") != std::string::npos);
  CHECK(why->expected.find("schema 2") != std::string::npos);
}

TEST_CASE("a window of attention matters only to longer sequences") {
  const ModelSpec model = load_model("mistral-7b").value();
  CHECK_FALSE(not_executed(model, 4096));
  const auto why = not_executed(model, 4097);
  REQUIRE(why);
  CHECK(why->found == "a sequence of 4097");
  CHECK(why->expected == "at most 4096, the window of attention in mistral-7b");
  const auto other = not_executed(load_model("gemma2-9b").value(), 4096);
  REQUIRE(other);
  CHECK(other->found.find("post-norms") != std::string::npos);
}

TEST_CASE("a sequence longer than the learned positions is not executed") {
  const ModelSpec model = load_model("gpt2-tiny").value();
  CHECK_FALSE(not_executed(model, model.max_positions));
  const auto why = not_executed(model, model.max_positions + 1);
  REQUIRE(why);
  CHECK(why->found == "a sequence of 257");
  CHECK(why->expected == "at most 256, the learned positions of gpt2-tiny");
}
