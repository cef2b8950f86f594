// Gemma 4: counts against transformers' modules, FLOPs against torch's counter, files and refusals.
#include <cstdint>
#include <string>

#include "core/plan/executable.hpp"
#include "tests/core/model/config_files.hpp"

using namespace echelon;

namespace {

/// A file of the text model alone, as transformers writes it.
Json small_gemma4(bool experts) {
  Json config{{"model_type", "gemma4_text"},
              {"vocab_size", 512},
              {"hidden_size", 128},
              {"intermediate_size", 96},
              {"num_hidden_layers", 6},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"head_dim", 32},
              {"hidden_size_per_layer_input", 0},
              {"sliding_window", 1024},
              {"max_position_embeddings", 2048},
              {"attention_k_eq_v", true},
              {"per_layer_config", {{"5", {{"head_dim", 64}, {"num_key_value_heads", 1}}}}}};
  if (!experts) return config;
  config["enable_moe_block"] = true;
  config["num_experts"] = 8;
  config["top_k_experts"] = 2;
  config["moe_intermediate_size"] = 48;
  return config;
}

ModelSpec gemma4_of(const Json& config) {
  const Result<ModelSpec> model = parse_model(config.dump(), "config.json");
  INFO((model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

}  // namespace

TEST_CASE("Gemma 4 has as many parameters as transformers' modules") {
  // Of Gemma4ForCausalLM and Gemma4UnifiedForCausalLM on the meta device (transformers 5.24) with
  // the text_config of the files.
  const ModelSpec unified = family_reading("gemma4-12b-multimodal").model;
  CHECK(unified.parameters() == 11'907'350'272);
  CHECK(unified.global == GlobalAttention{8, 1, 512, true});
  const ModelSpec dense = family_reading("gemma4-31b-multimodal").model;
  CHECK(dense.parameters() == 30'697'345'280);
  CHECK(dense.windowed_layers == 50);
  CHECK(dense.global == GlobalAttention{10, 4, 512, true});
  const ModelSpec mixture = family_reading("gemma4-26b-a4b-multimodal").model;
  CHECK(mixture.parameters() == 25'233'141'760);
  CHECK(mixture.global == GlobalAttention{5, 2, 512, true});
  CHECK(mixture.active_parameters() == 25'233'141'760 - std::int64_t{120} * 30 * 3 * 2816 * 704);
}

TEST_CASE("a layer of Gemma 4 has the matrices of its kind of attention") {
  const ModelSpec model = *load_model("gemma4-31b");
  const std::int64_t mlp = std::int64_t{3} * 5376 * 21504;
  const auto layer = [&](TokenMixer mixer) {
    return model.layer_parameters(LayerKind::dense, mixer).total();
  };
  // Queries, keys, values and the output; norms of queries and keys, four of the layer.
  CHECK(layer(TokenMixer::attention) ==
        mlp + std::int64_t{5376} * (8192 + 2 * 4096 + 8192) + 2 * 256 + 4 * 5376);
  CHECK(layer(TokenMixer::global_attention) ==
        mlp + std::int64_t{5376} * (16384 + 2048 + 16384) + 2 * 512 + 4 * 5376);
}

TEST_CASE("Gemma 4's FLOPs are those that torch counts") {
  // torch.utils.flop_counter over a forward of 256 tokens in eager attention, which computes all
  // scores; windows are longer. Of experts with their eager products.
  const auto forward = [](const ModelSpec& model) {
    return model.flops_per_token(256).in(kFlop) / 3 * 256;
  };
  const ModelSpec dense = gemma4_of(small_gemma4(false));
  CHECK(dense.parameters() == 609'856);
  CHECK(forward(dense) == Approx(545'259'520).epsilon(1e-12));
  const ModelSpec mixture = gemma4_of(small_gemma4(true));
  CHECK(mixture.parameters() == 1'503'856);
  CHECK(forward(mixture) == Approx(661'651'456).epsilon(1e-12));
}

TEST_CASE("the last layer of Gemma 4 has full attention whatever the list says") {
  Json config = small_gemma4(false);
  config.erase("per_layer_config");
  config["global_head_dim"] = 64;
  config["num_global_key_value_heads"] = 1;
  CHECK(gemma4_of(config).windowed_layers == 5);
  config["layer_types"] = std::vector<std::string>(6, "sliding_attention");
  CHECK(gemma4_of(config).windowed_layers == 5);
  CHECK(gemma4_of(config).parameters() == 609'856);
  // Only where values are the keys is the number of global key heads read.
  config["attention_k_eq_v"] = false;
  CHECK(gemma4_of(config).global == GlobalAttention{1, 2, 64, false});
  config["model_type"] = "gemma4_unified_text";
  CHECK(gemma4_of(config).global.head_dim == 64);
  config.erase("sliding_window");
  CHECK(gemma4_of(config).sliding_window == 1024);
}

TEST_CASE("what of Gemma 4 has no price is refused by its key") {
  const auto refused = [](const char* key, const Json& value) {
    Json config = small_gemma4(false);
    config[key] = value;
    return refused_family(config);
  };
  Error error = refused("hidden_size_per_layer_input", 256);
  CHECK(error.where == "config.json at /hidden_size_per_layer_input");
  CHECK(error.found.find("embeddings of each layer") != std::string::npos);
  Json usual = small_gemma4(false);
  usual.erase("hidden_size_per_layer_input");  // the class's default is 256
  CHECK(refused_family(usual).where == "config.json at /hidden_size_per_layer_input");
  CHECK(refused("num_kv_shared_layers", 2).where == "config.json at /num_kv_shared_layers");
  CHECK(refused("use_bidirectional_attention", "all").where ==
        "config.json at /use_bidirectional_attention");
  CHECK(refused("layer_types", std::vector<std::string>(6, "full_attention")).where ==
        "config.json at /layer_types");
  error = refused("per_layer_config", {{"4", {{"head_dim", 64}}}, {"5", {{"head_dim", 32}}}});
  CHECK(error.where == "config.json at /per_layer_config");
}

TEST_CASE("a model file with global attention is read back as it was written") {
  for (const char* name : {"gemma4-31b", "gemma4-26b-a4b"}) {
    const ModelSpec model = *load_model(name);
    const Result<ModelSpec> again = parse_model(model_to_json(model), "model.json");
    REQUIRE(again.ok());
    CHECK(*again == model);
  }
  CHECK(model_to_json(*load_model("gemma3-27b")).find("value_norm") == std::string::npos);
}

TEST_CASE("global attention stands between windowed layers alone") {
  ModelSpec model = *load_model("gemma4-31b");
  model.windowed_layers = 49;
  Status sound = check_model(model, "model.json");
  REQUIRE_FALSE(sound.ok());
  CHECK(sound.error().where == "model.json at /global/layers");
  model.windowed_layers = 50;
  model.global.kv_heads = 3;
  sound = check_model(model, "model.json");
  REQUIRE_FALSE(sound.ok());
  CHECK(sound.error().where == "model.json at /global/kv_heads");
  model.global = {.head_dim = 512};
  CHECK_FALSE(check_model(model, "model.json").ok());
}

TEST_CASE("the own runtime refuses Gemma 4 by name") {
  CHECK(not_executed(*load_model("gemma4-31b")) == "attention whose heads differ between layers");
  CHECK(not_executed(*load_model("gemma4-26b-a4b")) ==
        "norms of their own for routed and shared experts");
}
