// The catalog and Echelon's own model files.
#include "core/model/model_io.hpp"

#include <cmath>
#include <filesystem>
#include <set>
#include <string>

#include "core/json/json_io.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

Error error_of(const Result<ModelSpec>& model) {
  REQUIRE_FALSE(model.ok());
  return model.error();
}

/// A model file with one key changed.
std::string changed(const std::string& key, const Json& value) {
  Json file = Json::parse(model_to_json(*load_model("llama2-7b")));
  file[key] = value;
  return file.dump();
}

std::string without(const std::string& key) {
  Json file = Json::parse(model_to_json(*load_model("llama2-7b")));
  file.erase(key);
  return file.dump();
}

Error error_of_change(const std::string& key, const Json& value) {
  const Error error = error_of(parse_model(changed(key, value), "my.json"));
  CHECK(error.kind == Error::Kind::input);
  return error;
}

}  // namespace

TEST_CASE("every catalog model is unchanged after writing and reading") {
  for (const CatalogModel& entry : model_catalog()) {
    const ModelSpec model = *load_model(entry.name);
    const Result<ModelSpec> back = parse_model(model_to_json(model), "copy.json");
    INFO(entry.name << ": " << (back ? "" : back.error().message()));
    REQUIRE(back.ok());
    CHECK(*back == model);
  }
}

TEST_CASE("every field is written: changing one changes the file") {
  const ModelSpec base = *load_model("llama2-7b");
  const auto survives = [&](auto change) {
    ModelSpec model = base;
    change(model);
    REQUIRE_FALSE(model == base);
    const Result<ModelSpec> back = parse_model(model_to_json(model), "copy.json");
    REQUIRE(back.ok());
    CHECK(*back == model);
  };
  survives([](ModelSpec& m) { m.name = "mine"; });
  survives([](ModelSpec& m) { m.architecture = "own"; });
  survives([](ModelSpec& m) { m.source = "\"quoted\" \\ \n é"; });
  survives([](ModelSpec& m) { m.layers = 3; });
  survives([](ModelSpec& m) { m.hidden = 512; });
  survives([](ModelSpec& m) { m.kv_heads = 8; });
  survives([](ModelSpec& m) { m.head_dim = 96; });
  survives([](ModelSpec& m) { m.ffn_hidden = 100; });
  survives([](ModelSpec& m) { m.vocab = 100; });
  survives([](ModelSpec& m) { m.max_positions = 100; });
  survives([](ModelSpec& m) { m.normalization = Normalization::layer_norm; });
  survives([](ModelSpec& m) { m.activation = Activation::gelu; });
  survives([](ModelSpec& m) { m.activation = Activation::relu; });
  survives([](ModelSpec& m) { m.activation = Activation::squared_relu; });
  survives([](ModelSpec& m) { m.position = PositionEmbedding::learned; });
  survives([](ModelSpec& m) { m.position = PositionEmbedding::alibi; });
  survives([](ModelSpec& m) { m.position = PositionEmbedding::none; });
  survives([](ModelSpec& m) { m.gated_mlp = false; });
  survives([](ModelSpec& m) { m.tied_embeddings = true; });
  survives([](ModelSpec& m) { m.qkv_bias = true; });
  survives([](ModelSpec& m) { m.attention_output_bias = true; });
  survives([](ModelSpec& m) { m.mlp_bias = true; });
  survives([](ModelSpec& m) { m.head_bias = true; });
  survives([](ModelSpec& m) { m.qk_norm = true; });
  survives([](ModelSpec& m) { m.parallel_block = true; });
  survives([](ModelSpec& m) { m.post_norms = true; });
  survives([](ModelSpec& m) { m.embedding_norm = true; });
  survives([](ModelSpec& m) { m.hidden_dropout = 0.1; });
  survives([](ModelSpec& m) { m.attention_dropout = 1.0 / 3; });
  survives([](ModelSpec& m) {
    m.sliding_window = 256;
    m.windowed_layers = 7;
  });
  survives([](ModelSpec& m) { m.attention_sinks = true; });
}

