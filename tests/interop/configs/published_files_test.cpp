// Configurations as their projects publish them, in their own spelling: what they train, and what
// an export must state for them to train it.
#include <algorithm>
#include <string>
#include <vector>

#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using P = ParallelPlan;

/// 8 GPUs, Llama 3 8B, sequences of 2,048.
GivenRun given_job() {
  GivenRun given;
  given.model = *load_model("llama3-8b");
  given.gpus = 8;
  given.sequence = 2048;
  return given;
}

Result<ImportedConfig> read_published(const std::string& name, const std::string& text,
                                      const GivenRun& given = given_job()) {
  return import_config({{name, text}}, given);
}

std::string refusal_of(const std::string& name, const std::string& text,
                       const GivenRun& given = given_job()) {
  const Result<ImportedConfig> read = read_published(name, text, given);
  return read ? "no error" : read.error().message();
}

bool holds(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

/// What is asked for the flag; "" where it is not asked.
std::string question_for(const ImportedConfig& config, const std::string& flag) {
  const auto at = std::ranges::find_if(
      config.asks, [&](const std::string& each) { return each.starts_with(flag + ":"); });
  return at == config.asks.end() ? "" : *at;
}

ExportedConfig exported_job(const char* format, int gpus, const P& plan) {
  const ConfigFormat& target = **find_config_format(format);
  RunConfig run;
  run.model = *load_model("llama3-8b");
  run.model_name = "llama3-8b";
  run.framework = std::string(row_of(target, &RunConfig::framework)->cases.empty()
                                  ? row_of(target, &RunConfig::framework)->absent
                                  : row_of(target, &RunConfig::framework)->cases.front().value);
  run.sequence = 8192;
  run.global_batch = 64;
  run.gpus = gpus;
  run.gpus_per_node = 8;
  run.precision = std::string(row_of(target, &RunConfig::precision)->cases.front().value);
  run.plan = plan;
  return export_config(target, run);
}

P split_over(int tp, int cp, int dp, int zero) {
  P plan;
  plan.tp = tp;
  plan.cp = cp;
  plan.dp = dp;
  plan.zero = zero;
  plan.shard_group = dp * cp;
  plan.sequence_parallel = tp > 1;
  plan.layers_per_stage = {32};
  plan.recompute_layers = {0};
  return plan;
}

constexpr const char* kAutoPrecision =
    R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
        "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3}})";

TEST_CASE("a precision that DeepSpeed's JSON leaves to the trainer is asked for") {
  const Result<ImportedConfig> read = read_published("ds.json", kAutoPrecision);
  REQUIRE(read);
  CHECK(holds(question_for(*read, "--precision"), "/bf16/enabled"));
  CHECK(holds(question_for(*read, "--precision"), "is auto"));
  const Result<ImportedConfig> off = read_published(
      "ds.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": false}})");
  REQUIRE(off);
  CHECK(question_for(*off, "--precision").empty());
  CHECK(off->config.precision == "fp32");
}

TEST_CASE("the global batch follows from a microbatch that is given") {
  GivenRun given = given_job();
  given.microbatch = 2;
  const Result<ImportedConfig> titan =
      read_published("run.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n", given);
  REQUIRE(titan);
  CHECK(titan->config.global_batch == 16);
  const Result<ImportedConfig> open = read_published("ds.json", kAutoPrecision, given);
  REQUIRE(open);
  CHECK_FALSE(question_for(*open, "--global-batch").empty());
  const Result<ImportedConfig> trainer = read_published(
      "args.yaml", "per_device_train_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\n");
  REQUIRE(trainer);
  CHECK(trainer->config.plan.microbatch == 1);
  CHECK(trainer->config.global_batch == 32);
}

