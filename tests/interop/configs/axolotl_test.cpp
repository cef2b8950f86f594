// axolotl's training files: what is read of them, and what is refused.
#include <algorithm>
#include <string>
#include <vector>

#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

constexpr const char* kAxolotlJob =
    "base_model: NousResearch/Meta-Llama-3-8B\ndatasets:\n  - path: mine\n    type: alpaca\n"
    "sequence_len: 4096\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n"
    "optimizer: adamw_torch_fused\nlearning_rate: 0.0002\n";

Result<ImportedConfig> axolotl(const std::string& settings,
                               const std::vector<ConfigText>& others = {}) {
  GivenRun given;
  given.gpus = 8;
  std::vector<ConfigText> texts = {{"fft.yaml", kAxolotlJob + settings}};
  texts.insert(texts.end(), others.begin(), others.end());
  return import_config(texts, given);
}

ImportedConfig read_axolotl(const std::string& settings,
                            const std::vector<ConfigText>& others = {}) {
  const Result<ImportedConfig> read = axolotl(settings, others);
  INFO((read ? "" : read.error().message()));
  REQUIRE(read);
  return *read;
}

std::string refusal_of_axolotl(const std::string& settings) {
  const Result<ImportedConfig> read = axolotl(settings);
  return read ? "no error" : read.error().message();
}

bool notes(const ImportedConfig& config, const std::string& text) {
  return std::ranges::any_of(config.unpriced, [&](const std::string& each) {
    return each.find(text) != std::string::npos;
  });
}

bool mentions(const std::string& message, const std::string& text) {
  return message.find(text) != std::string::npos;
}

