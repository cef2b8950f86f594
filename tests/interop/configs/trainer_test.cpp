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
  const auto knows = [&](const ConfigField& field) {
    return std::ranges::find(read->findings, field, &ConfigFinding::field) != read->findings.end();
  };
  CHECK_FALSE(knows(plan_part<&ParallelPlan::zero>));
  CHECK_FALSE(knows(plan_part<&ParallelPlan::overlap_dp>));  // whose default depends on the stage
  const Result<ImportedConfig> given = import_config({{"train.sh", kAlpaca}}, {.zero = 3});
  REQUIRE(given);
  CHECK_FALSE(asks_for(*given, "--zero"));
  CHECK(given->config.plan.overlap_dp);
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

constexpr const char* kTrl =
    "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nper_device_train_batch_size: 2\n"
    "gradient_accumulation_steps: 8\nbf16: true\nmax_length: 4096\n";

/// What the file says of adapters and weights: "16:linear_qkv nf4", "? none" where it is asked.
std::string trained_in(const std::string& settings) {
  const Result<ImportedConfig> read = trainer("trl.yaml", kTrl + settings);
  REQUIRE(read);
  return (asks_for(*read, "--lora") ? "?" : read->config.adapters) + " " +
         (asks_for(*read, "--quantized-weights") ? "?" : read->config.quantized);
}

// Source: TRL f2cd5771, trl/trainer/model_config.py; PEFT 5d602fdb, src/peft/utils/constants.py;
// LLaMA-Factory ff6d4d12e, src/llamafactory/hparams/finetuning_args.py and model_args.py.
TEST_CASE("adapters and weights in 4 bits are read as trainers state them") {
  CHECK(trained_in("") == "none none");
  CHECK(trained_in("use_peft: false\nlora_r: 32\nload_in_4bit: false\n") == "none none");
  CHECK(trained_in("use_peft: true\n") == "16:linear_qkv none");  // defaults of TRL and PEFT
  CHECK(trained_in("use_peft: true\nlora_r: 32\nlora_target_modules: all-linear\n") ==
        "32:linear_qkv,linear_proj,linear_fc1,linear_fc2 none");
  CHECK(trained_in("use_peft: true\nlora_target_modules: [o_proj, down_proj]\n") ==
        "16:linear_proj,linear_fc2 none");
  CHECK(trained_in("use_peft: true\nlora_target_modules: [q_proj, router]\n") == "? none");
  CHECK(trained_in("lora_r: 8\n") == "? none");  // TRL would train all
  const std::string lora = "use_peft: true\nload_in_4bit: true\n";
  CHECK(trained_in(lora) == "16:linear_qkv nf4");
  CHECK(trained_in(lora + "use_bnb_nested_quant: true\n") == "16:linear_qkv nf4:double-quant");
  CHECK(trained_in(lora + "bnb_4bit_quant_type: fp4\n") == "16:linear_qkv ?");
  const Result<ImportedConfig> part = trainer(
      "trl.yaml", std::string(kTrl) +
                      "use_peft: true\nlora_target_modules: [q_proj, v_proj]\nuse_dora: true\n");
  REQUIRE(part);
  CHECK(part->config.adapters == "16:linear_qkv");
  const auto unpriced = [&](const std::string& text) {
    return std::ranges::any_of(part->unpriced, [&](const std::string& each) {
      return each.find(text) != std::string::npos;
    });
  };
  CHECK(unpriced("without k_proj: priced is linear_qkv"));
  CHECK(unpriced("use_dora"));
}

TEST_CASE("command lines state adapters with commas, with blanks, and LLaMA-Factory's names") {
  const auto read = [](const std::string& options) {
    const Result<ImportedConfig> config = trainer(
        "train.sh",
        "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf "
        "--bf16 True --per_device_train_batch_size 1 --gradient_accumulation_steps 2 "
        "--max_length 2048 " +
            options + "\n");
    REQUIRE(config);
    return config->config.adapters + " " + config->config.quantized;
  };
  CHECK(read("--use_peft --lora_r 64 --lora_alpha 16 --lora_target_modules q_proj k_proj v_proj") ==
        "64:linear_qkv none");
  CHECK(read("--use_peft True --lora_r 8 --lora_target_modules q_proj,o_proj --load_in_4bit True "
             "--use_bnb_nested_quant True") == "8:linear_qkv,linear_proj nf4:double-quant");
  CHECK(read("--use_peft_lora True --lora_r 8 --lora_target_modules all-linear "
             "--use_4bit_quantization True --use_nested_quant False") ==
        "8:linear_qkv,linear_proj,linear_fc1,linear_fc2 nf4");
  CHECK(read("--finetuning_type lora --quantization_bit 4") ==
        "8:linear_qkv,linear_proj,linear_fc1,linear_fc2 nf4:double-quant");
  CHECK(read("--finetuning_type lora --lora_rank 16 --lora_target q_proj,v_proj "
             "--quantization_bit 4 --double_quantization false") == "16:linear_qkv nf4");
  CHECK(read("--finetuning_type full") == "none none");
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