TEST_CASE("accelerate's launcher decides what shards") {
  const Result<ImportedConfig> ddp = read_published(
      "ddp.yaml", "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n");
  REQUIRE(ddp);
  CHECK(ddp->config.plan.zero == 0);
  const Result<ImportedConfig> fsdp = read_published(
      "fsdp.yaml",
      "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n"
      "  fsdp_sharding_strategy: 2\n  fsdp_version: 1\n");
  REQUIRE(fsdp);
  CHECK(fsdp->config.plan.zero == 2);
  const std::string error = refusal_of(
      "ds.yaml",
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: zero1.json\n"
      "num_processes: 2\nmixed_precision: bf16\n");
  CHECK(holds(error, "ds.yaml line 1"));
  CHECK(holds(error, "deepspeed_config_file"));
  const Result<ImportedConfig> inline_settings = read_published(
      "ds.yaml",
      "deepspeed_config:\n  gradient_accumulation_steps: 4\n  offload_optimizer_device: cpu\n"
      "  zero_stage: 2\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\n"
      "num_processes: 8\n");
  REQUIRE(inline_settings);
  CHECK(inline_settings->config.framework == "deepspeed");
  CHECK(inline_settings->config.plan.zero == 2);
  CHECK(inline_settings->config.plan.offload_optimizer == 1);
  CHECK(inline_settings->config.precision == "bf16:deepspeed-zero");
  const Result<ImportedConfig> sequences =
      import_config({{"ulysses.yaml",
                      "distributed_type: DEEPSPEED\nnum_processes: 8\nparallelism_config:\n"
                      "  parallelism_config_sp_size: 4\n"},
                     {"ds.json",
                      R"({"zero_optimization": {"stage": 3, "overlap_comm": true}, "bf16":
                         {"enabled": true}, "train_micro_batch_size_per_gpu": 1})"}},
                    given_job());
  REQUIRE(sequences);
  CHECK(sequences->config.plan.cp == 4);
  CHECK(sequences->config.plan.dp == 2);
}

TEST_CASE("files that are no configuration, and GPT-NeoX's, are refused by name") {
  CHECK(holds(refusal_of("config.json", R"({"model_type": "llama", "vocab_size": 32000})"),
              "--model takes it"));
  CHECK(holds(refusal_of("plan.json",
                         R"({"hashes": {"contents": "8c"}, "request": {"model": {"name": "a"}}})"),
              "without --from"));
  CHECK(holds(refusal_of("20B.yml",
                         "pipe_parallel_size: 4\nmodel_parallel_size: 2\nnum_layers: 44\n"
                         "train_micro_batch_size_per_gpu: 4\nfp16:\n  enabled: true\n"),
              "GPT-NeoX"));
}

TEST_CASE("Megatron-LM's moments in fp16 have the bytes of bf16, and lists are named whole") {
  const std::string options =
      "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --bf16 --grad-reduce-in-bf16 "
      "--use-precision-aware-optimizer --main-grads-dtype bf16 --exp-avg-dtype fp16 "
      "--exp-avg-sq-dtype fp16 --context-parallel-size 2";
  const Result<ImportedConfig> read = read_published("run.sh", options + "\n");
  REQUIRE(read);
  CHECK(read->config.precision == "bf16:precision-aware");
  CHECK(holds(refusal_of("run.sh", options + " --cp-comm-type p2p a2a\n"), "'p2p,a2a'"));
}

TEST_CASE("a script that states nodes alone is of no framework") {
  const std::string script =
      "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:4\n"
      "srun accelerate launch --config_file fsdp.yaml --num_machines 4 train.py\n";
  const std::string error = refusal_of("job.sh", script);
  CHECK(holds(error, "no setting that a known framework has"));
  CHECK(holds(error, "the file that --config_file names is read"));
}

TEST_CASE("settings of several files have each their own") {
  const Result<ImportedConfig> read =
      import_config({{"args.yaml", "per_device_train_batch_size: 1\nbf16: true\n"},
                     {"ds.json", R"({"zero_optimization": {"stage": 3}})"}},
                    given_job());
  REQUIRE(read);
  for (const ConfigFinding& finding : read->findings) {
    CAPTURE(finding.from);
    if (holds(finding.from, "bf16")) CHECK(holds(finding.from, "args.yaml line 2"));
    if (holds(finding.from, "stage: ")) CHECK_FALSE(holds(finding.from, "args.yaml"));
  }
}

TEST_CASE("a schedule without stages is none") {
  const std::string text =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
      "pipeline_parallel_degree = 1\npipeline_parallel_schedule = \"Interleaved1F1B\"\n";
  const Result<ImportedConfig> read = read_published("run.toml", text);
  REQUIRE(read);
  CHECK(read->config.plan.schedule == ScheduleKind::one_f_one_b);
  for (const std::string& each : read->unpriced) CHECK_FALSE(holds(each, "schedule"));
}

