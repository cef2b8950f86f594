// Scripts and files of HuggingFace's trainer: what is read, and what is asked for.
#include <algorithm>
#include <string>
#include <string_view>

#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

Result<ImportedConfig> trainer(const std::string& name, const std::string& text) {
  return import_config({{name, text}}, {});
}

bool asks_for(const ImportedConfig& config, const std::string& flag) {
  return std::ranges::any_of(config.asks,
                             [&](const std::string& each) { return each.starts_with(flag + ":"); });
}

/// As Stanford Alpaca's README starts its training, with DeepSpeed's launcher and a switch more.
constexpr const char* kAlpaca = R"(deepspeed --num_gpus 8 --num_nodes 2 train.py \
  --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 8 \
  --gradient_checkpointing True --max_seq_length 2048 --deepspeed ds.json
)";

TEST_CASE(
    "a script with HuggingFace's trainer names model, GPUs and switches, and DeepSpeed's file") {
  const Result<ImportedConfig> read = trainer("train.sh", kAlpaca);
  REQUIRE(read);
  CHECK(read->config.model.name == "llama2-7b");
  CHECK(read->config.gpus == 16);
  CHECK(read->config.sequence == 2048);
  CHECK(read->config.plan.recompute == Recompute::full);  // "True", as Python writes it
  CHECK(read->config.global_batch == 4 * 8 * 16);
  // Its stage of ZeRO is in the other file, not DeepSpeed's default.
  REQUIRE(asks_for(*read, "--zero"));
  CHECK(read->asks.front().find("names ds.json") != std::string::npos);
  const Result<ImportedConfig> both = import_config(
      {{"train.sh", kAlpaca},
       {"ds.json", R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})"}},
      {});
  REQUIRE(both);
  CHECK(both->asks.empty());
  CHECK(both->config.plan.zero == 3);
  std::string off = kAlpaca;
  off.replace(off.find("checkpointing True"), 18, "checkpointing False");
  CHECK(trainer("train.sh", off)->config.plan.recompute == Recompute::none);
}

TEST_CASE("a model that the catalog lacks is asked for by the name that the trainer has") {
  std::string other = kAlpaca;
  other.replace(other.find("meta-llama/Llama-2-7b-hf"), 24, "facebook/unknown-model-9b");
  const Result<ImportedConfig> read = trainer("train.sh", other);
  REQUIRE(read);
  REQUIRE(asks_for(*read, "--model"));
  CHECK(std::ranges::any_of(read->asks, [](const std::string& each) {
    return each.find("names facebook/unknown-model-9b, which is not in the catalog") !=
           std::string::npos;
  }));
}

TEST_CASE("adapters and weights in 4 bits are asked for, not left out of the price") {
  const std::string trl =
      "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nper_device_train_batch_size: 2\n"
      "gradient_accumulation_steps: 8\nbf16: true\nmax_length: 4096\n";
  const Result<ImportedConfig> lora =
      trainer("trl.yaml", trl + "use_peft: true\nlora_r: 32\nload_in_4bit: true\n");
  REQUIRE(lora);
  CHECK(lora->config.model.name == "qwen2-7b");
  CHECK(asks_for(*lora, "--lora"));
  CHECK(asks_for(*lora, "--quantized-weights"));
  const Result<ImportedConfig> full =
      trainer("trl.yaml", trl + "use_peft: false\nlora_r: 32\nload_in_4bit: false\n");
  REQUIRE(full);
  CHECK_FALSE(asks_for(*full, "--lora"));
  CHECK_FALSE(asks_for(*full, "--quantized-weights"));
}

TEST_CASE("HuggingFace's trainer with FSDP is not read as DeepSpeed without ZeRO") {
  const std::string script =
      "torchrun --nproc_per_node=4 train.py --model_name_or_path meta-llama/Llama-2-7b-hf "
      "--bf16 True --per_device_train_batch_size 4 --gradient_accumulation_steps 8 ";
  CHECK(trainer("train.sh", script + "--fsdp 'full_shard auto_wrap'\n")
            .error()
            .message()
            .find("plan predict --framework fsdp1") != std::string::npos);
  CHECK(trainer("train.sh", script + "--fsdp ''\n"));
  CHECK(trainer("train.sh", script + "\n")->config.gpus == 4);
}

}  // namespace
}  // namespace echelon
