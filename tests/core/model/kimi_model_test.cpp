// Kimi delta attention: counts against transformers' modules, FLOPs by hand, files and refusals.
#include <cstdint>
#include <string>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

namespace {

Json kimi_config() {
  return Json::parse(
      slurp(ECHELON_SOURCE_DIR "/tests/core/model/configs/kimi-linear-48b-a3b.json"));
}

Result<ModelSpec> read_kimi(const Json& document) {
  return parse_model(document.dump(), "config.json");
}

ModelSpec kimi_model() {
  const Result<ModelSpec> model = read_kimi(kimi_config());
  INFO((model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

std::string kimi_refusal(const Json& document) {
  const Result<ModelSpec> model = read_kimi(document);
  return model ? "read" : model.error().message();
}

}  // namespace

TEST_CASE("Kimi Linear has as many parameters as transformers' module") {
  // Of KimiLinearForCausalLM on the meta device (transformers 5.24); its buffers are the routers'
  // biases, 256 in 26 layers.
  const ModelSpec model = kimi_model();
  CHECK(model.parameters() == 49'122'675'072 + 256 * 26);
  CHECK(model.delta.layers == 20);
  // Its KimiLinearDeltaAttention alone, and KimiLinearAttention; with two norms of 2304 each.
  const auto mixer = [&](TokenMixer which) {
    const ModelSpec::LayerParameters all = model.layer_parameters(LayerKind::dense, which);
    return all.total() - all.mlp_matrices - 2 * 2304;
  };
  CHECK(mixer(TokenMixer::delta_net) == 39'514'272);
  CHECK(mixer(TokenMixer::attention) == 29'114'880);
}

TEST_CASE("files of transformers give the same shapes by other keys") {
  Json written = kimi_config();
  written.erase("linear_attn_config");
  written["linear_head_dim"] = 128;
  written["linear_num_heads"] = 32;
  written["linear_conv_kernel_dim"] = 4;
  Json kinds = Json::array();
  Json mlps = Json::array();
  for (int i = 1; i <= 27; ++i) {
    kinds.push_back(i % 4 == 0 || i == 27 ? "full_attention" : "linear_attention");
    mlps.push_back(i == 1 ? "dense" : "sparse");
  }
  written["layer_types"] = kinds;
  written["mlp_layer_types"] = mlps;
  written.erase("first_k_dense_replace");
  const Result<ModelSpec> model = read_kimi(written);
  INFO((model ? "" : model.error().message()));
  REQUIRE(model.ok());
  CHECK(*model == kimi_model());
  // Without lists: the class's rule, of which the module has 49,133,074,464 parameters.
  written.erase("layer_types");
  written.erase("mlp_layer_types");
  CHECK(read_kimi(written)->parameters() == 49'133'074'464 + 256 * 26);
}

TEST_CASE("heads that the published object leaves out are those beside it") {
  Json config = kimi_config();
  config["linear_attn_config"].erase("num_heads");
  config["linear_num_heads"] = 16;
  CHECK(read_kimi(config)->delta.value_heads == 16);
  config["linear_attn_config"]["num_heads"] = 8;
  CHECK(read_kimi(config)->delta.value_heads == 8);
}

TEST_CASE("lists of layers that do not name each once are refused, and so are other variants") {
  Json config = kimi_config();
  config["linear_attn_config"]["kda_layers"].push_back(4);
  CHECK(kimi_refusal(config).find("in neither list, or in both") != std::string::npos);
  config = kimi_config();
  config["linear_attn_config"]["kda_layers"].erase(0);
  CHECK(kimi_refusal(config).find("/linear_attn_config") != std::string::npos);
  for (const Json& entry : {Json(0), Json(28), Json("1"), Json(1.5)}) {
    config = kimi_config();
    config["linear_attn_config"]["kda_layers"].push_back(entry);
    INFO(entry.dump());
    CHECK(kimi_refusal(config).find("an entry that is no layer") != std::string::npos);
  }
  config = kimi_config();
  config["linear_attn_config"].erase("full_attn_layers");
  CHECK(kimi_refusal(config).find("/linear_attn_config") != std::string::npos);
  config = kimi_config();
  config["linear_attn_config"] = Json::array({1});
  CHECK(kimi_refusal(config).find("not an object") != std::string::npos);
  config = kimi_config();
  config["layer_types"] = std::vector<std::string>(27, "full_attention");
  CHECK(kimi_refusal(config).find("/layer_types") != std::string::npos);
  config = kimi_config();
  config["moe_layer_freq"] = 2;
  CHECK(kimi_refusal(config).find("/moe_layer_freq") != std::string::npos);
  config = kimi_config();
  config["mla_use_nope"] = false;
  CHECK(kimi_refusal(config).find("/mla_use_nope") != std::string::npos);
  config = kimi_config();
  config["moe_router_activation_func"] = "softmax";
  CHECK(kimi_refusal(config).find("/moe_router_activation_func") != std::string::npos);
}

TEST_CASE("Kimi delta attention's FLOPs are projections, convolution and recurrence") {
  // By hand, multiplications per token and layer: queries, keys, values, write strengths and the
  // vectors of two gates from 2304; those to 4096 decays and as many gates; the convolution; the
  // output; 32 heads of 128 x 128.
  constexpr double delta = 2304.0 * (3 * 4096 + 32 + 2 * 128) + 128.0 * (4096 + 4096) +
                           4096.0 * 2304 + 4.0 * 3 * 4096 + 32 * 4.0 * 128 * 128;
  const ModelSpec model = kimi_model();
  ModelSpec more = model;
  more.delta.layers = 21;
  const double attention = 2304.0 * (32 * 192 + 576) + 512.0 * 32 * 256 + 32.0 * 128 * 2304;
  const double scores = 32.0 * (192 + 128) * 4096;
  CHECK((more.flops_per_token(4096) - model.flops_per_token(4096)).in(kFlop) ==
        Approx(6 * (delta - attention - scores)).epsilon(1e-9));
}

TEST_CASE("a model file with Kimi delta attention is read back as it was written") {
  const ModelSpec model = kimi_model();
  const Result<ModelSpec> again = parse_model(model_to_json(model), "model.json");
  REQUIRE(again.ok());
  CHECK(*again == model);
  CHECK(again->delta.gate_rank == 128);
  CHECK(model_to_json(*load_model("qwen3-next-80b-a3b")).find("gate_rank") == std::string::npos);
}

TEST_CASE("latent attention stands next to Kimi delta attention alone") {
  ModelSpec model = kimi_model();
  CHECK(check_model(model, "model.json").ok());
  model.delta.gate_rank = 0;
  const Status sound = check_model(model, "model.json");
  REQUIRE_FALSE(sound.ok());
  CHECK(sound.error().where == "model.json at /delta/layers");
}

TEST_CASE("the own runtime refuses Kimi delta attention by name") {
  // Its latent attention has no positions, which is refused first.
  ModelSpec model = kimi_model();
  model.position = PositionEmbedding::rope;
  CHECK(not_executed(model) == "Kimi delta attention");
}
