// What a config.json has beyond the model that is planned, and files that are handed in for one.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/model/model_formats_io.hpp"
#include "tests/core/model/config_files.hpp"

using namespace echelon;

namespace {

bool says(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("a file of several networks is read as its language model, and the others are named") {
  const ModelReading mistral = family_reading("mistral-small-3.1-multimodal");
  CHECK(mistral.model.architecture == "mistral");
  CHECK(says(mistral.remarks, "vision_config"));
  CHECK(says(family_reading("gemma3-12b-multimodal").remarks, "vision_config"));
  CHECK(says(family_reading("qwen2.5-7b-vl").remarks, "vision_config"));
  CHECK(family_reading("qwen3-4b").remarks.empty());
  // Only the outer object says that the embeddings are tied.
  Json tied = Json::parse(slurp(family_path("mistral-small-3.1-multimodal")));
  tied["tie_word_embeddings"] = true;
  CHECK(parse_model(tied.dump(), "config.json")->tied_embeddings);
  tied["text_config"]["tie_word_embeddings"] = false;
  CHECK_FALSE(parse_model(tied.dump(), "config.json")->tied_embeddings);
  tied["text_config"]["model_type"] = 3;
  CHECK(refused_family(tied).where == "config.json at /text_config");
}

TEST_CASE("experts of a file without a layer for them are named") {
  const Json dense = changed_family("deepseek-v3", "first_k_dense_replace", 62);
  const Result<Json> document = parse_json(dense.dump(), "config.json");
  const Result<ModelReading> reading = read_huggingface(*document, "config.json");
  REQUIRE(reading.ok());
  CHECK(reading->model.moe.experts == 0);
  CHECK(says(reading->remarks, "first_k_dense_replace 62 leaves none of the 61 layers"));
  CHECK_FALSE(says(family_reading("deepseek-v3").remarks, "without experts"));
}

TEST_CASE("a network around a language model that changes it is refused") {
  Json crossed = Json::parse(slurp(family_path("mistral-small-3.1-multimodal")));
  crossed["model_type"] = "mllama";
  CHECK(refused_family(crossed).message().find("cross-attention") != std::string::npos);
  crossed["model_type"] = "clip";
  CHECK(refused_family(crossed).message().find("decoder-only") != std::string::npos);
}

TEST_CASE("what a file has beyond its language model is said") {
  const TempDir folder;
  const auto remarks = [&](const Json& document) {
    const std::string path = (folder.path() / "config.json").string();
    std::ofstream(path) << document.dump();
    const Result<ModelReading> reading = read_model(path);
    REQUIRE(reading.ok());
    return reading->remarks;
  };
  const Json packed = {{"quant_method", "gptq"}, {"bits", 4}};
  CHECK(says(remarks(changed_family("qwen3-4b", "quantization_config", packed)), "(gptq)"));
  Json bits = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
  bits["bnb_4bit_quant_type"] = "nf4";
  bits["bnb_4bit_use_double_quant"] = true;
  CHECK(says(remarks(changed_family("qwen3-4b", "quantization_config", bits)),
             "--quantized-weights nf4:double-quant"));
  bits["bnb_4bit_quant_type"] = "fp4";
  CHECK_FALSE(says(remarks(changed_family("qwen3-4b", "quantization_config", bits)),
                   "--quantized-weights"));
  CHECK(says(remarks(changed_family("gemma3-1b", "use_bidirectional_attention", true)),
             "use_bidirectional_attention"));
  CHECK(
      says(remarks(changed_family("qwen3-4b", "architectures", {"Qwen3ForSequenceClassification"})),
           "Qwen3ForSequenceClassification"));
  CHECK(remarks(Json::parse(slurp(family_path("qwen3-4b")))).empty());
}

TEST_CASE("defaults of keys that files state are listed, and unknown scaling is named") {
  const auto remarks = [](const Json& document) {
    const Result<ModelReading> reading = read_huggingface(document, "config.json");
    REQUIRE(reading.ok());
    return reading->remarks;
  };
  Json llama = {{"model_type", "llama"},          {"hidden_size", 4096},
                {"num_hidden_layers", 32},        {"num_attention_heads", 32},
                {"intermediate_size", 11008},     {"vocab_size", 32000},
                {"max_position_embeddings", 4096}};
  const std::vector<std::string> bare = remarks(llama);
  REQUIRE(bare.size() == 1);
  CHECK(says(bare,
             "num_key_value_heads 32 (multi-head), hidden_act silu, rms_norm_eps 1e-06, "
             "tie_word_embeddings false"));
  llama["num_key_value_heads"] = nullptr;  // states multi-head attention
  llama["hidden_act"] = "silu";
  llama["rms_norm_eps"] = 1e-5;
  llama["tie_word_embeddings"] = false;
  CHECK(remarks(llama).empty());
  llama["rope_scaling"] = {{"type", "spiral"}, {"factor", 2}};
  CHECK(says(remarks(llama), "not priced: 'spiral' scaling of the rotary embedding"));
}

TEST_CASE("no published configuration has a key that is unknown") {
  for (const auto& entry : std::filesystem::directory_iterator(
           family_path("x").substr(0, family_path("x").rfind('/')))) {
    const Result<ModelReading> reading = read_model(entry.path().string());
    INFO(entry.path().string());
    REQUIRE(reading.ok());
    CHECK_FALSE(says(reading->remarks, "unknown keys"));
  }
}

TEST_CASE("another file of a model's folder is refused by its name") {
  const auto found = [](const Json& document) { return refused_family(document).found; };
  const Json tensors = {{"lm_head.weight", "model-00001-of-00002.safetensors"}};
  CHECK(found({{"metadata", Json::object()}, {"weight_map", tensors}}).find("index of a model's") !=
        std::string::npos);
  CHECK(found({{"peft_type", "LORA"}, {"r", 16}}).find("adapter") != std::string::npos);
  CHECK(found({{"dim", 4096}, {"n_layers", 32}, {"n_kv_heads", 8}}).find("params.json") !=
        std::string::npos);
  const TempDir empty;
  const Result<ModelSpec> folder = load_model(empty.path().string() + "/");
  REQUIRE_FALSE(folder.ok());
  CHECK(folder.error().message().find("is a directory without a config.json") != std::string::npos);
}