TEST_CASE("every field of a mixture and of latent attention is written") {
  const auto survives = [](const char* name, auto change) {
    ModelSpec model = *load_model(name);
    const ModelSpec before = model;
    change(model);
    REQUIRE_FALSE(model == before);
    const Result<ModelSpec> back = parse_model(model_to_json(model), "copy.json");
    INFO((back ? "" : back.error().message()));
    REQUIRE(back.ok());
    CHECK(*back == model);
  };
  const char* moe = "qwen1.5-moe-a2.7b";
  survives(moe, [](ModelSpec& m) { m.moe.experts = 61; });
  survives(moe, [](ModelSpec& m) { m.moe.experts_per_token = 5; });
  survives(moe, [](ModelSpec& m) { m.moe.expert_ffn_hidden = 1; });
  survives(moe, [](ModelSpec& m) { m.moe.shared_ffn_hidden = 7; });
  survives(moe, [](ModelSpec& m) { m.moe.first_dense_layers = 23; });
  survives(moe, [](ModelSpec& m) { m.moe.every = 3; });
  survives(moe, [](ModelSpec& m) { m.moe.expert_bias = true; });
  survives(moe, [](ModelSpec& m) { m.moe.router_bias = true; });
  survives(moe, [](ModelSpec& m) { m.moe.shared_expert_gate = false; });
  survives(moe, [](ModelSpec& m) {
    m.moe.router_groups = 4;
    m.moe.router_group_topk = 3;
  });
  survives(moe, [](ModelSpec& m) { m.moe.router_score = RouterScore::sigmoid; });
  survives(moe, [](ModelSpec& m) { m.moe.router_normalized = true; });
  survives(moe, [](ModelSpec& m) { m.moe.router_scaling = 2.5; });
  survives("deepseek-v3", [](ModelSpec& m) { m.moe.router_score = RouterScore::softmax; });
  const char* mla = "deepseek-v2";
  survives(mla, [](ModelSpec& m) { m.constants->rope.score_mscale = 1; });
  survives(mla, [](ModelSpec& m) { m.mla.kv_lora_rank = 1; });
  survives(mla, [](ModelSpec& m) { m.mla.q_lora_rank = 0; });
  survives(mla, [](ModelSpec& m) { m.mla.v_head_dim = 3; });
  survives(mla, [](ModelSpec& m) {
    m.mla.qk_nope_head_dim = 100;
    m.mla.qk_rope_head_dim = 92;
  });
}

TEST_CASE("files of dense models contain no keys of experts, latents or sinks") {
  const std::string text = model_to_json(*load_model("llama2-7b"));
  for (const char* key : {"moe", "mla", "attention_sinks"}) {
    INFO(key);
    CHECK(text.find(key) == std::string::npos);
  }
}

TEST_CASE("an error inside moe or mla has its pointer") {
  const auto where = [](const char* model, const char* part, const char* key, const Json& value) {
    Json file = Json::parse(model_to_json(*load_model(model)));
    if (value.is_null()) {
      file[part].erase(key);
    } else {
      file[part][key] = value;
    }
    return error_of(parse_model(file.dump(), "my.json")).where;
  };
  const char* moe = "mixtral-8x7b";
  for (const char* key : {"experts", "experts_per_token", "expert_ffn_hidden"}) {
    INFO(key);
    CHECK(where(moe, "moe", key, nullptr) == "my.json at /moe/" + std::string(key));
    CHECK(where(moe, "moe", key, 0) == "my.json at /moe/" + std::string(key));
    CHECK(where(moe, "moe", key, "8") == "my.json at /moe/" + std::string(key));
  }
  CHECK(where(moe, "moe", "every", 0) == "my.json at /moe/every");
  CHECK(where(moe, "moe", "router_groups", 3) == "my.json at /moe/router_groups");
  CHECK(where(moe, "moe", "router_group_topk", 2) == "my.json at /moe/router_group_topk");
  CHECK(where("deepseek-v2", "moe", "router_groups", 160) == "my.json at /moe/router_group_topk");
  CHECK(where(moe, "moe", "experts_per_token", 9) == "my.json at /moe/experts_per_token");
  CHECK(where(moe, "moe", "first_dense_layers", 32) == "my.json at /moe/first_dense_layers");
  CHECK(where(moe, "moe", "shared_expert_gate", true) == "my.json at /moe/shared_expert_gate");
  CHECK(where(moe, "moe", "expert_bias", 1) == "my.json at /moe/expert_bias");
  CHECK(where(moe, "moe", "exprts", 8) == "my.json at /moe/exprts");
  const char* mla = "deepseek-v3";
  for (const char* key : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    INFO(key);
    CHECK(where(mla, "mla", key, nullptr) == "my.json at /mla/" + std::string(key));
    CHECK(where(mla, "mla", key, 0) == "my.json at /mla/" + std::string(key));
  }
  CHECK(where(mla, "mla", "qk_nope_head_dim", 127) == "my.json at /head_dim");
  CHECK(error_of_change("moe", 3).where == "my.json at /moe");
  CHECK(error_of_change("mla", Json::array()).where == "my.json at /mla");
  CHECK(parse_model(changed("moe", nullptr), "my.json").ok());
}

