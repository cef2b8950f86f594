// Loss and gradients against those of another implementation (golden/make_golden.py).
#include <cmath>
#include <fstream>
#include <string>

#include "tests/places.hpp"
#include "tests/runtime/model/chunk_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

void check_against_golden(const ModelSpec& model, const std::string& file,
                          const std::optional<Adapters>& adapters = {}) {
  ChunkRun run;
  run.model = model;
  run.adapters = adapters;
  run.adapter_scale = 2.5;
  const ChunkOutcome outcome = run_chunks<double>(run);
  std::ifstream in(std::string(ECHELON_SOURCE_DIR) + "/tests/runtime/model/golden/" + file);
  REQUIRE(in);
  std::string line;
  std::getline(in, line);
  int norms = 0;
  while (std::getline(in, line)) {
    const std::size_t first = line.find(',');
    const std::size_t second = line.find(',', first + 1);
    std::string name = line.substr(0, first);
    const std::size_t index = std::stoul(line.substr(first + 1, second - first - 1));
    const double expected = std::stod(line.substr(second + 1));
    const bool norm = name.ends_with(" norm");
    if (norm) name.resize(name.size() - 5);
    norms += norm ? 1 : 0;
    double here = outcome.loss;
    if (name != "loss") {
      const std::vector<double>& gradient = outcome.gradients.at(name);
      double squares = 0;
      for (const double x : gradient) squares += x * x;
      here = norm ? std::sqrt(squares) : gradient.at(index);
    }
    INFO(line);
    CHECK(std::abs(here - expected) < 1e-13 + 1e-12 * std::abs(expected));
  }
  CHECK(static_cast<std::size_t>(norms) == outcome.gradients.size());
}

TEST_CASE("loss and gradients of a small GPT-2 and a small Llama equal those of another program") {
  check_against_golden(test_gpt(), "gpt.csv");
  check_against_golden(test_llama(), "llama.csv");
}

TEST_CASE("loss and gradients with norms of query and key heads equal those of another program") {
  ModelSpec model = test_llama();
  model.qk_norm = true;
  model.constants->norm_epsilon = 1e-6;
  check_against_golden(model, "llama_head_norms.csv");
}

TEST_CASE("loss and gradients of models with experts equal those of another program") {
  check_against_golden(test_mixtral(), "mixtral.csv");
  check_against_golden(test_qwen3_moe(), "qwen3_moe.csv");
  check_against_golden(test_qwen2_moe(), "qwen2_moe.csv");
  check_against_golden(test_deepseek_experts(), "deepseek_experts.csv");
  check_against_golden(test_deepseek_v2_experts(), "deepseek_v2_experts.csv");
  check_against_golden(test_glm4_moe(), "glm4_moe.csv");
}

TEST_CASE("loss and gradients of models with latent attention equal those of another program") {
  check_against_golden(test_latent(), "latent.csv");
  check_against_golden(test_latent_direct(), "latent_direct.csv");
  check_against_golden(test_deepseek_v3(), "deepseek_v3.csv");
}

TEST_CASE("loss and gradients of adapters equal those of another program") {
  using enum AdapterTarget;
  check_against_golden(test_gpt(), "gpt_adapters.csv",
                       Adapters{3, {linear_qkv, linear_proj, linear_fc1, linear_fc2}});
  check_against_golden(test_llama(), "llama_adapters.csv",
                       Adapters{5, {linear_qkv, linear_proj, linear_fc1, linear_fc2}});
  ModelSpec model = test_llama();
  model.qk_norm = model.qkv_bias = true;
  check_against_golden(model, "llama_some_adapters.csv", Adapters{2, {linear_qkv, linear_fc2}});
}

ModelSpec llama_with(double epsilon, const RotaryEmbedding& rope) {
  ModelSpec model = test_llama();
  model.constants = ModelConstants{.norm_epsilon = epsilon, .rope = rope, .other_arithmetic = {}};
  return model;
}

TEST_CASE("epsilon, theta and scalings of the rotary embedding agree with another program") {
  ModelSpec gpt = test_gpt();
  gpt.constants->norm_epsilon = 1e-3;
  check_against_golden(gpt, "gpt_epsilon.csv");
  check_against_golden(llama_with(1e-6, {.theta = 500'000}), "llama_theta.csv");
  check_against_golden(
      llama_with(1e-6, {.theta = 10'000, .scaling = RopeScaling::linear, .factor = 4}),
      "llama_linear.csv");
  // Of the three pairs one stays, one is divided and one lies between.
  RotaryEmbedding llama3{.theta = 500, .scaling = RopeScaling::llama3, .factor = 8};
  llama3.original_positions = 64;
  check_against_golden(llama_with(1e-5, llama3), "llama_llama3.csv");
  RotaryEmbedding yarn{.theta = 500, .scaling = RopeScaling::yarn, .factor = 4};
  yarn.original_positions = 64;
  yarn.beta_fast = 4;
  yarn.beta_slow = 0.5;
  yarn.attention_factor = 1.25;
  check_against_golden(llama_with(1e-5, yarn), "llama_yarn.csv");
  yarn.whole_pairs = false;
  check_against_golden(llama_with(1e-5, yarn), "llama_yarn_real.csv");
}

}  // namespace
}  // namespace echelon
