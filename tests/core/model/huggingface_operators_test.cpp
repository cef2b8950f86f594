// config.json files with operators other than plain attention: read as what they are, or refused.
#include <algorithm>
#include <string>
#include <utility>

#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

namespace {

Json published_config(const std::string& name) {
  return Json::parse(slurp(ECHELON_SOURCE_DIR "/tests/core/model/configs/" + name + ".json"));
}

Result<ModelSpec> read_config(const Json& document) {
  return parse_model(document.dump(), "config.json");
}

std::string refusal_at(const Json& document, const std::string& pointer) {
  const Result<ModelSpec> model = read_config(document);
  REQUIRE_FALSE(model.ok());
  CHECK(model.error().where == "config.json at /" + pointer);
  return model.error().message();
}

bool has_text(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("configurations of the current generation give the shapes of the catalog") {
  for (const std::string name :
       {"qwen3-next-80b-a3b", "qwen3.5-35b-a3b-multimodal", "qwen3.5-27b-multimodal", "glm-4.5-air",
        "glm-4.6", "minimax-m2", "olmo3-7b", "olmo3-32b", "olmoe-7b"}) {
    const Result<ModelSpec> model = read_config(published_config(name));
    INFO(name << (model ? "" : model.error().message()));
    REQUIRE(model.ok());
    const ModelSpec known = *load_model(name.substr(0, name.find("-multimodal")));
    ModelSpec same = *model;
    same.name = known.name;
    same.source = known.source;
    same.prediction_modules = 0;  // the catalog leaves them out
    same.constants->other_arithmetic = known.constants->other_arithmetic;
    INFO(model_to_json(same) << model_to_json(known));
    CHECK(same == known);
    for (const std::string& what : known.constants->other_arithmetic) {
      const auto& read_out = model->constants->other_arithmetic;
      INFO(what);
      CHECK(std::find(read_out.begin(), read_out.end(), what) != read_out.end());
    }
  }
}

TEST_CASE("delta nets follow the list of layers, else the interval") {
  Json config = published_config("qwen3-next-80b-a3b");
  CHECK(read_config(config)->delta.layers == 36);
  config["full_attention_interval"] = 8;
  CHECK(read_config(config)->delta.layers == 42);
  config["layer_types"] = Json::array();
  for (int i = 0; i < 48; ++i) {
    config["layer_types"].push_back(i < 10 ? "linear_attention" : "full_attention");
  }
  CHECK(read_config(config)->delta.layers == 10);
  config["layer_types"][3] = "sliding_attention";
  CHECK(has_text(refusal_at(config, "layer_types"), "linear_attention"));
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim", "head_dim"}) {
    Json without = published_config("qwen3-next-80b-a3b");
    without.erase(key);
    CHECK(has_text(refusal_at(without, key), "missing"));
  }
}

TEST_CASE("operators without a price are refused by name, never read as attention") {
  const std::pair<const char*, const char*> families[] = {
      {"deepseek_v4", "compressed keys"},
      {"minimax", "lightning attention"},
      {"jamba", "Mamba-1"},
      {"zamba2", "one attention block for several"},
      {"mamba2", "without attention or MLP"},
      {"gemma3n", "embeddings of each layer"},
      {"mistral_large4_text", "share an indexer's choice"},
      {"minimax_m3_vl_text", "blocks of keys"},
      {"mimo_v2_flash", "values narrower than keys"},
      {"step3p7_text", "differs between layers"},
      {"glm5_next_text", "hyper-connections"},
      {"qwen4_exp_text", "embeddings of n-grams"},
      {"recurrent_gemma", "RG-LRU"}};
  for (const auto& [type, name] : families) {
    Json config = published_config("deepseek-v3");
    config["model_type"] = type;
    INFO(type);
    CHECK(has_text(refusal_at(config, "model_type"), name));
  }
}

TEST_CASE("keys of such operators are refused under another family's name") {
  Json sparse = published_config("deepseek-v3");
  sparse["index_topk"] = 2048;
  CHECK(has_text(refusal_at(sparse, "index_topk"), "DSA"));
  Json lightning = published_config("minimax-m2");
  lightning["attn_type_list"][0] = 0;
  CHECK(has_text(refusal_at(lightning, "attn_type_list"), "lightning attention"));
  Json mamba = published_config("qwen3-4b");
  mamba["mamba_d_state"] = 128;
  CHECK(has_text(refusal_at(mamba, "mamba_d_state"), "state-space"));
  Json pattern = published_config("qwen3-4b");
  pattern["hybrid_override_pattern"] = "M-*-";
  CHECK(has_text(refusal_at(pattern, "hybrid_override_pattern"), "state-space"));
  Json shared = published_config("minimax-m2");
  shared["shared_intermediate_size"] = 1536;
  CHECK(has_text(refusal_at(shared, "shared_intermediate_size"), "shared experts"));
}
