// What an answer says of a model that was read from a HuggingFace configuration.
#include <algorithm>
#include <string>

#include "tests/cli/program.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;
using echelon::test::Sandbox;

namespace {

using Json = nlohmann::ordered_json;

Json published(const std::string& name) {
  return Json::parse(slurp(ECHELON_SOURCE_DIR "/tests/core/model/configs/" + name + ".json"));
}

/// The prediction for `config` on 64 GPUs, as JSON.
Json predicted(const Sandbox& sandbox, const Json& config, const std::string& flags) {
  sandbox.write("config.json", config.dump());
  const ProcessResult ran = sandbox.plan("predict --model config.json --gpus 64 --json " + flags);
  INFO(ran.err);
  REQUIRE(ran.exit_code <= 1);
  return Json::parse(ran.out);
}

bool assumes(const Json& answer, const std::string& part) {
  const Json& all = answer.at("assumptions");
  INFO(all.dump(1));
  return std::any_of(all.begin(), all.end(), [&](const Json& line) {
    return line.get<std::string>().find(part) != std::string::npos;
  });
}

double step(const Json& answer) { return answer.at("time").at("step_seconds").get<double>(); }

}  // namespace

TEST_CASE("the Hub's name of a model of the catalog is planned, any other is an unknown model") {
  const Sandbox sandbox;
  const ProcessResult known = sandbox.plan("--model Qwen/Qwen3-8B-Base --gpus 8 --json");
  REQUIRE(known.exit_code == 0);
  CHECK(Json::parse(known.out).at("request").at("model") == "qwen3-8b");
  const ProcessResult other = sandbox.plan("--model Qwen/Qwen-Huge --gpus 8");
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("unknown model 'Qwen/Qwen-Huge'") != std::string::npos);
}

TEST_CASE("multi-token prediction is priced where the framework trains it, and said either way") {
  const Sandbox sandbox;
  const Json with = published("glm-4.5-air");
  Json without = with;
  without["num_nextn_predict_layers"] = 0;
  for (const std::string framework : {"megatron-core", "torchtitan"}) {
    const std::string flags = "--framework " + framework + " --ep 8";
    const bool trains = framework == "megatron-core";
    const Json more = predicted(sandbox, with, flags);
    const Json less = predicted(sandbox, without, flags);
    INFO(framework);
    CHECK((step(more) > step(less)) == trains);
    CHECK(assumes(more, trains ? "1 module for it is trained too"
                               : "torchtitan trains without the model's 1 module"));
    CHECK_FALSE(assumes(less, "multi-token prediction"));
  }
}

TEST_CASE("an answer says what the own runtime does not do to balance experts") {
  const Sandbox sandbox;
  const Json config = published("glm-4.5-air");
  const std::string correction = "correction of the router's scores stays as it is, initially 0";
  const Json own = predicted(sandbox, config, "--framework echelon --ep 8");
  CHECK(assumes(own, "no load-balancing loss"));
  CHECK(assumes(own, correction));
  CHECK_FALSE(assumes(own, "plan run refuses"));
  CHECK_FALSE(assumes(predicted(sandbox, config, "--framework megatron-core --ep 8"), correction));
  const Json softmax = published("qwen1.5-moe-a2.7b");
  const Json without = predicted(sandbox, softmax, "--framework echelon --ep 4");
  CHECK(assumes(without, "no load-balancing loss"));
  CHECK_FALSE(assumes(without, correction));
}

TEST_CASE("an answer says what of a foreign file is not planned") {
  const Sandbox sandbox;
  const Json answer = predicted(sandbox, published("gemma3-12b-multimodal"), "");
  CHECK(assumes(answer, "not planned: vision_config"));
  Json stored = published("qwen3-4b");
  stored["quantization_config"] = {{"quant_method", "fp8"}};
  stored["some_future_key"] = 7;
  const Json other = predicted(sandbox, stored, "");
  CHECK(assumes(other, "quantization_config (fp8)"));
  CHECK(assumes(other, "not priced: what unknown keys"));
  CHECK(assumes(other, "some_future_key"));
  CHECK_FALSE(assumes(predicted(sandbox, published("qwen3-4b"), ""), "of the model's file"));
}