TEST_CASE("axolotl's file and its defaults are read") {
  const ImportedConfig read = read_axolotl("");
  CHECK(read.format->name == "axolotl");
  CHECK(read.asks.empty());
  CHECK(read.config.model.name == "llama3-8b");
  CHECK(read.config.sequence == 4096);
  CHECK(read.config.plan.microbatch == 2);
  CHECK(read.config.global_batch == 2 * 4 * 8);
  CHECK(read.config.framework == "torchtitan");  // DDP
  CHECK(read.config.plan.zero == 0);
  CHECK(read.config.precision == "bf16:pure");  // bf16: auto; weights are loaded in bf16
  CHECK(read.config.plan.recompute == Recompute::none);
  CHECK(read.config.adapters == "none");
  CHECK(read.config.flash_attention);
  CHECK(notes(read, "sample_packing is not on"));
  CHECK(read_axolotl("base_model: someone/Qwen3-8B-tuned\n").asks.size() == 1);
  CHECK(read_axolotl("base_model: someone/8b\n").asks.size() == 1);
  const ImportedConfig silent =
      *import_config({{"a.yml", "base_model: meta-llama/Meta-Llama-3-8B\n"}}, {.gpus = 2});
  CHECK(silent.config.sequence == 512);
  CHECK(import_config({{"a.yml", "base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 16_384\n"}},
                      {.gpus = 2})
            ->config.sequence == 16'384);  // as YAML 1.1 writes numbers
  CHECK(silent.config.global_batch == 2);
  const ImportedConfig batch = *import_config(
      {{"a.yml", "base_model: meta-llama/Meta-Llama-3-8B\nmicro_batch_size: 2\nbatch_size: 8\n"}},
      {.gpus = 2});
  CHECK(batch.config.global_batch == 16);
}

TEST_CASE("axolotl's precision, recomputation, attention and packing are read") {
  CHECK(read_axolotl("bf16: false\n").config.precision == "fp32");
  CHECK(read_axolotl("bf16: false\nfp16: true\n").config.precision == "fp16:adam-fp32-master");
  CHECK(read_axolotl("bf16: full\n").config.precision == "bf16:pure");
  CHECK(read_axolotl("adapter: lora\nlora_r: 8\nlora_target_linear: true\n").config.precision ==
        "bf16:fsdp-fp32-shards");
  for (const char* on : {"true", "offload"}) {
    CHECK(read_axolotl(std::string("gradient_checkpointing: ") + on + "\n").config.plan.recompute ==
          Recompute::full);
  }
  CHECK_FALSE(read_axolotl("attn_implementation: eager\n").config.flash_attention);
  CHECK_FALSE(read_axolotl("eager_attention: true\n").config.flash_attention);
  CHECK(read_axolotl("flash_attention: true\n").config.flash_attention);
  CHECK(
      read_axolotl("attn_implementation: kernels-community/flash-attn3\n").config.flash_attention);
  const ImportedConfig packed = read_axolotl("sample_packing: true\n");
  CHECK(packed.config.packed_documents);
  CHECK_FALSE(notes(packed, "sample_packing"));
  const ImportedConfig liger = read_axolotl(
      "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
      "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
      "liger_rms_norm: true\nliger_glu_activation: true\n");
  CHECK(liger.config.layer_code == "liger");
  CHECK(notes(liger, "liger_rope is not on"));
  CHECK(notes(liger, "CutCrossEntropyPlugin"));
  const ImportedConfig offloads =
      read_axolotl("gradient_checkpointing: true\nactivation_offloading: true\n");
  CHECK(notes(offloads, "activation_offloading = true"));
  CHECK(offloads.unpriced_savings == std::vector<std::string>{"the offload of activations"});
}

TEST_CASE("axolotl's adapters and weights in 4 bits are read") {
  const auto trained = [](const std::string& settings) {
    const ImportedConfig read = read_axolotl(settings);
    const bool asked = std::ranges::any_of(read.asks, [](const std::string& each) {
      return each.starts_with("--lora") || each.starts_with("--quantized-weights");
    });
    return (asked ? "?" : "") + read.config.adapters + " " + read.config.quantized;
  };
  const std::string all = ":linear_qkv,linear_proj,linear_fc1,linear_fc2";
  CHECK(trained("adapter: lora\nlora_r: 32\nlora_target_linear: true\n") == "32" + all + " none");
  CHECK(trained("adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_target_linear: true\n") ==
        "16" + all + " nf4:double-quant");
  CHECK(trained("adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_target_linear: true\n"
                "bnb_config_kwargs:\n  bnb_4bit_use_double_quant: false\n") == "16" + all + " nf4");
  // Weights are quantised with qlora alone.
  CHECK(trained("adapter: lora\nload_in_4bit: true\nlora_r: 16\nlora_target_linear: true\n") ==
        "16" + all + " none");
  CHECK(trained("adapter:\nlora_r: 16\n") == "none none");
  CHECK(trained("adapter: lora\nlora_target_linear: true\n").front() == '?');  // no lora_r
  const std::string rank = "adapter: lora\nlora_r: 8\nlora_target_modules:";
  CHECK(trained(rank + "\n  - q_proj\n  - self_attn.k_proj\n  - v_proj\n") == "8:linear_qkv none");
  CHECK(trained(rank + " 'model.layers.[\\d]+.(mlp|self_attn).(up|down|gate|q|k|v|o)_proj'\n") ==
        "8" + all + " none");
  CHECK(trained(rank + " '.*\\.self_attn\\.(q|k|v)_proj|.*\\.mlp\\.down_proj'\n") ==
        "8:linear_qkv,linear_fc2 none");
  CHECK(trained(rank + " 'model.layers.(3|7).self_attn.(q|k|v)_proj'\n").front() == '?');
  CHECK(trained(rank + "\n  - shared_expert.up_proj\n").front() == '?');
  CHECK(notes(read_axolotl(rank + "\n  - q_proj\n  - v_proj\n  - up_proj\n"),
              "without gate_proj: priced is linear_fc1"));
  CHECK(notes(
      read_axolotl("adapter: lora\nlora_r: 8\nload_in_8bit: true\nlora_target_linear: true\n"),
      "load_in_8bit"));
  CHECK(mentions(refusal_of_axolotl("adapter: llama-adapter\n"), "lora or qlora"));
}

TEST_CASE("axolotl's FSDP, DeepSpeed and degrees are read") {
  const std::string fsdp2 =
      "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
      "  activation_checkpointing: true\n  offload_params: true\n";
  const ImportedConfig read = read_axolotl(fsdp2);
  CHECK(read.config.framework == "torchtitan");
  CHECK(read.config.plan.zero == 3);
  CHECK(read.config.plan.recompute == Recompute::full);
  CHECK(read.config.precision == "bf16:fsdp-fp32-shards");
  CHECK(notes(read, "fsdp_config.offload_params"));
  const ImportedConfig version1 = read_axolotl(
      "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: false\n");
  CHECK(version1.config.framework == "llm-foundry");
  CHECK(version1.config.plan.zero == 3);
  const ImportedConfig split =
      read_axolotl(fsdp2 + "dp_shard_size: 2\ntensor_parallel_size: 2\ncontext_parallel_size: 1\n");
  CHECK(split.config.plan.tp == 2);
  CHECK(split.config.plan.dp == 4);
  CHECK(split.config.plan.shard_group == 2);
  CHECK(notes(split, "tensor_parallel_size"));
  const ImportedConfig ring =
      read_axolotl(fsdp2 + "context_parallel_size: 4\nsample_packing: true\n");
  CHECK(ring.config.plan.cp == 4);
  CHECK(ring.config.plan.dp == 2);
  CHECK(ring.config.global_batch == 2 * 4 * 2);
  CHECK(notes(ring, "context_parallel_size"));
  const std::string zero2 = R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2,
      "offload_optimizer": {"device": "cpu"}}, "gradient_accumulation_steps": "auto"})";
  const ImportedConfig deepspeed = read_axolotl("deepspeed: zero2.json\n", {{"zero2.json", zero2}});
  CHECK(deepspeed.config.framework == "deepspeed");
  CHECK(deepspeed.config.plan.zero == 2);
  CHECK(deepspeed.config.plan.offload_optimizer == 1);
  CHECK(deepspeed.config.precision == "bf16:deepspeed-zero");
  CHECK(deepspeed.config.global_batch == 64);
  const ImportedConfig within =
      read_axolotl("deepspeed:\n  zero_optimization:\n    stage: 1\ntensor_parallel_size: 2\n");
  CHECK(within.config.framework == "deepspeed");
  CHECK(within.config.plan.zero == 1);
  CHECK(within.config.plan.tp == 2);
}

