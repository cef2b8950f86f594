// Families of 2025 and 2026 in the forms that their configuration classes write: counts against
// transformers' modules.
#include <string>
#include <utility>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"
#include "core/model/model_io.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

// Defaults of the configuration classes of transformers 5.24, less what every file has.
constexpr const char* kSolarOpen =
    R"({"attention_bias": false, "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 4096, "max_position_embeddings": 131072, "model_type": "solar_open",
    "moe_intermediate_size": 1280, "n_group": 1, "n_routed_experts": 128,
    "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 64,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 1000000.0,
    "rope_type": "default"}, "routed_scaling_factor": 1.0, "tie_word_embeddings": false,
    "topk_group": 1, "vocab_size": 196608})";
constexpr const char* kHyV3 =
    R"({"attention_bias": false, "attention_dropout": 0.0, "enable_moe_fp32_combine": true,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 13312,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "hy_v3",
    "moe_intermediate_size": 1536, "num_attention_heads": 64, "num_experts": 192,
    "num_experts_per_tok": 8, "num_hidden_layers": 80, "num_key_value_heads": 8,
    "num_shared_experts": 1, "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 11158840.0, "rope_type": "default"},
    "router_scaling_factor": 2.826, "tie_word_embeddings": false, "vocab_size": 120832})";
constexpr const char* kExaoneMoe =
    R"({"attention_dropout": 0.0, "first_k_dense_replace": 1, "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 16384, "max_position_embeddings": 2048,
    "model_type": "exaone_moe", "moe_intermediate_size": 1024, "n_group": 1,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 64,
    "num_experts_per_tok": 8, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "num_shared_experts": 1, "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 10000.0,
    "rope_type": "default"}, "routed_scaling_factor": 2.5, "sliding_window": 4096,
    "sliding_window_pattern": 4, "tie_word_embeddings": false, "topk_group": 1,
    "vocab_size": 102400})";
constexpr const char* kAfmoe =
    R"({"attention_bias": false, "attention_dropout": 0.0, "global_attn_every_n_layers": 4,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
    "max_position_embeddings": 16384, "model_type": "afmoe", "moe_intermediate_size": 1408,
    "mup_enabled": false, "num_attention_heads": 16, "num_dense_layers": 1, "num_experts": 64,
    "num_experts_per_tok": 6, "num_hidden_layers": 32, "num_key_value_heads": 16,
    "num_shared_experts": 2, "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 10000.0,
    "rope_type": "default"}, "route_scale": 1.0, "sliding_window": 1024,
    "tie_word_embeddings": false, "vocab_size": 200192})";
constexpr const char* kYoutu = R"({"attention_bias": false, "attention_dropout": 0.0,
    "embedding_initializer_range": 0.03952847075210474, "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 6144, "kv_lora_rank": 512,
    "max_position_embeddings": 131072, "model_type": "youtu", "num_attention_heads": 16,
    "num_hidden_layers": 32, "num_key_value_heads": 16, "q_lora_rank": 1536,
    "qk_head_dim": 192, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_interleave": true, "rope_parameters": {"rope_theta": 10000.0,
    "rope_type": "default"}, "tie_word_embeddings": true, "v_head_dim": 128,
    "vocab_size": 128256})";
constexpr const char* kOlmoHybrid = R"({"attention_bias": false, "attention_dropout": 0.0,
    "hidden_act": "silu", "hidden_size": 3840, "intermediate_size": 11008, "linear_a_log_max": 16.0,
    "linear_a_log_min": 0.0, "linear_allow_neg_eigval": true, "linear_conv_kernel_dim": 4,
    "linear_dt_init_floor": 0.0001, "linear_dt_max": 0.1, "linear_dt_min": 0.001,
    "linear_key_head_dim": 96, "linear_num_key_heads": 30, "linear_num_value_heads": 30,
    "linear_value_head_dim": 192, "max_position_embeddings": 65536, "model_type": "olmo_hybrid",
    "num_attention_heads": 30, "num_hidden_layers": 32, "num_key_value_heads": 30,
    "rms_norm_eps": 1e-06, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": false, "vocab_size": 100352})";

ModelSpec recent_model(const Json& config) {
  const Result<ModelSpec> model = parse_model(config.dump(), "config.json");
  INFO((model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

std::string recent_refusal(const char* text, const char* key, const Json& value) {
  Json config = Json::parse(text);
  config[key] = value;
  const Result<ModelSpec> model = parse_model(config.dump(), "config.json");
  return model ? "read" : model.error().where;
}

}  // namespace

TEST_CASE("families of 2025 and 2026 have as many parameters as transformers' modules") {
  // On the meta device (transformers 5.24); buffers are the routers' biases.
  CHECK(recent_model(Json::parse(kSolarOpen)).parameters() == 102'651'793'408 + 6'144);
  CHECK(recent_model(Json::parse(kHyV3)).parameters() == 295'033'528'320 + 15'168);
  CHECK(recent_model(Json::parse(kExaoneMoe)).parameters() == 28'550'639'616 + 1'984);
  CHECK(recent_model(Json::parse(kAfmoe)).parameters() == 19'232'600'000);
  CHECK(recent_model(Json::parse(kYoutu)).parameters() == 1'961'560'064);
  CHECK(recent_model(Json::parse(kOlmoHybrid)).parameters() == 7'430'870'688);
}

TEST_CASE("OLMo Hybrid's delta nets have the class's widths where the file has none") {
  Json config = Json::parse(kOlmoHybrid);
  const ModelSpec model = recent_model(config);
  CHECK(model.delta.layers == 24);
  for (const char* key : {"linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads",
                          "linear_num_value_heads", "linear_conv_kernel_dim"}) {
    config.erase(key);
  }
  CHECK(recent_model(config) == model);
  config["rope_parameters"] = nullptr;
  CHECK(recent_model(config).position == PositionEmbedding::none);
}

TEST_CASE("lists of MLPs and of windows say the same as the numbers") {
  Json config = Json::parse(kExaoneMoe);
  const ModelSpec model = recent_model(config);
  CHECK(model.windowed_layers == 24);
  CHECK(model.sliding_window == 4096);
  CHECK(model.moe.first_dense_layers == 1);
  for (int i = 0; i < 32; ++i) {
    config["layer_types"].push_back(i % 4 == 3 ? "full_attention" : "sliding_attention");
    config["mlp_layer_types"].push_back(i == 0 ? "dense" : "sparse");
  }
  CHECK(recent_model(config) == model);
  config["sliding_window_pattern"] = "LLLG";
  CHECK(recent_model(config) == model);
  config.erase("layer_types");
  CHECK(recent_refusal(config.dump().c_str(), "sliding_window_pattern", "LLLG") ==
        "config.json at /sliding_window_pattern");
}

TEST_CASE("Trinity's layers have a gate, four norms and windows, and refuse biases") {
  const ModelSpec model = recent_model(Json::parse(kAfmoe));
  CHECK(model.attention_output_gate);
  CHECK(model.norms_per_layer() == 4);
  CHECK(model.windowed_layers == 24);
  CHECK(recent_refusal(kAfmoe, "attention_bias", true) == "config.json at /attention_bias");
  CHECK(recent_refusal(kAfmoe, "score_func", "softmax") == "config.json at /score_func");
}
