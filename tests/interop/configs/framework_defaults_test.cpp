// What frameworks do where a file says nothing, and settings that a plan has no use for.
#include <string>

#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

GivenRun llama_on_8() {
  GivenRun given;
  given.model = *load_model("llama3-8b");
  given.gpus = 8;
  given.sequence = 2048;
  return given;
}

Result<ImportedConfig> read_for_defaults(const std::string& name, const std::string& text,
                                         const GivenRun& given = llama_on_8()) {
  return import_config({{name, text}}, given);
}

std::string refusal_for_defaults(const std::string& name, const std::string& text) {
  const Result<ImportedConfig> read = read_for_defaults(name, text);
  return read ? "no error" : read.error().message();
}

bool says_that(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// Source: DeepSpeed edaa7221, deepspeed/runtime/zero/stage3.py:1533.
TEST_CASE("a size of buckets that a plan has no use for is named, not refused") {
  const auto bucket = [](const std::string& stage, const std::string& more = "") {
    Result<ImportedConfig> read =
        read_for_defaults("ds.json",
                          "{\"bf16\": {\"enabled\": true}, \"train_micro_batch_size_per_gpu\": 1,"
                          "\"zero_optimization\": {\"stage\": " +
                              stage + more + ", \"reduce_bucket_size\": 200000000}}");
    REQUIRE(read);
    return *std::move(read);
  };
  for (const char* stage : {"2", "3"}) {
    CAPTURE(stage);
    const ImportedConfig sharded = bucket(stage);
    CHECK_FALSE(sharded.config.plan.bucket);
    REQUIRE(sharded.unpriced.size() == 1);
    CHECK(says_that(sharded.unpriced.front(), "reduce_bucket_size = 200000000"));
    CHECK(says_that(sharded.unpriced.front(), std::string("ZeRO-") + stage));
  }
  const ImportedConfig overlapped = bucket("1", ", \"overlap_comm\": true");
  CHECK(overlapped.config.plan.bucket == Bytes{4e8});
  CHECK(overlapped.unpriced.empty());
  const std::string nanotron =
      "parallelism: {dp: 1, tp: 1, pp: 1}\nmodel: {ddp_bucket_cap_mb: 100, dtype: bfloat16}\n"
      "optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}\n"
      "tokens: {sequence_length: 2048, micro_batch_size: 1, batch_accumulation_per_replica: 1}\n";
  const Result<ImportedConfig> alone = read_for_defaults("n.yaml", nanotron);
  REQUIRE(alone);
  CHECK_FALSE(alone->config.plan.bucket);
  CHECK(alone->unpriced.empty());
}

TEST_CASE("a stage of ZeRO that there is not is refused at its place") {
  const std::string error =
      refusal_for_defaults("ds.json", R"({"zero_optimization": {"stage": 9}})");
  CHECK(says_that(error, "/zero_optimization/stage"));
  CHECK(says_that(error, "a stage from 0 to 3"));
}

// Source: accelerate 16cb6eb8, src/accelerate/utils/dataclasses.py:1836-1856.
TEST_CASE("FSDP of accelerate shards all unless the file says how much") {
  for (const char* version : {"1", "2"}) {
    CAPTURE(version);
    const Result<ImportedConfig> plain_fsdp = read_for_defaults(
        "fsdp.yaml", std::string("distributed_type: FSDP\nmixed_precision: bf16\n"
                                 "num_processes: 8\nfsdp_config:\n  fsdp_version: ") +
                         version + "\n");
    INFO((plain_fsdp ? "" : plain_fsdp.error().message()));
    REQUIRE(plain_fsdp);
    CHECK(plain_fsdp->config.plan.zero == 3);
  }
}

// Source: nanotron 2411b022, src/nanotron/config/models_config.py:150.
TEST_CASE("layers without rotary positions are named where nanotron's option has no number") {
  const ConfigFormat& format = **find_config_format("nanotron");
  RunConfig run;
  run.model = *load_model("smollm3-3b");
  run.model_name = "smollm3-3b";
  run.gpus = run.gpus_per_node = run.plan.dp = run.plan.shard_group = 8;
  run.global_batch = 8;
  run.sequence = 2048;
  run.precision = "bf16:nanotron";
  run.plan.layers_per_stage = {36};
  run.plan.recompute_layers = {0};
  const ExportedConfig exported = export_config(format, run);
  REQUIRE(exported.lost.size() == 1);
  CHECK(says_that(exported.lost.front().why, "no_rope_layer"));
}

// Source: Megatron-LM core_v0.16.1, megatron/training/arguments.py:813.
TEST_CASE("heads that do not divide the hidden size have a width in Megatron-LM's options") {
  const ConfigFormat& format = **find_config_format("megatron-lm");
  RunConfig run;
  run.model = *load_model("glm-4.7-flash");
  run.precision = "bf16:adam-fp32-master";
  const ExportedConfig flash = export_config(format, run);
  CHECK(says_that(flash.arguments, "--kv-channels 256 "));
  run.model = *load_model("deepseek-v3");
  CHECK_FALSE(says_that(export_config(format, run).arguments, "--kv-channels"));
  const Result<ImportedConfig> read = read_for_defaults(
      "mla.sh",
      "torchrun pretrain_gpt.py --multi-latent-attention --kv-channels 128 --num-layers 2 "
      "--hidden-size 2048 --num-attention-heads 16 --qk-head-dim 128 --qk-pos-emb-head-dim 64\n",
      GivenRun{});
  REQUIRE(read);
  CHECK(read->config.model.head_dim == 192);
}

}  // namespace
}  // namespace echelon
