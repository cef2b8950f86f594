// LLaMA-Factory's training files: what is read of them, and what is refused.
#include <algorithm>
#include <string>
#include <vector>

#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

constexpr const char* kJob =
    "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ndo_train: true\ndataset: mine\n"
    "template: qwen3\noutput_dir: saves/a\nper_device_train_batch_size: 2\n"
    "gradient_accumulation_steps: 4\nlearning_rate: 1.0e-5\nbf16: true\n";

/// As published next to the examples: all that the trainer's arguments state is left to them.
constexpr const char* kZero3 =
    R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto", "fp16": {"enabled": "auto"},
        "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "overlap_comm": false}})";

Result<ImportedConfig> factory(const std::string& settings,
                               const std::vector<ConfigText>& others = {}) {
  GivenRun given;
  given.gpus = 8;
  std::vector<ConfigText> texts = {{"sft.yaml", kJob + settings}};
  texts.insert(texts.end(), others.begin(), others.end());
  return import_config(texts, given);
}

ImportedConfig read_factory(const std::string& settings,
                            const std::vector<ConfigText>& others = {}) {
  const Result<ImportedConfig> read = factory(settings, others);
  INFO((read ? "" : read.error().message()));
  REQUIRE(read);
  return *read;
}

std::string refusal_of_factory(const std::string& settings,
                               const std::vector<ConfigText>& others = {}) {
  const Result<ImportedConfig> read = factory(settings, others);
  return read ? "no error" : read.error().message();
}

bool has_note(const ImportedConfig& config, const std::string& text) {
  return std::ranges::any_of(config.unpriced, [&](const std::string& each) {
    return each.find(text) != std::string::npos;
  });
}

bool names(const std::string& message, const std::string& text) {
  return message.find(text) != std::string::npos;
}

TEST_CASE("LLaMA-Factory trains all parameters under DeepSpeed as its two files state") {
  const ImportedConfig read = read_factory(
      "finetuning_type: full\ncutoff_len: 4096\ndeepspeed: ds_z3.json\n", {{"ds_z3.json", kZero3}});
  CHECK(read.format->name == "llama-factory");
  CHECK(read.asks.empty());
  CHECK(read.config.framework == "deepspeed");
  CHECK(read.config.model.name == "qwen3-8b");
  CHECK(read.config.sequence == 4096);
  CHECK(read.config.plan.microbatch == 2);
  CHECK(read.config.global_batch == 2 * 4 * 8);  // "auto" of the JSON is what the YAML states
  CHECK(read.config.precision == "bf16:deepspeed-zero");
  CHECK(read.config.plan.zero == 3);
  CHECK_FALSE(read.config.plan.overlap_dp);
  CHECK(read.config.plan.recompute == Recompute::full);  // on unless it is switched off
  CHECK(read.config.adapters == "none");
  CHECK(read.config.layer_code == "transformers");
}

TEST_CASE("LLaMA-Factory's defaults are read where its file is silent") {
  const ImportedConfig read = read_factory("cutoff_len: 1024\n");
  CHECK(read.config.framework == "torchtitan");  // DDP
  CHECK(read.config.plan.zero == 0);
  CHECK(read.config.adapters == "8:linear_qkv,linear_proj,linear_fc1,linear_fc2");
  CHECK(read.config.quantized == "none");
  CHECK(read.config.precision == "bf16:fsdp-fp32-shards");
  CHECK(read.config.flash_attention);
  const ImportedConfig silent = *import_config(
      {{"sft.yaml", "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\n"}}, {.gpus = 8});
  CHECK(silent.config.sequence == 2048);
  CHECK(silent.config.plan.microbatch == 8);
  CHECK(silent.config.global_batch == 64);
  CHECK(silent.config.precision == "fp32");
}

TEST_CASE("LLaMA-Factory's switches of precision, recomputation, attention and kernels are read") {
  const std::string full = "finetuning_type: full\n";
  CHECK(read_factory(full + "pure_bf16: true\n").config.precision == "bf16:pure");
  CHECK(read_factory(full + "disable_gradient_checkpointing: true\n").config.plan.recompute ==
        Recompute::none);
  CHECK_FALSE(read_factory(full + "flash_attn: disabled\n").config.flash_attention);
  CHECK(read_factory(full + "flash_attn: auto\n").config.flash_attention);
  CHECK(read_factory(full + "enable_liger_kernel: true\n").config.layer_code == "liger");
  CHECK(read_factory(full + "neat_packing: true\n").config.packed_documents);
  CHECK(has_note(read_factory(full), "packing is not on"));
  CHECK_FALSE(has_note(read_factory(full + "packing: true\n"), "packing is not on"));
  CHECK(has_note(read_factory(full + "optim: adamw_8bit\n"), "optim = adamw_8bit"));
  CHECK(has_note(read_factory(full + "use_galore: true\n"), "use_galore"));
  const ImportedConfig half = *import_config(
      {{"sft.yaml", "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\nfp16: true\n"}},
      {.gpus = 8});
  CHECK(half.config.precision == "fp16:adam-fp32-master");
  CHECK(half.config.framework == "llm-foundry");  // torchtitan scales no loss
}

