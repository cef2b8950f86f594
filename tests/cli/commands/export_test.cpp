// plan export: every format and launcher, what cannot be expressed, downgrades, wrong input.
#include <string>

#include "tests/cli/program.hpp"

namespace echelon::test {
namespace {

/// A plan that every format but a few expresses: FSDP over 64 GPUs.
const std::string kJob = " --model llama3-8b --gpus 64 --seq 8192 --global-batch 512";
const std::string kData = kJob + " --zero 3";
/// Tensor and pipeline parallelism, interleaved.
const std::string kStages =
    kJob + " --tp 4 --pp 2 --vpp 2 --sequence-parallel --recompute selective";
const std::string kPipeline = kStages + " --zero 1";

/// "" when the export is the golden of this name.
std::string export_differs(const Sandbox& sandbox, const std::string& golden,
                           const std::string& arguments) {
  const ProcessResult result = sandbox.plan("export " + arguments);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  return differs_from_golden("export-" + golden + ".txt", result.out);
}

TEST_CASE("plan export writes each framework's configuration") {
  const Sandbox sandbox;
  CHECK(export_differs(sandbox, "megatron-lm", "megatron-lm" + kPipeline) == "");
  CHECK(export_differs(sandbox, "megatron-bridge", "megatron-bridge" + kPipeline) == "");
  CHECK(export_differs(sandbox, "nemo", "nemo" + kPipeline) == "");
  for (const std::string version : {"torchtitan", "torchtitan-main", "torchtitan-toml"}) {
    CHECK(export_differs(sandbox, version, version + kStages + " --zero 2") == "");
  }
  CHECK(export_differs(sandbox, "deepspeed", "deepspeed" + kData) == "");
  CHECK(export_differs(sandbox, "accelerate", "accelerate" + kData) == "");
  CHECK(export_differs(sandbox, "nanotron",
                       "nanotron" + kJob +
                           " --tp 4 --pp 2 --zero 1 --sequence-parallel --recompute full") == "");
}

TEST_CASE("plan export writes the job that starts the plan's framework") {
  const Sandbox sandbox;
  for (const char* launcher : {"slurm", "mpirun", "kubernetes"}) {
    CAPTURE(launcher);
    CHECK(export_differs(sandbox, std::string(launcher) + "-megatron", launcher + kPipeline) == "");
    CHECK(export_differs(sandbox, std::string(launcher) + "-titan",
                         launcher + kData + " --framework torchtitan") == "");
    CHECK(export_differs(sandbox, std::string(launcher) + "-plan-run",
                         std::string(launcher) +
                             " --model gpt2 --gpus 16 --framework echelon --global-batch 32") ==
          "");
  }
  const std::string nobody =
      complaint(sandbox.plan("export slurm" + kJob + " --zero 1 --framework megatron-2021"), 2);
  CHECK(lacks(nobody, "a plan for megatron-2021") == "");
}

TEST_CASE("exported settings that Megatron-LM takes as lists are words of their own") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan(
      "export megatron-lm --model deepseek-v3 --gpus 256 --pp 8 --ep 32 --dispatcher deepep "
      "--zero 1 --recompute selective:moe_act,layernorm --overlap dp,ep --vpp 4 "
      "--global-batch 4096");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  for (const char* line :
       {"--multi-latent-attention", "--moe-grouped-gemm", "--recompute-modules layernorm moe_act",
        "--delay-wgrad-compute", "unset CUDA_DEVICE_MAX_CONNECTIONS\n",
        "# requires the library DeepEP", "--moe-token-dispatcher-type flex",
        "--moe-flex-dispatcher-backend deepep"}) {
    CHECK(lacks(result.out, line) == "");
  }
  CHECK(lacks(sandbox.plan("export megatron-lm" + kPipeline).out,
              "export CUDA_DEVICE_MAX_CONNECTIONS=1\n") == "");
}

TEST_CASE("a model that the target has no name for is marked") {
  const Sandbox sandbox;
  const std::string model = " --model gpt3-6.7b --gpus 64 --zero 3";
  const ProcessResult toml = sandbox.plan("export torchtitan-toml" + model);
  CHECK(lacks(toml.out, "# fill in model.flavor: torchtitan (TOML) has no name for gpt3-6.7b") ==
        "");
  CHECK(lacks(toml.out, "context_parallel_rotate_method") != "");
  CHECK(lacks(sandbox
                  .plan("export torchtitan-toml --model llama3-8b --gpus 8 --framework torchtitan "
                        "--cp 2")
                  .out,
              "context_parallel_rotate_method = 'alltoall'") == "");
  CHECK(lacks(toml.out, "flavor = 'FILL_IN'") == "");
  CHECK(lacks(sandbox.plan("export torchtitan" + model).out, "config = FILL_IN()") == "");
}

TEST_CASE("plan export trace writes the simulated step") {
  const Sandbox sandbox;
  const auto trace = document(sandbox.plan("export trace" + kPipeline));
  CHECK(trace["displayTimeUnit"] == "ms");
  CHECK(trace["traceEvents"].size() > 100);
  const std::string many =
      complaint(sandbox.plan("export trace --model 7b --gpus 8 --global-batch 10000000"), 2);
  CHECK(lacks(many, "instructions") == "");
}

TEST_CASE("adapters come back from the recipe that they were exported to") {
  const Sandbox sandbox;
  const std::string answer = " --model llama3-8b --gpus 8 --zero 1 --seq 4096 --global-batch 64 ";
  REQUIRE(sandbox.plan("export megatron-bridge" + answer + "--lora 8:linear_qkv -o lora.sh")
              .exit_code == 0);
  const auto back = document(sandbox.plan("explain --from lora.sh --model llama3-8b --json"));
  CHECK(back["request"]["lora"]["rank"] == 8);
}

TEST_CASE("Kubernetes is asked for the GPUs of the cluster's vendor") {
  const Sandbox sandbox;
  const std::string model = "export kubernetes --model llama2-7b --zero 1 --gpus 16 --cluster ";
  CHECK(lacks(sandbox.plan(model + "mi300x").out, "amd.com/gpu: 8") == "");
  CHECK(lacks(sandbox.plan(model + "dgx-h100").out, "nvidia.com/gpu: 8") == "");
}

TEST_CASE("what a format cannot express ends with 1 and its list, or with the nearest plan") {
  const Sandbox sandbox;
  const ProcessResult refused = sandbox.plan("export nanotron" + kPipeline);
  CHECK(refused.exit_code == 1);
  for (const char* words : {"nanotron 2411b022 cannot express this plan:", "--downgrade"}) {
    CHECK(lacks(refused.out, words) == "");
  }
  const ProcessResult nearest =
      sandbox.plan("export nanotron" + kPipeline + " --downgrade -o near.yaml");
  CHECK(nearest.exit_code == 0);
  CHECK(lacks(nearest.out, "per step for the nearest plan, tp 4") == "");
  CHECK(lacks(nearest.out, "Written to near.yaml.") == "");
  const auto back = document(sandbox.plan("import near.yaml --json"));
  CHECK(back["framework"] == "nanotron");
  CHECK(back["plan"]["tp"] == 4);  // what can be kept is kept
  CHECK(back["plan"]["pp"] == 2);
}

// NeMo 2 names neither HybridEP nor graphs of layers nor overlap of experts, which a search would
// choose again if they were free.
TEST_CASE("the nearest plan of experts runs what the format runs in place of what it lacks") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan("--model qwen3-30b-a3b --gpus 32 -o ep.json").exit_code == 0);
  CHECK(sandbox.plan("export nemo ep.json").exit_code == 1);
  const ProcessResult nearest = sandbox.plan("export nemo ep.json --downgrade -o near.sh");
  INFO(nearest.out << nearest.err);
  CHECK(nearest.exit_code == 0);
  CHECK(lacks(nearest.out, "per step for the nearest plan") == "");
}