TEST_CASE("what torchtitan runs otherwise than priced is listed") {
  const auto unpriced = [](const std::string& text) {
    const Result<ImportedConfig> read =
        read_published("run.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n" + text);
    REQUIRE(read);
    std::string all;
    for (const std::string& each : read->unpriced) all += each + "\n";
    return all;
  };
  CHECK(holds(unpriced("[training]\ndtype = \"bfloat16\"\n"), "training.dtype = bfloat16"));
  CHECK_FALSE(holds(unpriced("[training]\ndtype = \"float32\"\n"), "training.dtype"));
  CHECK(holds(unpriced(""), "compile.enable is not set: priced are compiled models"));
  CHECK(holds(unpriced("[compile]\nenable = false\n"), "priced are compiled models"));
  constexpr const char* kPerOperator =
      "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n";
  CHECK(unpriced(std::string(kPerOperator) + "[compile]\nenable = true\n").empty());
}

TEST_CASE("a flavor that is not known names those of its model, and --model takes its place") {
  const std::string text = "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n";
  GivenRun without = given_job();
  without.model.reset();
  const std::string error = refusal_of("run.toml", text, without);
  CHECK(holds(error, "one of 671B (model)"));
  CHECK(holds(error, "--model"));
  GivenRun with = given_job();
  with.model = *load_model("deepseek-v2-lite");
  const Result<ImportedConfig> read = read_published("run.toml", text, with);
  REQUIRE(read);
  CHECK(read->config.model.layers == 27);
}

constexpr const char* kNanotron =
    "model:\n  dtype: bfloat16\n  model_config:\n    hidden_size: 256\n    num_hidden_layers: 12\n"
    "    num_attention_heads: 4\n    num_key_value_heads: 4\n    intermediate_size: 768\n"
    "    vocab_size: 128256\n    max_position_embeddings: 4096\n"
    "optimizer:\n  accumulate_grad_in_fp32: true\n  zero_stage: 0\n"
    "parallelism:\n  dp: 2\n  pp: 1\n  tp: 1\n  tp_mode: REDUCE_SCATTER\n"
    "  tp_linear_async_communication: true\n"
    "tokens:\n  micro_batch_size: 3\n  batch_accumulation_per_replica: 1\n"
    "  sequence_length: 4096\n";

TEST_CASE("nanotron scatters nothing over one tensor-parallel rank") {
  const Result<ImportedConfig> read = read_published("run.yaml", kNanotron, {});
  REQUIRE(read);
  CHECK(read->asks.empty());
  CHECK_FALSE(read->config.plan.sequence_parallel);
  CHECK_FALSE(read->config.plan.overlap_tp);
}

TEST_CASE("experts of nanotron's files are asked for, not left out") {
  std::string text = kNanotron;
  text.insert(text.find("    hidden_size"), "    moe_config:\n      num_experts: 8\n");
  const Result<ImportedConfig> read = read_published("run.yaml", text, {});
  REQUIRE(read);
  CHECK(holds(question_for(*read, "--model"), "experts"));
  std::string none = kNanotron;
  none.insert(none.find("    hidden_size"),
              "    moe_config: null\n    sliding_window_size: null\n");
  const Result<ImportedConfig> dense = read_published("run.yaml", none, {});
  REQUIRE(dense);
  CHECK(dense->asks.empty());
}

TEST_CASE("gradients that nanotron does not keep in fp32 leave the precision open") {
  std::string text = kNanotron;
  text.replace(text.find("accumulate_grad_in_fp32: true"), 29, "accumulate_grad_in_fp32: false");
  const Result<ImportedConfig> read = read_published("run.yaml", text, {});
  REQUIRE(read);
  CHECK_FALSE(question_for(*read, "--precision").empty());
}

