// Parameters of config.json files of the current families, total and active. The totals are those
// of the modules that transformers 5.24 builds from the same files, with the routers' corrections,
// which it keeps as buffers; of InternLM2, Ling and MiMo, sums over the shapes that their own code
// has.
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/model/config_files.hpp"

using namespace echelon;

TEST_CASE("dense models of the current families have the parameters of transformers' modules") {
  const std::pair<const char*, std::int64_t> models[] = {
      {"arcee-4.5b", 4'619'184'640},
      {"command-a", 111'057'580'032},
      {"command-r-plus", 103'810'674'688},
      {"ernie4.5-0.3b", 360'748'032},
      {"exaone4-32b", 32'003'216'384},
      {"glm-4-9b-0414", 9'400'094'720},
      {"glm-4-9b-chat-hf", 9'399'951'360},
      {"gpt-j-6b", 6'050'882'784},
      {"gpt-neox-20b", 20'554'567'680},
      {"granite3.3-8b", 8'170'864'640},
      {"hunyuan-7b", 7'504'568'320},
      {"internlm2.5-7b", 7'737'708'544},
      {"internlm3-8b", 8'804'241'408},
      {"mimo-7b", 7'622'619'136},
      {"mistral-small-3.1-multimodal", 23'572'403'200},
      {"qwen2.5-7b-vl", 7'615'616'512},
      {"seed-oss-36b", 36'151'104'512},
      {"smollm3-3b", 3'075'098'624},
      {"starcoder2-3b", 3'030'371'328}};
  for (const auto& [name, parameters] : models) {
    INFO(name);
    CHECK(family_reading(name).model.parameters() == parameters);
    CHECK(family_reading(name).model.active_parameters() == parameters);
  }
  // xIELU has two parameters per layer, which are not counted.
  CHECK(family_reading("apertus-8b").model.parameters() == 8'053'338'176 - 2 * 32);
}

TEST_CASE("mixtures of the current families have the parameters of transformers' modules") {
  struct Mixture {
    const char* name;
    std::int64_t total;
    std::int64_t idle;  ///< experts per layer that a token does not visit, times layers and size
  };
  const Mixture models[] = {
      {"dots-llm1", 142'774'373'888 + 61 * 128, std::int64_t{122} * 61 * 3 * 4096 * 1408},
      {"ernie4.5-21b-a3b", 21'825'437'888, std::int64_t{58} * 27 * 3 * 2560 * 1536},
      {"glm-4.7-flash", 29'943'390'976 + 46 * 64, std::int64_t{60} * 46 * 3 * 2048 * 1536},
      {"granite3-3b-a800m", 3'298'793'472, std::int64_t{32} * 32 * 3 * 1536 * 512},
      {"hunyuan-a13b", 80'393'183'232, std::int64_t{56} * 32 * 3 * 4096 * 3072},
      {"kimi-k2.5-multimodal", 1'026'408'209'408 + 60 * 384,
       std::int64_t{376} * 60 * 3 * 7168 * 2048},
      {"ling-lite", 16'801'974'272, std::int64_t{58} * 28 * 3 * 2048 * 1408},
      {"ling-1t", 999'705'328'640, std::int64_t{248} * 76 * 3 * 8192 * 2048},
      {"phi-3.5-moe", 41'873'153'344, std::int64_t{14} * 32 * 3 * 4096 * 6400},
      {"qwen3-30b-a3b-vl", 30'532'122'624, std::int64_t{120} * 48 * 3 * 2048 * 768}};
  for (const Mixture& each : models) {
    INFO(each.name);
    const ModelSpec model = family_reading(each.name).model;
    CHECK(model.parameters() == each.total);
    CHECK(model.active_parameters() == each.total - each.idle);
  }
}

TEST_CASE("blocks of the current families are read as what they are") {
  const auto spec = [](const char* name) { return family_reading(name).model; };
  CHECK(spec("command-a").parallel_block);
  CHECK(spec("command-a").tied_embeddings);
  CHECK(spec("command-a").windowed_layers == 48);
  CHECK(spec("command-r-plus").qk_norm_all_heads);
  CHECK(spec("command-r-plus").windowed_layers == 0);
  CHECK(spec("exaone4-32b").windowed_layers == 48);
  CHECK(spec("exaone4-32b").qk_norm);
  CHECK(spec("glm-4-9b-0414").post_norms);
  CHECK_FALSE(spec("glm-4-9b-0414").qkv_bias);
  CHECK_FALSE(spec("glm-4-9b-chat-hf").post_norms);
  CHECK(spec("glm-4-9b-chat-hf").qkv_bias);
  CHECK_FALSE(spec("glm-4-9b-chat-hf").attention_output_bias);
  CHECK(spec("glm-4.7-flash").latent());
  CHECK(spec("glm-4.7-flash").prediction_modules == 1);
  CHECK(spec("seed-oss-36b").qkv_bias);
  CHECK_FALSE(spec("seed-oss-36b").attention_output_bias);
  CHECK(spec("seed-oss-36b").hidden_dropout == 0.1);
  CHECK(spec("starcoder2-3b").sliding_window == 4096);
  CHECK_FALSE(spec("apertus-8b").gated_mlp);
  CHECK(spec("mimo-7b").qkv_bias);
  CHECK(spec("mimo-7b").prediction_modules == 1);
  CHECK(spec("gpt-j-6b").constants->rope.rotated_part == 0.25);
  CHECK(spec("ernie4.5-21b-a3b").moe.first_dense_layers == 1);
  CHECK(spec("ernie4.5-21b-a3b").moe.shared_ffn_hidden == 2 * 1536);
  CHECK(spec("ernie4.5-21b-a3b").moe.router_score == RouterScore::softmax);
  CHECK(spec("dots-llm1").moe.router_score == RouterScore::sigmoid);
  CHECK(spec("dots-llm1").moe.router_scaling == 2.5);
  CHECK(spec("hunyuan-a13b").moe.shared_ffn_hidden == 3072);
  CHECK(spec("ling-1t").moe.router_groups == 8);
  CHECK(spec("ling-1t").moe.first_dense_layers == 4);
  CHECK(spec("ling-1t").qk_norm);
  CHECK_FALSE(spec("ling-lite").moe.router_bias);
  CHECK(spec("phi-3.5-moe").head_bias);
  CHECK(spec("phi-3.5-moe").normalization == Normalization::layer_norm);
  CHECK(spec("kimi-k2.5-multimodal").latent());
}

TEST_CASE("models of the catalog are those of their config.json, also in constants") {
  const std::map<std::string, std::string> of_other_names = {
      {"gemma4-12b", "gemma4-12b-multimodal"},
      {"gemma4-26b-a4b", "gemma4-26b-a4b-multimodal"},
      {"gemma4-31b", "gemma4-31b-multimodal"},
      {"glm-4-9b", "glm-4-9b-0414"},
      {"mistral-small-24b", "mistral-small-3.1-multimodal"},
      {"mistral-small-4-119b-a6b", "mistral-small-4-multimodal"}};
  int compared = 0;
  for (const CatalogModel& entry : model_catalog()) {
    const auto other = of_other_names.find(entry.name);
    const std::string file = other == of_other_names.end() ? entry.name : other->second;
    if (!std::filesystem::exists(family_path(file))) continue;
    INFO(entry.name);
    ++compared;
    ModelSpec of_file = family_reading(file).model;
    const ModelSpec of_catalog = load_model(entry.name).value();
    of_file.name = of_catalog.name;
    of_file.source = of_catalog.source;
    of_file.prediction_modules = 0;  // the catalog leaves them out (docs/interop.md)
    CHECK(model_to_json(of_file) == model_to_json(of_catalog));
  }
  CHECK(compared >= 40);
}

TEST_CASE("what scales rotary positions or queries is named") {
  const auto arithmetic = [](const char* name) {
    return family_reading(name).model.constants->other_arithmetic;
  };
  CHECK(arithmetic("ministral3-8b") ==
        std::vector<std::string>{"queries that grow with the logarithm of their positions"});
  CHECK(arithmetic("hunyuan-a13b").front() ==
        "a rotary base that is multiplied by a power of alpha");
}

TEST_CASE("values that would make another block are refused") {
  const auto where = [](const char* name, const char* key, const Json& value) {
    return refused_family(changed_family(name, key, value)).where;
  };
  CHECK(where("hunyuan-a13b", "use_cla", true) == "config.json at /use_cla");
  CHECK(where("hunyuan-a13b", "moe_topk", {8, 4}) == "config.json at /moe_topk");
  CHECK(where("hunyuan-a13b", "moe_topk", Json::array()) == "config.json at /moe_topk");
  CHECK(where("starcoder2-3b", "mlp_type", "gated") == "config.json at /mlp_type");
  CHECK(where("exaone4-32b", "sliding_window_pattern", "LGLG") ==
        "config.json at /sliding_window_pattern");
  CHECK(where("ernie4.5-21b-a3b", "use_bias", true) == "config.json at /use_bias");
  CHECK(where("ernie4.5-21b-a3b", "moe_layer_end_index", 20) ==
        "config.json at /moe_layer_start_index");
  CHECK(where("qwen3-30b-a3b", "shared_expert_intermediate_size", 768) ==
        "config.json at /shared_expert_intermediate_size");
  CHECK(where("minimax-m2", "qk_norm_type", "per_head") == "config.json at /qk_norm_type");
}

TEST_CASE("a key whose default is the shape of one model is required") {
  const auto missing = [](const char* name, const char* key) {
    Json document = Json::parse(slurp(family_path(name)));
    Json& text = document.contains("text_config") ? document["text_config"] : document;
    REQUIRE(text.erase(key) == 1);
    const std::string where = refused_family(document).where;
    return where.substr(where.rfind('/') + 1);
  };
  CHECK(missing("gpt-oss-20b", "head_dim") == "head_dim");
  CHECK(missing("minimax-m2", "head_dim") == "head_dim");
  CHECK(missing("seed-oss-36b", "head_dim") == "head_dim");
  CHECK(missing("llama4-scout", "num_key_value_heads") == "num_key_value_heads");
  CHECK(missing("seed-oss-36b", "num_key_value_heads") == "num_key_value_heads");
  CHECK(missing("ernie4.5-0.3b", "num_key_value_heads") == "num_key_value_heads");
}

TEST_CASE("a DeepSeek file whose layers are all dense has no experts, and rotates neighbours") {
  Json file = Json::parse(slurp(family_path("deepseek-v3")));
  file["first_k_dense_replace"] = file.at("num_hidden_layers");
  const ModelSpec dense = *parse_model(file.dump(), "config.json");
  CHECK(dense.moe == MixtureOfExperts{});
  CHECK(dense.latent());
  CHECK(dense.constants->other_arithmetic.empty());
  file["rope_interleave"] = false;
  CHECK(parse_model(file.dump(), "config.json")->constants->other_arithmetic ==
        std::vector<std::string>{"rotated pairs that are half a head apart in latent attention"});
}

TEST_CASE("files as transformers 5 writes them are read like the published ones") {
  Json flash = Json::parse(slurp(family_path("glm-4.7-flash")));
  const ModelSpec published = *parse_model(flash.dump(), "config.json");
  flash.erase("first_k_dense_replace");
  flash["qk_head_dim"] = 256;
  flash["head_dim"] = 64;
  flash["rope_interleave"] = true;
  flash["mlp_layer_types"] = {"dense"};
  for (int i = 1; i < 47; ++i) flash["mlp_layer_types"].push_back("sparse");
  CHECK(*parse_model(flash.dump(), "config.json") == published);
  flash["mlp_layer_types"][3] = "dense";
  CHECK(refused_family(flash).where == "config.json at /mlp_layer_types");
  flash["mlp_layer_types"] = {"dense"};
  CHECK(refused_family(flash).where == "config.json at /mlp_layer_types");
}
