// Settings of a Megatron-LM script that no field of a plan stands for.
#include <string>

#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

const ConfigFormat& scripts() { return **find_config_format("megatron-lm"); }

/// Llama 3 8B on `tp` · 8 GPUs.
RunConfig run_on(int tp) {
  RunConfig run;
  run.model = *load_model("llama3-8b");
  run.framework = "megatron-core";
  run.precision = "bf16:adam-fp32-master";
  run.sequence = 4096;
  run.global_batch = 64;
  run.gpus = 8 * tp;
  run.gpus_per_node = 8;
  run.plan.tp = tp;
  run.plan.dp = 8;
  run.plan.layers_per_stage = {run.model.layers};
  run.plan.recompute_layers = {0};
  return run;
}

}  // namespace

// Source: Megatron-LM core_v0.16.1, megatron/core/datasets/gpt_dataset.py:739 (s x s), and
// megatron/core/transformer/moe/README.md:272.
TEST_CASE("Megatron-LM makes no mask for flash attention, and permutes tokens by fused kernels") {
  const ConfigFormat& format = scripts();
  RunConfig run = run_on(1);
  const auto has = [&](const char* what) {
    return export_config(format, run).text.find(what) != std::string::npos;
  };
  CHECK(has("--no-create-attention-mask-in-dataloader"));
  CHECK_FALSE(has("--moe-permute-fusion"));
  CHECK_FALSE(has("--moe-aux-loss-coeff"));
  run.flash_attention = false;
  CHECK_FALSE(has("--no-create-attention-mask-in-dataloader"));
  run.model = *load_model("mixtral-8x7b");
  CHECK(has("--moe-permute-fusion"));
  CHECK(has("choose --moe-aux-loss-coeff"));
}

// Source: Megatron-LM core_v0.16.1, megatron/training/arguments.py:926-953.
TEST_CASE("what GPUs before Blackwell ask for is not asked of Blackwell") {
  const ConfigFormat& format = scripts();
  RunConfig run = run_on(2);
  constexpr const char* kOne = "export CUDA_DEVICE_MAX_CONNECTIONS=1";
  for (const double capability : {0.0, 8.0, 9.0}) {
    run.compute_capability = capability;
    CHECK(export_config(format, run).environment.find(kOne) != std::string::npos);
  }
  for (const double capability : {10.0, 10.3, 12.0}) {
    run.compute_capability = capability;
    CHECK(export_config(format, run).environment.find(kOne) == std::string::npos);
  }
}
