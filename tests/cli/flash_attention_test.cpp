// Flash attention by the format, the heads and the GPUs of a job.
#include <string>

#include "tests/cli/program.hpp"

namespace echelon::test {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::string& arguments) {
  const ProcessResult ran = Sandbox().plan(arguments + " --json");
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code <= 1);
  return Json::parse(ran.out);
}

bool is_assumed_in(const Json& answer, const std::string& part) {
  return answer.at("assumptions").dump().find(part) != std::string::npos;
}

const std::string kFlash = "\"flash attention (--no-flash-attention)";
const std::string kFlashJob = "predict --model llama3-8b --gpus 8 --seq 8192 --tp 4 ";
const std::string kFp32 = kFlashJob + "--precision fp32 ";

TEST_CASE("fp32 is planned with the scores that no kernel of TransformerEngine avoids") {
  const Json megatron = json_of(kFp32 + "--zero 1");
  CHECK_FALSE(is_assumed_in(megatron, kFlash));
  CHECK(is_assumed_in(megatron,
                      "no flash attention, because megatron-core has none in fp32: its kernels"));
  CHECK(megatron.at("memory") == json_of(kFp32 + "--zero 1 --no-flash-attention").at("memory"));
  CHECK_FALSE(megatron.at("fits"));
  CHECK(is_assumed_in(json_of(kFp32 + "--zero 3 --framework torchtitan"), kFlash));
  CHECK(is_assumed_in(json_of(kFlashJob + "--zero 1"), kFlash));
}

TEST_CASE("flash attention that a framework lacks is refused with what it has") {
  const std::string told = complaint(Sandbox().plan(kFp32 + "--flash-attention"), 2);
  for (const char* words : {"--flash-attention: flash attention with megatron-core, which has none "
                            "in fp32: its kernels take bf16 and fp16",
                            "--no-flash-attention", "--framework torchtitan"}) {
    CHECK(lacks(told, words) == "");
  }
  const std::string wide = complaint(
      Sandbox().plan("predict --model gemma-2b --cluster rtx-4090 --gpus 8 --flash-attention"), 2);
  CHECK(lacks(wide, "none for heads of 256 on compute capability 8.9") == "");
  const std::string only =
      complaint(Sandbox().plan("predict --model qwen2-0.5b --seq 1024 --gpus 8 --framework "
                               "nanotron --precision fp32"),
                2);
  CHECK(lacks(only, "nanotron on H100-SXM5-80GB, where it has no attention") == "");
  CHECK(lacks(only, "none in fp32") == "");
}

TEST_CASE("a search has no context parallelism where heads are too wide for the GPU's kernels") {
  const std::string job = "--gpus 8 --seq 8192 --global-batch 64 --top 20 ";
  const Json consumer = json_of("--model gemma-2b --cluster rtx-4090 " + job);
  CHECK_FALSE(consumer.at("request").at("flash_attention"));
  REQUIRE_FALSE(consumer.at("candidates").empty());
  for (const Json& each : consumer.at("candidates")) CHECK(each.at("plan").at("cp") == 1);
  const std::string refused = complaint(
      Sandbox().plan("predict --model gemma3-12b --cluster l40s --gpus 16 --seq 8192 --cp 2"), 2);
  CHECK(lacks(refused, "context parallelism (cp 2) without flash attention") == "");
  CHECK(is_assumed_in(json_of("predict --model gemma3-12b --cluster l40s --gpus 16 --seq 8192 "
                              "--zero 3 --framework torchtitan"),
                      kFlash));
  CHECK(is_assumed_in(json_of("predict --model gemma-2b --cluster dgx-h100 --gpus 8 --cp 2"),
                      kFlash));
}

TEST_CASE("a plan file that says flash attention is refused in a format without it") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan("predict --model llama3-8b --gpus 8 --tp 4 -o plan.json").exit_code <= 1);
  const std::string told = complaint(sandbox.plan("predict plan.json --precision fp32"), 2);
  CHECK(lacks(told, "the plan file: flash attention with megatron-core") == "");
  CHECK(lacks(told, "--no-flash-attention") == "");
  CHECK(sandbox.plan("predict plan.json --precision fp32 --no-flash-attention").exit_code <= 1);
}

TEST_CASE("a script in fp32 that leaves attention open is read without flash attention") {
  const Sandbox sandbox;
  std::string script =
      slurp(std::string(ECHELON_SOURCE_DIR) + "/tests/fuzz/corpus/config_script/llama3-8b.sh");
  REQUIRE(script.find("--bf16") != std::string::npos);
  script.erase(script.find("--bf16"), 6);
  sandbox.write("train.sh", script);
  const Json open = document(sandbox.plan("predict --from train.sh --json"));
  CHECK(is_assumed_in(open, "no flash attention, because megatron-core has none in fp32"));
  sandbox.write("train.sh",
                script.insert(script.find("--seq-length"), "--attention-backend flash "));
  const std::string told = complaint(sandbox.plan("predict --from train.sh"), 2);
  CHECK(lacks(told, "--attention-backend: flash attention with megatron-core") == "");
}

TEST_CASE("an export says that flash attention is lost only where the framework would take it") {
  const Sandbox sandbox;
  const auto exported = [&](const std::string& flags) {
    return sandbox
        .plan("export megatron-bridge --model llama3-8b --gpus 8 --seq 8192 --tp 4 " + flags)
        .out;
  };
  const char* lost = "flash attention false: Megatron-Bridge would run true";
  CHECK(lacks(exported("--precision fp32"), lost) != "");
  CHECK(lacks(exported("--no-flash-attention"), lost) == "");
}

TEST_CASE("fp32 with flash attention in LLM Foundry needs a model of HuggingFace's") {
  const std::string told =
      Sandbox().plan("predict --model 7b --gpus 8 --framework llm-foundry --precision fp32").out;
  CHECK(lacks(told, "attn_implementation sdpa") == "");
}

}  // namespace
}  // namespace echelon::test
