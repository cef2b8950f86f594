// Published config.json files, in old and new spellings.
#include <string>
#include <vector>

#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

std::string config_text(const std::string& name) {
  return slurp(ECHELON_SOURCE_DIR "/tests/core/model/configs/" + name + ".json");
}

ModelSpec config(const std::string& name) {
  const Result<ModelSpec> model = parse_model(config_text(name), name + ".json");
  INFO(name << ": " << (model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

/// A published configuration with one key changed (an absent value removes it).
Result<ModelSpec> changed(const std::string& name, const std::string& key, const Json& value) {
  Json document = Json::parse(config_text(name));
  document[key] = value;
  return parse_model(document.dump(), "config.json");
}

Result<ModelSpec> without(const std::string& name, const std::string& key) {
  Json document = Json::parse(config_text(name));
  REQUIRE(document.erase(key) == 1);
  return parse_model(document.dump(), "config.json");
}

Error error_of(const Result<ModelSpec>& model) {
  REQUIRE_FALSE(model.ok());
  CHECK(model.error().kind == Error::Kind::input);
  return model.error();
}

}  // namespace

TEST_CASE("a published config.json gives the shapes of the catalog") {
  const std::pair<const char*, const char*> same[] = {{"gpt2-old", "gpt2"},
                                                      {"gpt2-xl", "gpt2-xl"},
                                                      {"llama-7b-old", "llama-7b"},
                                                      {"llama2-7b-null-kv", "llama2-7b"},
                                                      {"llama2-70b", "llama2-70b"},
                                                      {"llama3.2-1b", "llama3.2-1b"},
                                                      {"mistral-7b-v0.1", "mistral-7b"},
                                                      {"qwen2-0.5b", "qwen2-0.5b"},
                                                      {"qwen2-72b", "qwen2-72b"},
                                                      {"qwen3-4b", "qwen3-4b"},
                                                      {"gemma-2b", "gemma-2b"},
                                                      {"gemma2-9b", "gemma2-9b"},
                                                      {"gemma3-1b", "gemma3-1b"},
                                                      {"phi-1_5", "phi-1.5"},
                                                      {"phi-2", "phi-2"},
                                                      {"phi-3-mini", "phi-3-mini"},
                                                      {"bloom-7b1", "bloom-7b1"}};
  for (const auto& [file, name] : same) {
    ModelSpec read = config(file);
    const ModelSpec known = *load_model(name);
    INFO(model_to_json(read) << model_to_json(known));
    CHECK(read.name == file);
    read.name = known.name;
    read.source = known.source;
    CHECK(read == known);
  }
}

TEST_CASE("configurations beyond the catalog have the published counts") {
  CHECK(config("mistral-7b-v0.3").parameters() == 7'248'023'552);
  CHECK(config("phi-4-mini").parameters() == 3'836'021'760);
  CHECK(config("gemma3-12b-multimodal").parameters() == 11'766'034'176);  // its language model
}

TEST_CASE("Llama: old files without key-value heads, context length or model_type") {
  const ModelSpec old = config("llama-7b-old");
  CHECK(old.kv_heads == 32);
  CHECK(old.max_positions == 2048);
  CHECK(config("llama2-7b-null-kv").architecture == "llama");  // from architectures[0]
  const ModelSpec biased = *changed("llama2-70b", "attention_bias", true);
  CHECK(biased.qkv_bias);
  CHECK(biased.attention_output_bias);
  CHECK(changed("llama2-70b", "mlp_bias", true)->mlp_bias);
  CHECK(changed("llama2-70b", "head_dim", 64)->head_dim == 64);
}

TEST_CASE("GPT-2: n_inner overrides four times the width") {
  CHECK(config("gpt2-xl").ffn_hidden == 6400);
  CHECK(changed("gpt2-xl", "n_inner", 5000)->ffn_hidden == 5000);
  CHECK(config("gpt2-old").max_positions == 1024);  // spelled n_ctx
  CHECK(config("gpt2-xl").hidden_dropout == 0.1);
  CHECK(changed("gpt2-xl", "attn_pdrop", 0.0)->attention_dropout == 0);
}

TEST_CASE("Mistral: the window applies to every layer, or is null") {
  CHECK(config("mistral-7b-v0.1").windowed_layers == 32);
  CHECK(config("mistral-7b-v0.3").sliding_window == 0);
  CHECK(config("mistral-7b-v0.3").windowed_layers == 0);
  CHECK(changed("mistral-7b-v0.1", "head_dim", 160)->head_dim == 160);
}

TEST_CASE("Qwen: the window requires use_sliding_window and starts after the full layers") {
  CHECK(config("qwen2-0.5b").sliding_window == 0);
  Json document = Json::parse(config_text("qwen2-0.5b"));
  document["use_sliding_window"] = true;
  document["sliding_window"] = 4096;
  document["max_window_layers"] = 20;
  const ModelSpec windowed = *parse_model(document.dump(), "config.json");
  CHECK(windowed.sliding_window == 4096);
  CHECK(windowed.windowed_layers == 4);
  document["use_sliding_window"] = false;
  CHECK(parse_model(document.dump(), "config.json")->windowed_layers == 0);
  document["use_sliding_window"] = true;
  document["max_window_layers"] = 24;
  CHECK(parse_model(document.dump(), "config.json")->windowed_layers == 0);
}

TEST_CASE("Qwen3 has QK-norm and requires head_dim") {
  CHECK(config("qwen3-4b").qk_norm);
  CHECK(config("qwen3-4b").head_dim == 128);
  CHECK(error_of(without("qwen3-4b", "head_dim")).where == "config.json at /head_dim");
}

TEST_CASE("Gemma: both spellings of the activation, and heads wider than the model") {
  CHECK(config("gemma-2b").activation == Activation::gelu);
  CHECK(changed("gemma-2b", "hidden_activation", "gelu_pytorch_tanh")->activation ==
        Activation::gelu);
  CHECK(config("gemma2-9b").query_width() == 4096);  // 16 heads of 256; hidden is 3584
  CHECK(config("gemma2-9b").windowed_layers == 21);
}

TEST_CASE("Gemma 3: one layer in six is global, by rule or by list") {
  CHECK(config("gemma3-1b").windowed_layers == 22);
  const ModelSpec nested = config("gemma3-12b-multimodal");
  CHECK(nested.layers == 48);
  CHECK(nested.vocab == 262'208);
  CHECK(nested.windowed_layers == 40);
  Json types = Json::array();
  for (int i = 0; i < 26; ++i) types.push_back(i < 3 ? "sliding_attention" : "full_attention");
  CHECK(changed("gemma3-1b", "layer_types", types)->windowed_layers == 3);
  types.push_back("full_attention");
  CHECK(error_of(changed("gemma3-1b", "layer_types", types)).where ==
        "config.json at /layer_types");
  types.erase(26);
  types[0] = "linear_attention";
  CHECK_FALSE(changed("gemma3-1b", "layer_types", types).ok());
}

TEST_CASE("an error inside text_config has its pointer") {
  Json document = Json::parse(config_text("gemma3-12b-multimodal"));
  document["text_config"]["hidden_size"] = "wide";
  CHECK(error_of(parse_model(document.dump(), "config.json")).where ==
        "config.json at /text_config/hidden_size");
  document["text_config"] = 3;
  CHECK_FALSE(parse_model(document.dump(), "config.json").ok());
}

TEST_CASE("Phi: one norm, and biases everywhere including the head") {
  const ModelSpec phi = config("phi-2");
  CHECK(phi.parallel_block);
  CHECK(phi.head_bias);
  CHECK(phi.hidden_dropout == 0.1);
  CHECK(changed("phi-2", "qk_layernorm", true)->parameters() ==
        phi.parameters() + 32 * 2 * 2 * 80);  // gain and bias over 80, for q and k
}

TEST_CASE("Nemotron: squared ReLU without a gate, LayerNorm") {
  const ModelSpec model = config("nemotron-4b");
  CHECK(model.activation == Activation::squared_relu);
  CHECK_FALSE(model.gated_mlp);
  CHECK(model.normalization == Normalization::layer_norm);
}

TEST_CASE("experts under the name of a dense family are refused") {
  CHECK(mentions(error_of(changed("llama2-70b", "num_local_experts", 8)), "mixture-of-experts"));
  CHECK(mentions(error_of(changed("llama2-70b", "n_routed_experts", 64)), "mixture-of-experts"));
  CHECK(changed("llama2-70b", "num_local_experts", 1).ok());
}

TEST_CASE("encoders are refused as not decoder-only") {
  for (const char* type : {"bert", "roberta", "t5", "bart"}) {
    INFO(type);
    CHECK(mentions(error_of(changed("llama2-70b", "model_type", type)), "decoder-only"));
  }
  CHECK(mentions(error_of(changed("llama2-70b", "is_encoder_decoder", true)), "decoder-only"));
}

TEST_CASE("the error for an unknown architecture names the nearest, or else lists all") {
  const Error error = error_of(changed("llama2-70b", "model_type", "lama"));
  CHECK(error.where == "config.json at /model_type");
  CHECK(mentions(error, "unknown architecture 'lama'"));
  CHECK(mentions(error, "did you mean 'llama'?"));
  CHECK(mentions(error, "supported families"));
  CHECK_FALSE(mentions(error, "gpt2, llama"));
  const Error new_one = error_of(changed("llama2-70b", "model_type", "qwen5_text"));
  CHECK(mentions(new_one, "did you mean 'qwen3_5_text'?"));
  const Error unlike = error_of(changed("llama2-70b", "model_type", "zyzzyva"));
  CHECK(mentions(unlike, "gpt2, llama, mistral, qwen2, qwen3"));
  const Error mixture = error_of(changed("llama2-70b", "model_type", "qwen9_moe"));
  CHECK(mentions(mixture, "mixture-of-experts model of another family"));
  CHECK(mentions(mixture, "did you mean 'qwen2_moe'?"));
  CHECK_FALSE(mentions(error_of(changed("llama2-70b", "model_type", "rwkv")), "did you mean"));
  CHECK_FALSE(changed("llama2-70b", "model_type", 7).ok());
  Json unnamed = Json::parse(config_text("llama2-70b"));
  unnamed.erase("model_type");
  unnamed["architectures"] = {"RwkvForCausalLM"};
  CHECK(mentions(error_of(parse_model(unnamed.dump(), "c")), "RwkvForCausalLM"));
  unnamed.erase("architectures");
  CHECK(mentions(error_of(parse_model(unnamed.dump(), "c")), "'model_type' is missing"));
}

TEST_CASE("the error for a missing or ill-typed key of a foreign file has its pointer") {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    const std::string pointer = "config.json at /" + std::string(key);
    CHECK(error_of(without("llama2-70b", key)).where == pointer);
    CHECK(error_of(changed("llama2-70b", key, "64")).where == pointer);
    CHECK(error_of(changed("llama2-70b", key, nullptr)).where == pointer);
    CHECK(error_of(changed("llama2-70b", key, 0)).where == pointer);
    CHECK(error_of(changed("llama2-70b", key, 1e18)).where == pointer);
  }
  CHECK_FALSE(changed("llama2-70b", "tie_word_embeddings", "yes").ok());
  CHECK_FALSE(changed("llama2-70b", "hidden_act", "mish").ok());
  CHECK(error_of(without("mistral-7b-v0.1", "num_key_value_heads")).where ==
        "config.json at /num_key_value_heads");
}

TEST_CASE("the error for contradictory shapes of a foreign file names the file's own keys") {
  CHECK(error_of(changed("llama2-70b", "num_key_value_heads", 7)).where ==
        "config.json at /num_key_value_heads");
  CHECK(error_of(changed("llama2-70b", "hidden_size", 8190)).where ==
        "config.json at /num_attention_heads");
  CHECK(error_of(changed("gpt2-xl", "n_head", 24)).where == "config.json at /n_head");
  struct Case {
    const char* file;
    const char* key;
    int value;
    const char* found;  // and what is expected
  };
  const std::vector<Case> cases = {
      {"deepseek-v3", "n_group", 7, "7 groups of 256 experts; expected a divisor of the experts"},
      {"deepseek-v3", "n_group", 300, "300; expected a whole number between 1 and 256, the exp"},
      {"deepseek-v3", "topk_group", 9, "9; expected a whole number between 1 and 8, the groups"},
      {"deepseek-v3", "num_experts_per_tok", 300, "300; expected a whole number between 1 and 256"},
      {"deepseek-v3", "num_key_value_heads", 8, "8 key-value heads of 128 heads"},
      {"deepseek-v3", "moe_layer_freq", 100, "no layer with experts; expected at least one"},
      {"deepseek-v3", "q_lora_rank", -5, "-5; expected a whole number between 1 and"},
      {"mixtral-8x7b", "num_experts_per_tok", 9, "9; expected a whole number between 1 and 8"},
      {"qwen3-30b-a3b", "num_experts_per_tok", 200, "200; expected a whole number between 1 and"},
      {"qwen3-next-80b-a3b", "linear_num_key_heads", 7, "7 key heads do not divide 32 value heads"},
      {"qwen3-next-80b-a3b", "full_attention_interval", 100,
       "48 of 48 layers with a gated delta net; expected at least one layer with attention"},
      {"nemotron-h-8b", "n_groups", 7, "7 groups do not divide 128 heads"},
      {"bamba-9b", "mamba_n_groups", 3, "3 groups do not divide 128 heads"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.file, each.key, each.value);
    const Error error = error_of(changed(each.file, each.key, each.value));
    CHECK(error.where == "config.json at /" + std::string(each.key));
    CHECK(mentions(error, each.found));
  }
  // The one in the inner object of a file of several networks, and a class's default.
  Json scout = Json::parse(config_text("llama4-scout"));
  scout["text_config"]["num_experts_per_tok"] = 20;
  CHECK(error_of(parse_model(scout.dump(), "config.json")).where ==
        "config.json at /text_config/num_experts_per_tok");
  Json few = Json::parse(config_text("deepseek-v3"));
  few.erase("n_group");
  few["n_routed_experts"] = 12;
  const Error by_default = error_of(parse_model(few.dump(), "config.json"));
  CHECK(by_default.where == "config.json at /n_group");
  CHECK(mentions(by_default, "8 groups of 12 experts, by default"));
}

TEST_CASE("a misspelt kind of rotary embedding is refused, one that nobody knows is noted") {
  Json file = Json::parse(config_text("llama2-70b"));
  file["rope_scaling"] = {{"rope_type", "llamma3"}, {"factor", 8}};
  const Error error = error_of(parse_model(file.dump(), "config.json"));
  CHECK(error.where == "config.json at /rope_scaling");
  CHECK(mentions(error, "rope_type 'llamma3'"));
  CHECK(mentions(error, "did you mean 'llama3'"));
  file["rope_scaling"] = {{"type", "ntk"}, {"factor", 8}};
  CHECK(parse_model(file.dump(), "config.json").ok());
  file["rope_scaling"] = {{"type", "linear"}, {"factor", 0}};
  CHECK(mentions(error_of(parse_model(file.dump(), "config.json")), "factor 0"));
}

TEST_CASE("unknown keys of a foreign file are accepted") {
  CHECK(changed("llama2-70b", "some_future_key", Json::object()).ok());
}

TEST_CASE("the constants of a config.json are read in every spelling") {
  const auto constants = [](const Result<ModelSpec>& model) {
    REQUIRE(model.ok());
    return *model->constants;
  };
  CHECK(constants(config("mistral-7b-v0.3")).rope.theta == 1e6);
  CHECK(constants(config("mistral-7b-v0.3")).norm_epsilon == 1e-5);
  CHECK(constants(changed("gpt2-xl", "layer_norm_epsilon", 1e-3)).norm_epsilon == 1e-3);
  // In rope_parameters since transformers 5, next to rope_scaling before; the inner value wins.
  const Json theta = {{"rope_theta", 7e4}, {"rope_type", "default"}};
  CHECK(constants(changed("llama2-70b", "rope_parameters", theta)).rope.theta == 7e4);
  CHECK(constants(changed("mistral-7b-v0.3", "rope_scaling", theta)).rope.theta == 7e4);
  const RotaryEmbedding llama = config("llama3.2-1b").constants->rope;
  CHECK(llama.scaling == RopeScaling::llama3);
  CHECK(llama.factor == 32);
  const Json linear = {{"type", "linear"}, {"factor", 2.0}};
  CHECK(constants(changed("llama2-70b", "rope_scaling", linear)).rope ==
        RotaryEmbedding{.theta = 10'000, .scaling = RopeScaling::linear, .factor = 2});
  // By default YaRN's attention factor is 0.1·ln(factor) + 1, and its context is the model's.
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  const RotaryEmbedding stretched = constants(changed("llama2-70b", "rope_scaling", yarn)).rope;
  CHECK(stretched.attention_factor == Approx(1.138629436111989).epsilon(1e-15));
  CHECK(stretched.original_positions == 4096);
  CHECK(config("deepseek-v3").constants->rope.attention_factor == 1);  // a ratio of two
  const Json incomplete = {{"rope_type", "llama3"}, {"factor", 8.0}};
  CHECK(mentions(error_of(changed("llama2-70b", "rope_scaling", incomplete)), "low_freq_factor"));
  CHECK(mentions(error_of(changed("llama2-70b", "rope_scaling", 3)), "rope_scaling"));
}

TEST_CASE("missing constants take the defaults of the family's configuration class") {
  CHECK(without("llama2-70b", "rms_norm_eps")->constants->norm_epsilon == 1e-6);
  CHECK(without("mistral-7b-v0.3", "rope_theta")->constants->rope.theta == 1e4);
  CHECK(without("mixtral-8x7b", "rope_theta")->constants->rope.theta == 1e6);
  CHECK(without("mixtral-8x7b", "rms_norm_eps")->constants->norm_epsilon == 1e-5);
  CHECK(without("phi-3-mini", "rms_norm_eps")->constants->norm_epsilon == 1e-5);
  CHECK(without("gpt2-xl", "layer_norm_epsilon")->constants->norm_epsilon == 1e-5);
  CHECK(without("nemotron-4b", "partial_rotary_factor")->constants->rope.rotated_part == 0.5);
  CHECK(without("phi-2", "partial_rotary_factor")->constants->rope.rotated_part == 0.5);
  CHECK(without("gpt-oss-20b", "rope_theta")->constants->rope.theta == 150'000);
  CHECK(config("phi-4-mini").constants->rope.rotated_part == 0.75);
}

TEST_CASE("operations that change the numbers but have no field are recorded") {
  const auto others = [](const Result<ModelSpec>& model) {
    REQUIRE(model.ok());
    return model->constants->other_arithmetic;
  };
  for (const char* file :
       {"gpt2-old", "gpt2-xl", "llama-7b-old", "llama2-70b", "llama3.2-1b", "mistral-7b-v0.1",
        "mistral-7b-v0.3", "qwen2-0.5b", "qwen2-72b", "qwen3-4b", "phi-3-mini"}) {
    INFO(file);
    CHECK(others(config(file)).empty());
  }
  using Texts = std::vector<std::string>;
  CHECK(others(changed("llama2-70b", "embedding_multiplier", 12.0)) ==
        Texts{"unknown config.json key 'embedding_multiplier'"});
  CHECK(others(changed("gemma2-9b", "some_future_key", 1)).size() == 5);  // in every family
  CHECK(others(changed("qwen2-0.5b", "quantization_config", {{"bits", 4}})).empty());  // a remark
  for (const Json& unused : {Json(nullptr), Json(false), Json::object(), Json::array(), Json("")}) {
    CHECK(others(changed("llama2-70b", "attn_logit_softcapping", unused)).empty());
  }
  CHECK(others(changed("llama2-70b", "temperature", 0.7)).empty());  // affects only text generation
  CHECK(others(config("gemma2-9b")) == Texts{"word embeddings multiplied by the root of the hidden "
                                             "width",
                                             "gains of norms counted from one",
                                             "attention scores capped at 50",
                                             "logits capped at 30"});
  CHECK(others(without("gemma2-9b", "final_logit_softcapping")).size() == 4);  // the class default
  CHECK(others(changed("gemma2-9b", "final_logit_softcapping", nullptr)).size() == 3);
  CHECK(others(changed("llama2-70b", "hidden_act", "gelu")).size() == 1);
  CHECK(others(changed("gpt2-xl", "activation_function", "gelu_fast")).empty());
}
