// The names by which the catalog's models are found.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "core/model/model_io.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

/// Of a name that is not known.
std::string complaint_of(const std::string& name) {
  const Result<ModelSpec> model = load_model(name);
  REQUIRE_FALSE(model.ok());
  CHECK(model.error().kind == Error::Kind::input);
  return model.error().message();
}

}  // namespace

TEST_CASE("every catalog model and alias loads, and every name is unique") {
  std::set<std::string> names;
  for (const CatalogModel& entry : model_catalog()) {
    CHECK(names.insert(entry.name).second);
    REQUIRE(load_model(entry.name).ok());
    for (const std::string& alias : entry.aliases) {
      INFO(alias);
      CHECK(names.insert(alias).second);
      CHECK(load_model(alias).value().name == entry.name);
    }
  }
  CHECK(names.size() > 100);
}

TEST_CASE("the name of a family is answered with its models") {
  CHECK(mentions(complaint_of("smollm2"),
                 "the catalog has smollm2-135m, smollm2-360m, smollm2-1.7b;"));
  CHECK(mentions(complaint_of("Qwen3.5"), "qwen3.5-0.8b"));
  CHECK(mentions(complaint_of("megatron"), "megatron-310b and others;"));
  CHECK(mentions(complaint_of("mistral-small"),
                 "the catalog has mistral-small-24b, mistral-small-4-119b-a6b;"));
}

TEST_CASE("short sizes are aliases of the usual model of that size") {
  const std::pair<const char*, const char*> expected[] = {
      {"7b", "llama2-7b"},
      {"13b", "llama2-13b"},
      {"70b", "llama2-70b"},
      {"30b", "llama-30b"},
      {"65b", "llama-65b"},
      {"8b", "llama3-8b"},
      {"1b", "llama3.2-1b"},
      {"3b", "llama3.2-3b"},
      {"405b", "llama3.1-405b"},
      {"175b", "gpt3-175b"},
      {"llama3-405b", "llama3.1-405b"},
      {"1t", "megatron-1t"},
      {"7B", "llama2-7b"},
      {"32b", "qwen3-32b"},
      {"meta-llama/Llama-2-7b-hf", "llama2-7b"}};
  for (const auto& [alias, name] : expected) {
    INFO(alias);
    CHECK(load_model(alias).value().name == name);
  }
}

TEST_CASE("the Hub's names of tuned models are those of the models with their shapes") {
  const std::pair<const char*, const char*> expected[] = {
      {"Qwen/Qwen3-8B-Base", "qwen3-8b"},
      {"Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"},
      {"meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b"},
      {"Llama-3.3-70B-Instruct", "llama3.1-70b"},
      {"DeepSeek-V3-0324", "deepseek-v3"},
      {"google/gemma-3-27b-it", "gemma3-27b"},
      {"moonshotai/Kimi-K2-Thinking", "kimi-k2.5"},
      {"unsloth/Llama-3.2-3B-Instruct", "llama3.2-3b"},
      {"unsloth/Qwen3-8B", "qwen3-8b"},
      {"meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3.1-8b"},
      {"EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"},
      {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama3.1-70b"},
      {"Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"},
      {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"},
      {"gpt-oss-20b", "gpt-oss-20b"}};
  for (const auto& [given, name] : expected) {
    INFO(given);
    CHECK(load_model(given).value().name == name);
  }
  for (const char* other :
       {"someone/llama2-7b", "unsloth/", "Qwen/Qwen3-8", "-instruct", "qwen", "x/-2507"}) {
    INFO(other);
    CHECK(mentions(complaint_of(other), "unknown model"));
    CHECK(mentions(complaint_of(other), "config.json is enough"));
  }
}

TEST_CASE("a folder is preferred to the name of the catalog that it has") {
  const TempDir dir;
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path folder = std::filesystem::path("qwen") / "qwen3-8b";
  std::filesystem::current_path(dir.path());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << model_to_json(load_model("llama2-7b").value());
  const int layers = load_model("qwen/qwen3-8b").value().layers;
  std::filesystem::current_path(before);
  CHECK(layers == load_model("llama2-7b").value().layers);
}

TEST_CASE("the error for an unknown model name suggests the nearest") {
  const std::string complaint = complaint_of("lama2-7b");
  CHECK(mentions(complaint, "unknown model 'lama2-7b'"));
  CHECK(mentions(complaint, "did you mean 'llama2-7b'?"));
  CHECK_FALSE(mentions(complaint_of("completely-unknown-thing"), "did you mean"));
  CHECK_FALSE(load_model("").ok());
}

TEST_CASE("Kimi K2 and K2.5 differ in their context alone") {
  const ModelSpec old = load_model("moonshotai/Kimi-K2-Base").value();
  ModelSpec later = load_model("moonshotai/Kimi-K2.5").value();
  CHECK(old.max_positions == 131072);
  CHECK(later.max_positions == 262144);
  CHECK(later.constants->rope.factor == 2 * old.constants->rope.factor);
  later.constants = old.constants;
  later.max_positions = old.max_positions;
  later.name = old.name;
  later.source = old.source;
  CHECK(later == old);
}
