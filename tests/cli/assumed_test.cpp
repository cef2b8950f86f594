// Defaults that depend on the model, the GPUs and the format, and what is said of them.
#include <string>

#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;
using echelon::test::Sandbox;

namespace {

using Json = nlohmann::ordered_json;

Json answer_to(const std::string& flags) {
  const ProcessResult ran = Sandbox().plan("predict --json " + flags);
  INFO(ran.err);
  REQUIRE(ran.exit_code <= 1);
  return Json::parse(ran.out);
}

bool assumes(const Json& answer, const std::string& part) {
  return answer.at("assumptions").dump().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "the default batch is near 4 Mi tokens and the whole number of GPUs divides it if it can") {
  for (const auto& [gpus, samples] :
       {std::pair(64, 1024), {288, 1152}, {1152, 1152}, {48, 1008}, {24, 1032}}) {
    const Json answer = answer_to("--model qwen3-0.6b --cluster dgx-h100 --seq 4096 --gpus " +
                                  std::to_string(gpus));
    CAPTURE(gpus);
    CHECK(answer.at("global_batch") == samples);
  }
}

TEST_CASE("equal loads of experts are an assumption of models that have some") {
  CHECK(assumes(answer_to("--model mixtral-8x7b --gpus 64 --ep 8"), "equal loads"));
  CHECK_FALSE(assumes(answer_to("--model mixtral-8x7b --gpus 64 --ep 8 --expert-imbalance 1.2"),
                      "equal loads"));
  CHECK_FALSE(assumes(answer_to("--model 7b --gpus 64"), "equal loads"));
}

TEST_CASE("the name of a format says which recipe it stands for and how to try the others") {
  const std::string job = "--model 7b --gpus 8 --precision ";
  CHECK(assumes(answer_to(job + "fp8"), "fp8 is fp8:adam-fp32-master, delayed scaling"));
  CHECK(assumes(answer_to(job + "fp8"), "--precision fp8:any"));
  CHECK_FALSE(assumes(answer_to(job + "fp8:bf16-gradients"), "fp8:any"));
  CHECK_FALSE(assumes(answer_to(job + "fp8 --framework torchtitan"), "fp8:any"));
  CHECK_FALSE(assumes(answer_to(job + "bf16"), "bf16:any"));
}

TEST_CASE("MFU is told as Megatron-LM logs it, too, where that differs") {
  const auto told = [](const std::string& flags) {
    return Sandbox().plan("predict " + flags).out.find("counts causal scores alone") !=
           std::string::npos;
  };
  CHECK(told("--model llama3-8b --gpus 64 --seq 131072 --global-batch 64 --cp 8"));
  CHECK_FALSE(told("--model 7b --gpus 64 --seq 1024"));
  const Json answer =
      answer_to("--model llama3-8b --gpus 64 --seq 131072 --global-batch 64 --cp 8");
  // Of Llama 3 8B 6·(8.03e9 − 0.53e9) of matrices, and 12·32·4096·131072 of scores, of which half.
  const double matrices = 6 * (8030261248.0 - 128256.0 * 4096);
  const double scores = 12.0 * 32 * 4096 * 131072;
  const Json& throughput = answer.at("throughput");
  CHECK(throughput.at("mfu_causal").get<double>() / throughput.at("mfu").get<double>() ==
        Approx((matrices + scores / 2) / (matrices + scores)).epsilon(1e-4));
}

TEST_CASE("what Megatron-LM's options cannot say of a model is told, where it is trained by them") {
  const std::string job = " --gpus 64 --seq 1024 --global-batch 64";
  CHECK(assumes(answer_to("--model command-a" + job), "parallel attention and MLP"));
  CHECK_FALSE(assumes(answer_to("--model llama3-8b" + job), "Megatron-LM's options"));
  CHECK_FALSE(assumes(answer_to("--model gpt2" + job), "Megatron-LM's options"));
  CHECK_FALSE(assumes(answer_to("--model gemma3-4b --framework torchtitan" + job),
                      "Megatron-LM's options"));
}
