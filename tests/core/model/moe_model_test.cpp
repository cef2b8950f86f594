// Experts and latent attention: parameter counts and FLOPs per token.
#include <cstdint>
#include <string>
#include <utility>

#include "core/model/model.hpp"
#include "core/model/model_io.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ModelSpec catalog_model(const std::string& name) {
  const Result<ModelSpec> model = load_model(name);
  INFO(name << ": " << (model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

double billions(std::int64_t count) { return static_cast<double>(count) / 1e9; }

}  // namespace

TEST_CASE("in a dense model every layer is dense and every parameter active") {
  const ModelSpec model = catalog_model("llama2-7b");
  CHECK(model.moe_layers() == 0);
  CHECK(model.layer_kind(0) == LayerKind::dense);
  CHECK(model.active_parameters() == model.parameters());
  CHECK(model.attention_output_width() == model.query_width());
}

TEST_CASE("the layers with experts match the authors' description") {
  const ModelSpec v3 = catalog_model("deepseek-v3");  // three dense layers first
  CHECK(v3.moe_layers() == 58);
  CHECK(v3.layer_kind(2) == LayerKind::dense);
  CHECK(v3.layer_kind(3) == LayerKind::moe);
  CHECK(v3.layer_kind(60) == LayerKind::moe);
  const ModelSpec maverick =
      catalog_model("llama4-maverick");  // every second layer, from the second
  CHECK(maverick.moe_layers() == 24);
  CHECK(maverick.layer_kind(0) == LayerKind::dense);
  CHECK(maverick.layer_kind(1) == LayerKind::moe);
  CHECK(maverick.layer_kind(2) == LayerKind::dense);
  CHECK(maverick.layer_kind(47) == LayerKind::moe);
  CHECK(catalog_model("llama4-scout").moe_layers() == 48);
}

TEST_CASE("moe_layers() agrees with layer_kind() of every layer") {
  ModelSpec model = catalog_model("mixtral-8x7b");
  for (model.layers = 1; model.layers <= 12; ++model.layers) {
    for (int first = 0; first < model.layers; ++first) {
      for (int every = 1; every <= model.layers; ++every) {
        model.moe.first_dense_layers = first;
        model.moe.every = every;
        int counted = 0;
        for (int i = 0; i < model.layers; ++i) counted += model.layer_kind(i) == LayerKind::moe;
        INFO(model.layers << " layers, " << first << " dense first, every " << every);
        CHECK(model.moe_layers() == counted);
      }
    }
  }
}

TEST_CASE("Llama 4's published counts are its language model plus one vision part") {
  // The language model alone has no published count. The tensors stored with Scout and Maverick,
  // 108,641,793,536 and 401,583,781,376, also include the vision encoder and projector:
  constexpr std::int64_t h = 1408;  // of the vision encoder, 34 layers, MLP 5632 wide, with biases
  constexpr std::int64_t attention = 4 * (h * h + h);
  constexpr std::int64_t mlp = 2 * h * 5632 + h + 5632;
  constexpr std::int64_t layer = attention + mlp + 2 * 2 * h;  // two LayerNorms
  constexpr std::int64_t patches = 3 * 14 * 14 * h + h + (24 * 24 + 1) * h;
  constexpr std::int64_t adapter = 5632 * 4096 + 4096 * 4096 + 4096 * 5120;
  constexpr std::int64_t vision = 34 * layer + patches + 2 * 2 * h + adapter;
  CHECK(vision == 871'932'416);
  CHECK(catalog_model("llama4-scout").parameters() + vision == 108'641'793'536);
  CHECK(catalog_model("llama4-maverick").parameters() + vision == 401'583'781'376);
}

TEST_CASE("the two Mixtral 8x22B counts differ only in the vocabulary") {
  ModelSpec model = catalog_model("mixtral-8x22b");
  model.vocab = 32'768;  // the instruction-tuned one
  CHECK(model.parameters() == 140'630'071'296);
}

TEST_CASE("active parameters match the published numbers") {
  // Mixtral of Experts (arXiv 2401.04088): 12.9 B; the 8x22B announcement: 39 B; Qwen's names and
  // cards: 2.7 B, 14 B, 3.3 B, 22 B; DeepSeek-V2-Lite's card 2.4 B, V2's 21 B; Llama 4's cards 17
  // B.
  const std::pair<const char*, double> with_embedding[] = {
      {"mixtral-8x7b", 12.9}, {"mixtral-8x22b", 39},  {"qwen1.5-moe-a2.7b", 2.7},
      {"qwen2-57b-a14b", 14}, {"qwen3-30b-a3b", 3.3}, {"qwen3-235b-a22b", 22},
      {"deepseek-v2", 21},    {"llama4-scout", 17},   {"llama4-maverick", 17},
      {"kimi-k2", 32}};
  for (const auto& [name, printed] : with_embedding) {
    INFO(name);
    CHECK(billions(catalog_model(name).active_parameters()) == Approx(printed).epsilon(0.03));
  }
  // Without the word embedding: README_WEIGHTS.md of DeepSeek-V3, and GPT-OSS's model card.
  const std::pair<const char*, double> without_embedding[] = {{"deepseek-v3", 36.6},
                                                              {"deepseek-v2-lite", 2.4},
                                                              {"gpt-oss-20b", 3.61},
                                                              {"gpt-oss-120b", 5.13}};
  for (const auto& [name, printed] : without_embedding) {
    INFO(name);
    const ModelSpec model = catalog_model(name);
    const std::int64_t active = model.active_parameters() - model.embedding_parameters();
    CHECK(billions(active) == Approx(printed).epsilon(0.022));
  }
}

TEST_CASE("a Mixtral layer splits into attention, experts and a router") {
  const ModelSpec model = catalog_model("mixtral-8x7b");
  const ModelSpec::LayerParameters layer = model.layer_parameters(LayerKind::moe);
  CHECK(layer.attention_matrices == 2 * 4096 * 4096 + 2 * 4096 * 1024);
  CHECK(layer.expert_matrices == 8LL * 3 * 4096 * 14336);
  CHECK(layer.router == 8 * 4096);
  CHECK(layer.replicated == 2 * 4096);
  CHECK(layer.mlp_matrices == 0);
  CHECK(layer.shared_expert_matrices == 0);
  CHECK(layer.expert_vectors == 0);
  CHECK(layer.latent_matrices == 0);
}

TEST_CASE("shared experts and their gate are counted in addition to the routed ones") {
  const ModelSpec model = catalog_model("qwen1.5-moe-a2.7b");
  const ModelSpec::LayerParameters layer = model.layer_parameters(LayerKind::moe);
  CHECK(layer.shared_expert_matrices == 3 * 2048 * 5632);
  CHECK(layer.router == 60 * 2048 + 2048);  // the gate is one more column
  CHECK(layer.expert_matrices == 60LL * 3 * 2048 * 1408);
}

TEST_CASE("GPT-OSS has biases everywhere and a sink per head") {
  const ModelSpec model = catalog_model("gpt-oss-20b");
  const ModelSpec::LayerParameters layer = model.layer_parameters(LayerKind::moe);
  CHECK(layer.expert_vectors == 32 * (2 * 2880 + 2880));
  CHECK(layer.router == 32 * 2880 + 32);
  CHECK(layer.sharded_vectors == 64 * 64 + 2 * 8 * 64 + 64);  // q, k, v biases; sinks
  CHECK(layer.replicated == 2 * 2880 + 2880);                 // norms, output bias
}

TEST_CASE(
    "latent attention replicates its down projections and splits its up projections by heads") {
  const ModelSpec model = catalog_model("deepseek-v3");
  const ModelSpec::LayerParameters layer = model.layer_parameters(LayerKind::dense);
  CHECK(layer.latent_matrices == 7168 * (1536 + 512 + 64));
  CHECK(layer.attention_matrices == 1536 * 128 * 192 + 512 * 128 * (128 + 128) + 128 * 128 * 7168);
  CHECK(layer.replicated == 2 * 7168 + 1536 + 512);  // the latents have norms
  CHECK(layer.sharded_vectors == 0);
  CHECK(layer.mlp_matrices == 3LL * 7168 * 18432);
  CHECK(model.query_width() == 128 * 192);
  CHECK(model.attention_output_width() == 128 * 128);
}

TEST_CASE("without a query latent, queries are projected from the hidden state") {
  const ModelSpec model = catalog_model("deepseek-v2-lite");
  const ModelSpec::LayerParameters layer = model.layer_parameters(LayerKind::dense);
  CHECK(layer.latent_matrices == 2048 * (512 + 64));
  CHECK(layer.attention_matrices == 2048 * 16 * 192 + 512 * 16 * (128 + 128) + 16 * 128 * 2048);
  CHECK(layer.replicated == 2 * 2048 + 512);
}

TEST_CASE("biases of latent attention apply to the latents and the output") {
  ModelSpec model = catalog_model("deepseek-v3");
  const std::int64_t before = model.parameters();
  model.qkv_bias = model.attention_output_bias = true;
  CHECK(model.parameters() - before == 61 * (1536 + 512 + 64 + 7168));
}

TEST_CASE("DeepSeek-V3's correction values are 256 in each of 58 layers") {
  ModelSpec model = catalog_model("deepseek-v3");
  model.moe.router_bias = false;
  CHECK(model.parameters() == 671'026'419'200 - 58 * 256);
}

TEST_CASE("FLOPs of a mixture exclude experts that a token does not visit") {
  ModelSpec model = catalog_model("mixtral-8x7b");
  const double before = model.flops_per_token(4096).in(kFlop);
  model.moe.experts = 16;
  const double router_only = 32.0 * 6 * 4096 * 8;
  CHECK(model.flops_per_token(4096).in(kFlop)-before == Approx(router_only));
  model.moe.experts = 8;
  model.moe.experts_per_token = 3;
  CHECK(model.flops_per_token(4096).in(kFlop)-before == Approx(32.0 * 6 * 3 * 4096 * 14336));
}

TEST_CASE("one expert that every token visits costs what a dense MLP costs") {
  ModelSpec dense = catalog_model("mistral-7b");
  ModelSpec mixture = dense;
  mixture.moe.experts = mixture.moe.experts_per_token = 1;
  mixture.moe.expert_ffn_hidden = dense.ffn_hidden;
  const std::int64_t router = 32 * 4096;
  CHECK(mixture.parameters() == dense.parameters() + router);
  CHECK(mixture.active_parameters() == mixture.parameters());
  CHECK((mixture.flops_per_token(4096) - dense.flops_per_token(4096)).in(kFlop) ==
        Approx(6.0 * router));
}

TEST_CASE("DeepSeek-V3's FLOPs equal Megatron's terms") {
  // num_floating_point_operations (megatron/training/training.py), term by term, without its norms,
  // with our full attention matrix instead of its causal half, and with the router.
  const double h = 7168, a = 128, s = 4096;
  const double q_term = 1536 * (h + a * (128 + 64));
  const double kv_term = 512 * (h + a * (128 + 128)) + h * 64;
  const double core = s * a * (128 + 64) + s * a * 128;
  const double attention = q_term + kv_term + a * 128 * h + core;
  const double dense = 3 * h * 18432;
  const double mixture = 3 * h * (8 * 2048 + 2048) + h * 256;
  const double expected = 6 * (61 * attention + 3 * dense + 58 * mixture + h * 129'280);
  CHECK(catalog_model("deepseek-v3").flops_per_token(4096).in(kFlop) ==
        Approx(expected).epsilon(1e-12));
}
