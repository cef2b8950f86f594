// config.json files of models with experts or latent attention.
#include <string>

#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

Json config_json(const std::string& name) {
  return Json::parse(slurp(ECHELON_SOURCE_DIR "/tests/core/model/configs/" + name + ".json"));
}

ModelSpec model_of(const Json& document) {
  const Result<ModelSpec> model = parse_model(document.dump(), "config.json");
  INFO((model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

Error error_of(const Json& document) {
  const Result<ModelSpec> model = parse_model(document.dump(), "config.json");
  REQUIRE_FALSE(model.ok());
  CHECK(model.error().kind == Error::Kind::input);
  return model.error();
}

Json changed(const std::string& name, const std::string& key, const Json& value) {
  Json document = config_json(name);
  document[key] = value;
  return document;
}

Json without(const std::string& name, const std::string& key) {
  Json document = config_json(name);
  REQUIRE(document.erase(key) == 1);
  return document;
}

Json text_changed(const std::string& name, const std::string& key, const Json& value) {
  Json document = config_json(name);
  document["text_config"][key] = value;
  return document;
}

}  // namespace

TEST_CASE("the list of layers that transformers 5 writes for Qwen2 is unused without its window") {
  Json file = config_json("qwen2-57b-a14b");
  const ModelSpec published = model_of(file);
  file["layer_types"] = Json::array();
  for (int i = 0; i < published.layers; ++i) file["layer_types"].push_back("full_attention");
  CHECK(model_of(file) == published);
}

TEST_CASE("a published mixture's config.json gives the shapes of the catalog") {
  for (const char* name :
       {"mixtral-8x7b", "mixtral-8x22b", "qwen1.5-moe-a2.7b", "qwen2-57b-a14b", "qwen3-30b-a3b",
        "qwen3-235b-a22b", "deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2",
        "llama4-scout", "llama4-maverick", "gpt-oss-20b", "gpt-oss-120b"}) {
    ModelSpec read = model_of(config_json(name));
    const ModelSpec known = *load_model(name);
    INFO(model_to_json(read) << model_to_json(known));
    read.name = known.name;
    read.source = known.source;
    read.prediction_modules = 0;  // the catalog leaves them out
    CHECK(read == known);
  }
}

TEST_CASE("modules for multi-token prediction are read in every spelling") {
  CHECK(model_of(config_json("deepseek-v3")).prediction_modules == 1);
  CHECK(model_of(config_json("glm-4.5-air")).prediction_modules == 1);
  CHECK(model_of(config_json("minimax-m2")).prediction_modules == 3);
  CHECK(model_of(config_json("qwen3.5-35b-a3b-multimodal")).prediction_modules == 1);
  CHECK(model_of(config_json("kimi-k2")).prediction_modules == 0);
  CHECK(model_of(without("deepseek-v3", "num_nextn_predict_layers")).prediction_modules == 0);
  Json renamed = without("deepseek-v3", "num_nextn_predict_layers");
  renamed["num_mtp_layers"] = 2;  // as transformers 5 saves it
  CHECK(model_of(renamed).prediction_modules == 2);
  CHECK(model_of(changed("deepseek-v3", "num_nextn_predict_layers", nullptr)).prediction_modules ==
        0);
  CHECK(model_of(changed("minimax-m2", "use_mtp", false)).prediction_modules == 0);
  // They do not count in the published number of parameters.
  CHECK(model_of(config_json("deepseek-v3")).parameters() == 671'026'419'200);
}

TEST_CASE("unreadable modules for multi-token prediction are refused") {
  for (const Json& wrong : {Json("1"), Json(-1), Json(1'000'000), Json(0.5)}) {
    CHECK(error_of(changed("deepseek-v3", "num_nextn_predict_layers", wrong)).where ==
          "config.json at /num_nextn_predict_layers");
  }
  CHECK(error_of(changed("minimax-m2", "mtp_transformer_layers", 2)).where ==
        "config.json at /mtp_transformer_layers");
}

TEST_CASE("the instruction-tuned Mixtral 8x22B has the published count") {
  CHECK(model_of(config_json("mixtral-8x22b-instruct")).parameters() == 140'630'071'296);
}

TEST_CASE("Mixtral: a window in the file applies to every layer") {
  CHECK(model_of(config_json("mixtral-8x7b")).sliding_window == 0);
  const ModelSpec windowed = model_of(changed("mixtral-8x7b", "sliding_window", 4096));
  CHECK(windowed.sliding_window == 4096);
  CHECK(windowed.windowed_layers == 32);
}

TEST_CASE("Qwen: decoder_sparse_step and mlp_only_layers determine the pattern") {
  const ModelSpec every_third = model_of(changed("qwen3-30b-a3b", "decoder_sparse_step", 3));
  CHECK(every_third.moe.first_dense_layers == 2);
  CHECK(every_third.moe.every == 3);
  CHECK(every_third.moe_layers() == 16);
  const ModelSpec later = model_of(changed("qwen3-30b-a3b", "mlp_only_layers", {0, 1, 2}));
  CHECK(later.moe.first_dense_layers == 3);
  CHECK(later.moe_layers() == 45);
  Json odd = config_json("qwen3-30b-a3b");
  odd["mlp_only_layers"] = {5};
  CHECK(error_of(odd).where == "config.json at /mlp_only_layers");
  CHECK(mentions(error_of(odd), "irregular placement"));
  odd["mlp_only_layers"] = {48};
  CHECK(mentions(error_of(odd), "layer 48"));
  odd["mlp_only_layers"] = {"3"};
  CHECK(error_of(odd).where == "config.json at /mlp_only_layers");
  odd["mlp_only_layers"] = 3;
  CHECK(error_of(odd).where == "config.json at /mlp_only_layers");
  CHECK(mentions(error_of(changed("qwen3-30b-a3b", "decoder_sparse_step", 49)), "no layer"));
}

TEST_CASE("Qwen: a single layer with experts is a valid pattern") {
  const ModelSpec model = model_of(changed("qwen3-30b-a3b", "decoder_sparse_step", 48));
  CHECK(model.moe_layers() == 1);
  CHECK(model.layer_kind(47) == LayerKind::moe);
}

TEST_CASE("Qwen: the newer key of the expert count is read") {
  Json document = without("qwen3-30b-a3b", "num_experts");
  CHECK(error_of(document).where == "config.json at /num_experts");
  document["num_local_experts"] = 128;
  CHECK(model_of(document).moe.experts == 128);
}

TEST_CASE("Qwen: the window requires use_sliding_window") {
  CHECK(model_of(config_json("qwen1.5-moe-a2.7b")).sliding_window == 0);
  const ModelSpec windowed = model_of(changed("qwen1.5-moe-a2.7b", "use_sliding_window", true));
  CHECK(windowed.sliding_window == 32'768);
  CHECK(windowed.windowed_layers == 11);  // every second of the first 21
}

TEST_CASE("DeepSeek: null means no query latent, no shared experts, or no experts") {
  CHECK(model_of(config_json("deepseek-v2-lite")).mla.q_lora_rank == 0);
  CHECK(error_of(without("deepseek-v2", "q_lora_rank")).where == "config.json at /q_lora_rank");
  CHECK(model_of(changed("deepseek-v2", "n_shared_experts", nullptr)).moe.shared_ffn_hidden == 0);
  const ModelSpec dense = model_of(changed("deepseek-v3", "n_routed_experts", nullptr));
  CHECK(dense.moe == MixtureOfExperts{});
  CHECK(dense.latent());
  CHECK(error_of(without("deepseek-v3", "n_routed_experts")).where ==
        "config.json at /n_routed_experts");
}

TEST_CASE("DeepSeek: expert layers are the multiples of their frequency after the dense ones") {
  const ModelSpec model = model_of(changed("deepseek-v3", "moe_layer_freq", 2));
  CHECK(model.moe.first_dense_layers == 4);
  CHECK(model.moe.every == 2);
  CHECK(model.moe_layers() == 29);  // 4, 6, ... 60
}

TEST_CASE("DeepSeek: V3 has a routing correction, V2 does not") {
  const MixtureOfExperts limited = model_of(config_json("deepseek-v3")).moe;
  CHECK(limited.router_groups == 8);
  CHECK(limited.router_group_topk == 4);
  CHECK(model_of(without("deepseek-v3", "n_group")).moe.router_groups == 8);  // the class's default
  CHECK(model_of(changed("deepseek-v2", "n_group", nullptr)).moe.router_groups == 1);
  CHECK(model_of(config_json("deepseek-v2")).moe.router_group_topk == 3);
  CHECK(model_of(config_json("kimi-k2")).moe.router_groups == 1);
  CHECK(model_of(config_json("deepseek-v3")).moe.router_bias);
  CHECK(limited.router_score == RouterScore::sigmoid);
  CHECK(limited.router_normalized);
  CHECK(limited.router_scaling == 2.5);
  CHECK(error_of(changed("deepseek-v3", "scoring_func", "sqrt")).where.find("scoring_func") !=
        std::string::npos);
  CHECK_FALSE(model_of(config_json("deepseek-v2")).moe.router_normalized);
  CHECK_FALSE(model_of(config_json("deepseek-v2")).moe.router_bias);
}

TEST_CASE("Kimi K2 is read like DeepSeek-V3, with or without its model_type") {
  Json document = config_json("kimi-k2");
  const ModelSpec kimi = model_of(document);
  CHECK(kimi.architecture == "kimi_k2");
  document.erase("model_type");  // its class is DeepseekV3ForCausalLM
  CHECK(model_of(document).parameters() == kimi.parameters());
}

TEST_CASE("Llama 4: experts by step or by list") {
  const ModelSpec third = model_of(text_changed("llama4-scout", "interleave_moe_layer_step", 3));
  CHECK(third.moe.first_dense_layers == 2);
  CHECK(third.moe.every == 3);
  Json list = Json::array();
  for (int i = 4; i < 48; i += 4) list.push_back(i);
  const ModelSpec listed = model_of(text_changed("llama4-scout", "moe_layers", list));
  CHECK(listed.moe.first_dense_layers == 4);
  CHECK(listed.moe_layers() == 11);
  list.push_back(47);
  CHECK(error_of(text_changed("llama4-scout", "moe_layers", list)).where ==
        "config.json at /text_config/moe_layers");
  CHECK_FALSE(
      parse_model(text_changed("llama4-scout", "moe_layers", Json::array()).dump(), "c").ok());
}

TEST_CASE("Llama 4: three layers of four attend in chunks, by rule or by list") {
  CHECK(model_of(config_json("llama4-scout")).windowed_layers == 36);
  CHECK(model_of(text_changed("llama4-scout", "attention_chunk_size", nullptr)).sliding_window ==
        0);
  CHECK(model_of(text_changed("llama4-scout", "no_rope_layer_interval", 2)).windowed_layers == 24);
  Json rotary = Json::array();
  for (int i = 0; i < 48; ++i) rotary.push_back(i < 5 ? 1 : 0);
  CHECK(model_of(text_changed("llama4-scout", "no_rope_layers", rotary)).windowed_layers == 5);
  rotary.erase(47);
  CHECK(error_of(text_changed("llama4-scout", "no_rope_layers", rotary)).where ==
        "config.json at /text_config/no_rope_layers");
  Json types = Json::array();
  for (int i = 0; i < 48; ++i) types.push_back(i < 7 ? "chunked_attention" : "full_attention");
  CHECK(model_of(text_changed("llama4-scout", "layer_types", types)).windowed_layers == 7);
}

TEST_CASE("Llama 4: the text configuration alone is accepted") {
  const Json text = config_json("llama4-scout").at("text_config");
  CHECK(model_of(text).architecture == "llama4_text");
  CHECK(model_of(text).parameters() == load_model("llama4-scout")->parameters());
}

TEST_CASE("GPT-OSS: every second layer is windowed, by rule or by list") {
  CHECK(model_of(without("gpt-oss-20b", "layer_types")).windowed_layers == 12);
  CHECK(model_of(without("gpt-oss-20b", "layer_types")).sliding_window == 128);
  Json types = Json::array();
  for (int i = 0; i < 24; ++i) types.push_back(i < 3 ? "sliding_attention" : "full_attention");
  CHECK(model_of(changed("gpt-oss-20b", "layer_types", types)).windowed_layers == 3);
  CHECK_FALSE(model_of(changed("gpt-oss-20b", "attention_bias", false)).qkv_bias);
}

TEST_CASE("the error for a missing or invalid key of a mixture has its pointer") {
  const std::pair<const char*, const char*> required[] = {
      {"mixtral-8x7b", "num_local_experts"},
      {"mixtral-8x7b", "num_experts_per_tok"},
      {"qwen1.5-moe-a2.7b", "moe_intermediate_size"},
      {"qwen1.5-moe-a2.7b", "shared_expert_intermediate_size"},
      {"deepseek-v3", "kv_lora_rank"},
      {"deepseek-v3", "qk_nope_head_dim"},
      {"deepseek-v3", "qk_rope_head_dim"},
      {"deepseek-v3", "v_head_dim"},
      {"deepseek-v3", "n_shared_experts"},
      {"deepseek-v3", "first_k_dense_replace"},
      {"gpt-oss-20b", "num_local_experts"}};
  for (const auto& [name, key] : required) {
    const std::string pointer = "config.json at /" + std::string(key);
    INFO(name << " " << key);
    CHECK(error_of(without(name, key)).where == pointer);
    CHECK(error_of(changed(name, key, "8")).where == pointer);
    CHECK(error_of(changed(name, key, -1)).where == pointer);
    CHECK(error_of(changed(name, key, 1e18)).where == pointer);
  }
  CHECK(mentions(error_of(changed("mixtral-8x7b", "num_experts_per_tok", 9)), "between 1 and 8"));
  CHECK_FALSE(parse_model(changed("deepseek-v3", "n_shared_experts", 100'000).dump(), "c").ok());
}

TEST_CASE("mixtures of another family are refused instead of misread") {
  const Error dbrx = error_of(changed("qwen3-30b-a3b", "model_type", "dbrx"));
  CHECK(mentions(dbrx, "mixture-of-experts"));
  CHECK(mentions(dbrx, "the nearest supported family is 'mixtral'"));
  CHECK_FALSE(mentions(dbrx, "one of mixtral, qwen2_moe"));
  const Error unlike = error_of(changed("qwen3-30b-a3b", "model_type", "zyzzyva_moe_z"));
  CHECK(mentions(unlike, "mixture-of-experts"));
  CHECK(
      mentions(error_of(changed("qwen3-30b-a3b", "model_type", "some_moe")), "mixture-of-experts"));
  // An unknown family with experts is reported as a mixture.
  CHECK(mentions(error_of(changed("mixtral-8x7b", "model_type", "novel")), "mixture-of-experts"));
}