TEST_CASE("a short model file takes the defaults of a Llama block") {
  const Result<ModelSpec> model = parse_model(
      R"({"schema": 1, "layers": 2, "hidden": 64, "heads": 4, "ffn_hidden": 128, "vocab": 100,
          "max_positions": 32})",
      "folder/tiny.json");
  REQUIRE(model.ok());
  CHECK(model->name == "tiny");
  CHECK(model->kv_heads == 4);
  CHECK(model->head_dim == 16);
  CHECK(model->gated_mlp);
  CHECK(model->normalization == Normalization::rms_norm);
}

TEST_CASE("a nonexistent path is a missing file, not an unknown name") {
  const TempDir dir;
  const Error error = error_of(load_model((dir.path() / "none.json").string()));
  CHECK(error.kind == Error::Kind::environment);
  CHECK(mentions(error, "no such file"));
  CHECK(error_of(load_model("none.json")).kind == Error::Kind::environment);
}

TEST_CASE("a folder is read through its config.json, and the model has the folder's name") {
  const TempDir dir;
  dir.write("my-model/config.json",
            slurp(ECHELON_SOURCE_DIR "/tests/core/model/configs/gpt2-xl.json"));
  const std::string folder = (dir.path() / "my-model").string();
  const Result<ModelSpec> model = load_model(folder);
  REQUIRE(model.ok());
  CHECK(model->name == "my-model");
  CHECK(load_model(folder + "/").ok());
  CHECK(load_model(folder + "/config.json").value().name == "my-model");
  const Error error = error_of(load_model(dir.path().string()));
  CHECK(error.kind == Error::Kind::input);
  CHECK(mentions(error, "is a directory"));
}

TEST_CASE("the error for an unknown key of a model file names the nearest") {
  const char* without = R"({"schema": 1, "layers": 2, "hidden": 64, "heads": 4, "ffn_hidden": 128,
      "vocab": 100, "max_positions": 32, "hiden_dropout": 0.1})";
  const Error error = error_of(parse_model(without, "my.json"));
  CHECK(error.where == "my.json at /hiden_dropout");
  CHECK(mentions(error, "did you mean 'hidden_dropout'?"));
  CHECK_FALSE(mentions(error_of_change("hiden_dropout", 0.1), "did you mean"));  // both are there
}

TEST_CASE("the error for a missing, ill-typed or invalid field has its pointer") {
  for (const char* key : {"layers", "hidden", "heads", "ffn_hidden", "vocab", "max_positions"}) {
    INFO(key);
    CHECK(error_of(parse_model(without(key), "my.json")).where ==
          "my.json at /" + std::string(key));
    CHECK(error_of_change(key, "32").where == "my.json at /" + std::string(key));
    CHECK(error_of_change(key, 0).where == "my.json at /" + std::string(key));
    CHECK(error_of_change(key, -1).where == "my.json at /" + std::string(key));
    CHECK(error_of_change(key, 1.5).where == "my.json at /" + std::string(key));
    CHECK(error_of_change(key, 1e300).where == "my.json at /" + std::string(key));
    CHECK(error_of_change(key, Json::array()).where == "my.json at /" + std::string(key));
  }
  CHECK(error_of_change("gated_mlp", 1).where == "my.json at /gated_mlp");
  CHECK(error_of_change("hidden_dropout", 1.5).where == "my.json at /hidden_dropout");
  CHECK(error_of_change("hidden_dropout", -0.1).where == "my.json at /hidden_dropout");
  CHECK(error_of_change("aliases", "7b").where == "my.json at /aliases");
  CHECK(error_of_change("aliases", Json::array({1})).where == "my.json at /aliases");
  CHECK(mentions(error_of_change("activation", "sillu"), "did you mean 'silu'?"));
  CHECK(error_of_change("schema", 3).where == "my.json at /schema");
}