TEST_CASE("a model that Megatron-LM lacks parts of ends with 1, or is exported without them") {
  const Sandbox sandbox;
  const std::string arguments = "export megatron-lm --model phi-2 --gpus 8 --zero 1";
  const ProcessResult refused = sandbox.plan(arguments);
  CHECK(refused.exit_code == 1);
  CHECK(lacks(refused.out, "parallel attention and MLP true: Megatron-LM would run false") == "");
  const ProcessResult without = sandbox.plan(arguments + " --downgrade");
  CHECK(without.exit_code == 0);
  CHECK(lacks(without.out, "# not expressed: parallel attention and MLP true, but false\n") == "");
  CHECK(lacks(without.out, "--num-layers 32") == "");
}

TEST_CASE("an imported configuration is reported with its predicted step, in JSON too") {
  const Sandbox sandbox;
  sandbox.write("train.sh", sandbox.plan("export megatron-lm" + kPipeline).out);
  const auto imported = document(sandbox.plan("import train.sh --json"));
  const auto predicted = document(sandbox.plan("predict" + kPipeline + " --json"));
  CHECK(imported["step_seconds"] == predicted["time"]["step_seconds"]);
  sandbox.write("part.sh", "torchrun pretrain_gpt.py --num-layers 2 --micro-batch-size 1\n");
  const auto asked = nlohmann::json::parse(sandbox.plan("import part.sh --json").out);
  CHECK(asked["step_seconds"].is_null());
}

TEST_CASE("a plan file and a configuration of another framework are exported like flags") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan("predict" + kPipeline + " -o plan.json --quiet").exit_code == 0);
  const std::string by_flags = sandbox.plan("export megatron-lm" + kPipeline).out;
  CHECK(sandbox.plan("export megatron-lm plan.json").out == by_flags);
  sandbox.write("train.sh", by_flags);
  CHECK(sandbox.plan("export megatron-lm --from train.sh").out == by_flags);
  CHECK(lacks(sandbox.plan("export slurm --from train.sh").out, "#SBATCH --nodes=8") == "");
}

TEST_CASE("export names what is wrong with its input") {
  const Sandbox sandbox;
  const std::string format = complaint(sandbox.plan("export megatron" + kData), 2);
  CHECK(lacks(format, "unknown format 'megatron'") == "");
  CHECK(lacks(format, "trace") == "");
  CHECK(lacks(format, "megatron-lm") == "");
  CHECK(lacks(complaint(sandbox.plan("export nemo-1" + kData), 2), "unknown format 'nemo-1'") ==
        "");
  CHECK(lacks(complaint(sandbox.plan("export slurm absent.json"), 2), "absent.json") == "");
  CHECK(lacks(complaint(sandbox.plan("export slurm --from absent.sh"), 3), "absent.sh") == "");
}

}  // namespace
}  // namespace echelon::test