TEST_CASE("an answer says that NICs of unknown kind carry the tokens of DeepEP and HybridEP") {
  const Sandbox sandbox;
  const std::string nics = "InfiniBand or RoCE by mlx5 NICs";
  const Json experts = published("glm-4.5-air");
  const auto of = [&](const Json& model, const std::string& flags) {
    return predicted(sandbox, model, "--ep 8 --cluster " + flags);
  };
  CHECK(assumes(of(experts, "h100-sxm-x4"), nics));
  CHECK(assumes(of(experts, "h100-sxm-x4 --dispatcher hybridep"), nics));
  CHECK_FALSE(assumes(of(experts, "dgx-h100"), nics));
  CHECK_FALSE(assumes(of(experts, "aws-p5"), nics));
  CHECK_FALSE(assumes(of(experts, "h100-nvl"), nics));  // bridges: neither runs there
  const Json dense = predicted(sandbox, published("qwen3-4b"), "--cluster h100-sxm-x4");
  CHECK_FALSE(assumes(dense, nics));
}

TEST_CASE("a plan file keeps the modules, and another framework leaves them out") {
  const Sandbox sandbox;
  sandbox.write("config.json", published("glm-4.5-air").dump());
  const std::string made = "predict --model config.json --gpus 64 --ep 8 -q -o plan.json";
  REQUIRE(sandbox.plan(made).exit_code <= 1);
  const auto again = [&](const std::string& flags) {
    return Json::parse(sandbox.plan("predict plan.json --json " + flags).out);
  };
  CHECK_FALSE(assumes(again(""), "trains without"));
  CHECK(step(again("--framework torchtitan --zero 3")) > 0);
  CHECK(assumes(again("--framework torchtitan --zero 3"), "torchtitan trains without"));
}

TEST_CASE("plan models shows one model as it was read, from the catalog or from a file") {
  const Sandbox sandbox;
  const ProcessResult named = sandbox.plan("models deepseek-v3");
  CHECK(named.exit_code == 0);
  for (const char* part :
       {"671 B parameters", "61: 58 with experts", "256, of which a token visits 8, 2,048 wide",
        "128 heads of 128 + 64 rotary, values of 128", "routed experts", "653,908,770,816",
        "latent of keys and values 512, of queries"}) {
    INFO(named.out);
    CHECK(named.out.find(part) != std::string::npos);
  }
  Json config = published("qwen2.5-7b-vl");
  config["embedding_multiplicator"] = 3;
  sandbox.write("config.json", config.dump());
  const ProcessResult file = sandbox.plan("models config.json --json");
  REQUIRE(file.exit_code == 0);
  const Json shown = Json::parse(file.out);
  CHECK(shown.at("parameters") == 7'615'616'512);
  CHECK(shown.at("active_parameters") == shown.at("parameters"));
  INFO(shown.at("remarks").dump(1));
  CHECK(shown.at("remarks").dump().find("embedding_multiplicator") != std::string::npos);
  CHECK(shown.at("remarks").dump().find("vision_config") != std::string::npos);
  // 6 for each parameter in a product, 12 L h T for attention.
  const double products = 6.0 * (7'615'616'512.0 - 152'064.0 * 3584);
  const double scores = 12.0 * 28 * 3584 * 8192;
  CHECK(shown.at("model_flops_per_token").at("all_scores").get<double>() ==
        Approx(products + scores).epsilon(1e-3));
  CHECK(shown.at("model_flops_per_token").at("causal").get<double>() ==
        Approx(products + scores / 2).epsilon(1e-3));
  // What it shows as the model is a model file.
  sandbox.write("mine.json", shown.at("model").dump());
  CHECK(Json::parse(sandbox.plan("models mine.json --json").out).at("parameters") ==
        shown.at("parameters"));

  const ProcessResult wrong = sandbox.plan("models qwen9-8b");
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("unknown model 'qwen9-8b'") != std::string::npos);
  CHECK(sandbox.plan("models 7b 13b").exit_code == 2);
}