TEST_CASE("DeepSpeed's JSON states what its features need to be on") {
  P recomputed = split_over(1, 1, 16, 3);
  recomputed.recompute = Recompute::full;
  recomputed.recompute_layers = {32};
  const ExportedConfig full = exported_job("deepspeed", 16, recomputed);
  CHECK(full.lost.empty());
  const ConfigFormat& format = **find_config_format("deepspeed");
  RunConfig run;
  run.model = *load_model("llama3-8b");
  run.gpus = 16;
  run.gpus_per_node = 8;
  const Result<std::string> job = launch_job("slurm", format, run, full, 0);
  REQUIRE(job);
  CHECK(holds(*job, "# recompute = full: gradient_checkpointing of the model or the trainer"));
  const ExportedConfig plain = exported_job("deepspeed", 16, split_over(1, 1, 16, 3));
  CHECK_FALSE(holds(plain.text, "autotp_size"));
  CHECK_FALSE(holds(plain.text, "expert_parallel"));
  CHECK_FALSE(holds(plain.text, "sequence_parallel_size"));
  P sequences = split_over(1, 8, 2, 3);
  sequences.cp_comm = CpComm::all_to_all;
  const ExportedConfig ulysses = exported_job("deepspeed", 16, sequences);
  CHECK(ulysses.lost.empty());
  CHECK(holds(ulysses.text, "\"sequence_parallel_size\": 8"));
  CHECK(holds(ulysses.text, "\"data_parallel_size\": 2"));
  P experts = split_over(1, 1, 16, 2);
  experts.ep = 8;
  CHECK(holds(exported_job("deepspeed", 16, experts).text,
              "\"enabled\": true,\n    \"autoep_size\": 8"));
  P offloaded = split_over(1, 1, 16, 2);
  offloaded.offload_optimizer = 0.4;
  const ExportedConfig part = exported_job("deepspeed", 16, offloaded);
  CHECK_FALSE(holds(part.text, "ratio"));
  CHECK_FALSE(part.lost.empty());
  offloaded.zero = 3;
  CHECK(exported_job("deepspeed", 16, offloaded).lost.empty());
}

TEST_CASE("the groups of an accelerate configuration are all GPUs") {
  P split = split_over(2, 1, 8, 3);
  const ExportedConfig tensor = exported_job("accelerate", 16, split);
  CHECK(tensor.lost.empty());
  CHECK(holds(tensor.text, "parallelism_config_tp_size: 2"));
  CHECK(holds(tensor.text, "parallelism_config_dp_shard_size: 8"));
  P hybrid = split_over(1, 1, 16, 3);
  hybrid.shard_group = 8;
  const ExportedConfig replicas = exported_job("accelerate", 16, hybrid);
  CHECK(replicas.lost.empty());
  CHECK(holds(replicas.text, "parallelism_config_dp_replicate_size: 2"));
  CHECK(holds(replicas.text, "parallelism_config_dp_shard_size: 8"));
  CHECK_FALSE(
      holds(exported_job("accelerate", 16, split_over(1, 1, 16, 3)).text, "parallelism_config"));
  CHECK(holds(exported_job("accelerate", 16, split_over(1, 1, 16, 0)).text,
              "distributed_type: MULTI_GPU"));
}

TEST_CASE("Megatron-Bridge and NeMo 2 exchange heads of context parallelism") {
  for (const auto& [format, setting] :
       {std::pair{"megatron-bridge", "model.transformer.cp_comm_type=a2a"},
        std::pair{"nemo", "model.config.cp_comm_type=a2a"}}) {
    P plan = split_over(1, 2, 8, 1);
    plan.cp_comm = CpComm::all_to_all;
    const ExportedConfig out = exported_job(format, 16, plan);
    CAPTURE(format, out.text);
    CHECK(holds(out.text, setting));
    CHECK(out.lost.empty());
  }
}

TEST_CASE("an exported nanotron configuration has what its parser requires") {
  const ExportedConfig out = exported_job("nanotron", 16, split_over(1, 1, 16, 1));
  for (const char* key : {"init_method", "weight_decay", "clip_grad", "optimizer_factory",
                          "torch_adam_is_fused: true", "adam_beta1", "lr_warmup_style",
                          "checkpoints_path", "checkpoint_interval", "data_stages"}) {
    CAPTURE(key);
    CHECK(holds(out.text, key));
  }
}

}  // namespace
}  // namespace echelon