TEST_CASE("LLaMA-Factory's adapters and weights in 4 bits are read") {
  const auto trained = [](const std::string& settings) {
    const ImportedConfig read = read_factory("finetuning_type: lora\n" + settings);
    const bool asked = std::ranges::any_of(read.asks, [](const std::string& each) {
      return each.starts_with("--lora") || each.starts_with("--quantized-weights");
    });
    return (asked ? "?" : "") + read.config.adapters + " " + read.config.quantized;
  };
  CHECK(trained("lora_rank: 16\nlora_target: q_proj,v_proj\n") == "16:linear_qkv none");
  CHECK(trained("lora_target: all\nquantization_bit: 4\n") ==
        "8:linear_qkv,linear_proj,linear_fc1,linear_fc2 nf4:double-quant");
  CHECK(trained("quantization_bit: 4\nquantization_method: bnb\ndouble_quantization: false\n") ==
        "8:linear_qkv,linear_proj,linear_fc1,linear_fc2 nf4");
  CHECK(trained("quantization_bit: 4\nquantization_method: hqq\n").front() == '?');
  CHECK(trained("lora_target: router\n").front() == '?');
}

TEST_CASE("LLaMA-Factory's FSDP is its argument's, or that of accelerate's file") {
  const ImportedConfig argument =
      read_factory("finetuning_type: full\nfsdp:\n  - full_shard\n  - auto_wrap\n");
  CHECK(argument.config.framework == "llm-foundry");  // FSDP of version 1
  CHECK(argument.config.plan.zero == 3);
  CHECK(read_factory("finetuning_type: full\nfsdp: shard_grad_op auto_wrap\n").config.plan.zero ==
        2);
  const std::string accelerate =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n"
      "  fsdp_reshard_after_forward: true\nmixed_precision: bf16\nnum_processes: 2\n";
  const Result<ImportedConfig> both = import_config(
      {{"fsdp2.yaml", accelerate}, {"sft.yaml", std::string(kJob) + "cutoff_len: 512\n"}}, {});
  REQUIRE(both);
  CHECK(both->format->name == "llama-factory");
  CHECK(both->config.framework == "torchtitan");
  CHECK(both->config.gpus == 2);
  CHECK(both->config.plan.zero == 3);
  CHECK(has_note(*both, "fsdp_offload_params"));
}

TEST_CASE("LLaMA-Factory's command line is read as its file") {
  const Result<ImportedConfig> read = import_config(
      {{"train.sh",
        "llamafactory-cli train --model_name_or_path Qwen/Qwen3-8B --stage sft --do_train \\\n"
        "  --finetuning_type lora --lora_rank 8 --lora_target all --cutoff_len 2048 \\\n"
        "  --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --bf16\n"}},
      {.gpus = 4});
  REQUIRE(read);
  CHECK(read->format->name == "llama-factory");
  CHECK(read->asks.empty());
  CHECK(read->config.sequence == 2048);
  CHECK(read->config.global_batch == 32);
  CHECK(read->config.precision == "bf16:fsdp-fp32-shards");
}

TEST_CASE("stages and programs of LLaMA-Factory that have no price are refused by name") {
  const auto staged = [](const std::string& stage) {
    std::string job = kJob;
    job.replace(job.find("stage: sft"), 10, "stage: " + stage);
    const Result<ImportedConfig> read =
        import_config({{"sft.yaml", job + "finetuning_type: lora\n"}}, {.gpus = 8});
    return read ? "no error" : read.error().message();
  };
  for (const char* stage : {"dpo", "ppo", "rm", "kto"}) {
    CHECK(names(staged(stage), "sft.yaml line 2"));
    CHECK(names(staged(stage), std::string("stage = ") + stage));
    CHECK(names(staged(stage), "pt or sft"));
  }
  CHECK(staged("pt") == "no error");
  CHECK(names(refusal_of_factory("finetuning_type: freeze\n"),
              "neither adapters of LoRA nor all parameters"));
  CHECK(names(refusal_of_factory("finetuning_type: lora\nuse_kt: true\n"), "KTransformers"));
  CHECK(names(refusal_of_factory("cutoff_len: 1\ntensor_model_parallel_size: 2\n"),
              "--framework megatron-core"));
  CHECK(names(refusal_of_factory("export_dir: merged\n"), "no training"));
  CHECK(names(refusal_of_factory("model_class: llm\n"), "USE_V1"));
}

TEST_CASE("wrong values of LLaMA-Factory's file have their place and what was expected") {
  CHECK(names(refusal_of_factory("cutoff_len: long\n"), "sft.yaml line 11"));
  CHECK(names(refusal_of_factory("cutoff_len: 1\ndisable_gradient_checkpointing: maybe\n"),
              "true or false"));
  CHECK(names(refusal_of_factory("cutoff_len: 1\nflash_attn: fa9\n"), "one of disabled, fa2"));
  CHECK(names(refusal_of_factory("finetuning_type: lora\nlora_rank: 0x\n"), "lora_rank"));
  CHECK(names(refusal_of_factory("finetuning_typ: lora\ncutoff_len: 1\n"),
              "did you mean 'finetuning_type'"));
  const std::string other =
      R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}})";
  CHECK(names(refusal_of_factory("finetuning_type: full\ndeepspeed: a.json\n", {{"a.json", other}}),
              "2, as sft.yaml line 7"));
  const std::string steps =
      R"({"gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}})";
  CHECK(names(refusal_of_factory("finetuning_type: full\ndeepspeed: a.json\n", {{"a.json", steps}}),
              "4, as sft.yaml line 8"));
  const ImportedConfig absent = read_factory("finetuning_type: full\ndeepspeed: a.json\n");
  CHECK(std::ranges::any_of(absent.asks, [](const std::string& each) {
    return each.starts_with("--zero: sft.yaml line 12: deepspeed names a.json");
  }));
}

}  // namespace
}  // namespace echelon