TEST_CASE("what axolotl trains without a price is refused by name, and wrong values with a place") {
  CHECK(mentions(refusal_of_axolotl("rl: dpo\n"), "fft.yaml line 10"));
  CHECK(mentions(refusal_of_axolotl("rl: dpo\n"), "rl = dpo"));
  CHECK(mentions(refusal_of_axolotl("reward_model: true\n"), "a reward model"));
  CHECK(refusal_of_axolotl("reward_model: false\nrl:\n") == "no error");
  CHECK(mentions(refusal_of_axolotl("unfrozen_parameters:\n  - ^lm_head\n"), "a part of"));
  CHECK(mentions(refusal_of_axolotl("expert_parallel_size: 4\n"), "--ep N"));
  CHECK(refusal_of_axolotl("expert_parallel_size: 1\n") == "no error");
  CHECK(mentions(refusal_of_axolotl("attn_implementation: flash\n"), "flash_attention_2"));
  CHECK(mentions(refusal_of_axolotl("sample_packing: sometimes\n"), "true or false"));
  CHECK(mentions(refusal_of_axolotl("gradient_checkpointing: [1, 2]x\n"), "fft.yaml line 10"));
  CHECK(mentions(refusal_of_axolotl("context_paralell_size: 2\n"),
                 "did you mean 'context_parallel_size'"));
  CHECK(mentions(refusal_of_axolotl("context_parallel_size: 2\n"), "2 under DDP"));
  CHECK(mentions(refusal_of_axolotl("tensor_parallel_size: 2\n"), "with FSDP or DeepSpeed"));
  CHECK(mentions(refusal_of_axolotl("context_parallel_size: 3\nfsdp_config:\n"
                                    "  offload_params: false\n"),
                 "tp x cp x pp"));
  CHECK(mentions(refusal_of_axolotl("context_parallel_size: 2\ndeepspeed:\n  zero_optimization:\n"
                                    "    stage: 3\n"),
                 "ring attention under DeepSpeed"));
  CHECK(mentions(refusal_of_axolotl("fsdp_version: 3\nfsdp_config:\n  offload_params: false\n"),
                 "one of 1, 2"));
}

}  // namespace
}  // namespace echelon