TEST_CASE("shapes that contradict each other are refused") {
  CHECK(error_of_change("kv_heads", 5).where == "my.json at /kv_heads");
  CHECK(error_of_change("windowed_layers", 4).where == "my.json at /windowed_layers");
  CHECK_FALSE(parse_model(R"({"schema": 1, "layers": 2, "hidden": 65, "heads": 4, "ffn_hidden": 1,
                              "vocab": 1, "max_positions": 1})",
                          "my.json")
                  .ok());
}

TEST_CASE("shapes whose count would overflow are refused") {
  ModelSpec model = *load_model("llama2-7b");
  model.layers = 100'000;
  model.hidden = 10'000'000;
  model.heads = model.kv_heads = 100'000;
  model.head_dim = 100'000;
  CHECK(mentions(check_model(model, "my.json").error(), "parameters"));
  model.layers = 100'001;
  CHECK(mentions(check_model(model, "my.json").error(), "between 1 and 100000"));
}

TEST_CASE("experts whose count would overflow are refused") {
  ModelSpec model = *load_model("mixtral-8x7b");
  model.hidden = 10'000'000;
  model.moe.experts = 100'000;
  model.moe.expert_ffn_hidden = 100'000'000;
  const Error error = check_model(model, "my.json").error();
  CHECK(error.where == "my.json at /moe/experts");
  CHECK(mentions(error, "parameters"));
}

TEST_CASE("a mixture or latent attention built in memory is also checked") {
  const auto where = [](const char* name, auto change) {
    ModelSpec model = *load_model(name);
    change(model);
    const Status status = check_model(model, "here");
    REQUIRE_FALSE(status.ok());
    return status.error().where;
  };
  CHECK(where("llama2-7b", [](ModelSpec& m) { m.moe.every = 2; }) == "here at /moe/experts");
  CHECK(where("llama2-7b", [](ModelSpec& m) { m.mla.v_head_dim = 1; }) ==
        "here at /mla/kv_lora_rank");
  CHECK(where("mixtral-8x7b", [](ModelSpec& m) { m.moe.experts = -1; }) == "here at /moe/experts");
  CHECK(where("mixtral-8x7b", [](ModelSpec& m) { m.moe.every = 0; }) == "here at /moe/every");
  CHECK(where("mixtral-8x7b", [](ModelSpec& m) { m.moe.shared_ffn_hidden = -1; }) ==
        "here at /moe/shared_ffn_hidden");
  CHECK(where("deepseek-v2", [](ModelSpec& m) { m.kv_heads = 64; }) == "here at /kv_heads");
  CHECK(where("deepseek-v2", [](ModelSpec& m) { m.mla.q_lora_rank = -1; }) ==
        "here at /mla/q_lora_rank");
  CHECK(where("deepseek-v2", [](ModelSpec& m) { m.head_dim = 128; }) == "here at /head_dim");
}

TEST_CASE("a model built in memory is checked like one from a file") {
  const ModelSpec good = *load_model("mistral-7b");
  CHECK(check_model(good, "here").ok());
  const auto refused = [&](auto change) {
    ModelSpec model = good;
    change(model);
    return !check_model(model, "here").ok();
  };
  CHECK(refused([](ModelSpec& m) { m.kv_heads = 0; }));
  CHECK(refused([](ModelSpec& m) { m.kv_heads = 64; }));
  CHECK(refused([](ModelSpec& m) { m.head_dim = -1; }));
  CHECK(refused([](ModelSpec& m) { m.windowed_layers = 33; }));
  CHECK(refused([](ModelSpec& m) { m.windowed_layers = 0; }));
  CHECK(refused([](ModelSpec& m) { m.sliding_window = 0; }));
  CHECK(refused([](ModelSpec& m) { m.hidden_dropout = std::nan(""); }));
  ModelSpec negative = good;
  negative.attention_dropout = -0.1;
  CHECK(check_model(negative, "here").error().where == "here at /attention_dropout");
}

TEST_CASE("anything but a model is refused with the expected input") {
  for (const char* text : {"[]", "3", "null", "\"gpt2\"", "{}", "{\"plan\": 1}"}) {
    INFO(text);
    const Error error = error_of(parse_model(text, "my.json"));
    CHECK(error.kind == Error::Kind::input);
    CHECK_FALSE(error.expected.empty());
  }
  CHECK_FALSE(parse_model("{\"schema\": 1, \"layers\":", "my.json").ok());
  CHECK_FALSE(parse_model("{\"schema\": 1, \"schema\": 1}", "my.json").ok());
}
