// Attention and a state space side by side (Falcon-H1): counts against transformers' modules.
#include <string>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// What FalconH1Config() of transformers 5.24 writes, less what every file has.
Json falcon_config() {
  return Json::parse(R"({
    "model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0,
    "embedding_multiplier": 1.0, "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 14336, "key_multiplier": 1.0, "lm_head_multiplier": 1.0,
    "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 8,
    "mamba_d_ssm": 1024, "mamba_d_state": 256, "mamba_expand": 2, "mamba_n_groups": 1,
    "mamba_n_heads": 128, "mamba_norm_before_gate": true, "mamba_proj_bias": false,
    "mamba_rms_norm": false, "max_position_embeddings": 8192, "mlp_bias": false,
    "mlp_multipliers": [1.0, 1.0], "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_logits_to_keep": 1, "projectors_bias": false,
    "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "ssm_in_multiplier": 1.0, "ssm_multipliers": [1.0, 1.0, 1.0, 1.0, 1.0],
    "ssm_out_multiplier": 1.0, "tie_word_embeddings": false, "vocab_size": 128000})");
}

Result<ModelSpec> read_falcon(const Json& document) {
  return parse_model(document.dump(), "config.json");
}

ModelSpec falcon_model() {
  const Result<ModelSpec> model = read_falcon(falcon_config());
  INFO((model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

}  // namespace

TEST_CASE("Falcon-H1 has as many parameters as transformers' module") {
  // Of FalconH1ForCausalLM on the meta device (transformers 5.24).
  const ModelSpec model = falcon_model();
  CHECK(model.parameters() == 8'514'961'408);
  CHECK(model.layers_with(TokenMixer::side_by_side) == 32);
  CHECK(model.layers_with(TokenMixer::attention) == 0);
  CHECK(model.layers_with(TokenMixer::state_space) == 0);
  CHECK(model.constants->other_arithmetic.empty());
  Json config = falcon_config();
  config["mamba_rms_norm"] = true;
  CHECK(read_falcon(config)->parameters() == 8'514'994'176);
  config["mamba_rms_norm"] = false;
  config["mamba_d_ssm"] = nullptr;  // mamba_expand times the hidden state
  config["mamba_n_heads"] = 64;
  config["mamba_d_head"] = "auto";
  CHECK(read_falcon(config)->parameters() == 11'326'285'824);
}

TEST_CASE("factors and impossible widths of Falcon-H1 are named") {
  Json config = falcon_config();
  config["ssm_multipliers"][2] = 0.5;
  REQUIRE(read_falcon(config)->constants->other_arithmetic.size() == 1);
  config = falcon_config();
  config["mamba_d_head"] = 16;
  const Result<ModelSpec> wide = read_falcon(config);
  REQUIRE_FALSE(wide.ok());
  CHECK(wide.error().message().find("1024 with 128 heads of 16") != std::string::npos);
  for (const char* key : {"mamba_proj_bias", "projectors_bias"}) {
    config = falcon_config();
    config[key] = true;
    CHECK(read_falcon(config).error().where == std::string("config.json at /") + key);
  }
}

TEST_CASE("both mixers of a layer work in model FLOPs") {
  const ModelSpec model = falcon_model();
  // By hand, multiplications per token and layer: attention's projections, its scores over 2048
  // keys, the state space's projections and 3.5 for each of 1024 x 256 numbers, the MLP.
  const double layer = 4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096 + 2 * 4096.0 * 2048 +
                       4096.0 * (1024 + 512 + 1024 + 128) + 1024.0 * 4096 + 3.5 * 1024 * 256 +
                       3 * 4096.0 * 14'336;
  CHECK(model.flops_per_token(2048).in(kFlop) ==
        Approx(6 * (32 * layer + 4096.0 * 128'000)).epsilon(1e-9));
}

TEST_CASE("a model file with both mixers is read back, and impossible ones are refused") {
  const ModelSpec model = falcon_model();
  const Result<ModelSpec> again = parse_model(model_to_json(model), "model.json");
  REQUIRE(again.ok());
  CHECK(*again == model);
  ModelSpec some = model;
  some.ssm.layers = 16;
  REQUIRE_FALSE(check_model(some, "model.json").ok());
  CHECK(check_model(some, "model.json").error().where == "model.json at /ssm/layers");
  CHECK(not_executed(model) == "state spaces");
}
