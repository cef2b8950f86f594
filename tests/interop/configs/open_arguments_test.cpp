// Words of a script that a command prints: they may be any options.
#include <algorithm>
#include <string>
#include <vector>

#include "core/model/model_io.hpp"
#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

ImportedConfig read_open(const std::string& script) {
  GivenRun given;
  given.model = *load_model("llama3-8b");
  given.gpus = 64;
  Result<ImportedConfig> read = import_config({{"run.sh", script}}, given);
  INFO((read ? "" : read.error().message()));
  REQUIRE(read);
  return *std::move(read);
}

/// What is asked for the flag; "" where it is not asked.
std::string asked_for_flag(const ImportedConfig& config, const std::string& flag) {
  const auto at = std::ranges::find_if(
      config.asks, [&](const std::string& each) { return each.starts_with(flag + ":"); });
  return at == config.asks.end() ? "" : *at;
}

bool has_finding(const ImportedConfig& config, const ConfigField& field) {
  return std::ranges::find(config.findings, field, &ConfigFinding::field) != config.findings.end();
}

TEST_CASE("settings next to the output of a command are asked for, not taken as defaults") {
  const ImportedConfig bridge = read_open(
      "torchrun --nnodes 8 run_recipe.py \\\n  $(cat overrides.txt) train.micro_batch_size=1 "
      "train.global_batch_size=64 dataset.seq_length=4096 model.context_parallel_size=2\n");
  CHECK(bridge.format->name == "megatron-bridge");
  for (const char* flag : {"--tp", "--pp", "--zero", "--recompute", "--precision"}) {
    CAPTURE(flag);
    CHECK(asked_for_flag(bridge, flag).find("run.sh line 2 has the output of a command") !=
          std::string::npos);
  }
  std::vector<std::string> asks = bridge.asks;
  std::ranges::sort(asks);
  CHECK(std::ranges::adjacent_find(asks) == asks.end());
  CHECK(asked_for_flag(bridge, "--cp").empty());
  CHECK(bridge.config.plan.cp == 2);
  CHECK_FALSE(has_finding(bridge, plan_part<&ParallelPlan::tp>));
  const ImportedConfig whole = read_open(
      "torchrun --nnodes 8 run_recipe.py train.micro_batch_size=1 train.global_batch_size=64 "
      "dataset.seq_length=4096\n");
  CHECK(whole.asks.empty());
}

TEST_CASE("the output of a command is the value of an option that takes one, and of no switch") {
  const std::string start =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 "
      "--seq-length 4096 --micro-batch-size 1 --global-batch-size 64 ";
  const ImportedConfig value =
      read_open(start + "--bf16 --tensor-model-parallel-size $(degree) --swiglu\n");
  REQUIRE(value.asks.size() == 1);
  CHECK(value.asks.front().find("--tensor-model-parallel-size has a command's output") !=
        std::string::npos);
  for (const char* behind : {"--bf16 $(more)", "--sequence-parallel --bf16 `more`",
                             "--bf16 --recompute-activations $(more)"}) {
    CAPTURE(behind);
    const ImportedConfig open = read_open(start + behind + "\n");
    CHECK(open.config.precision.starts_with("bf16"));
    CHECK(asked_for_flag(open, "--precision").empty());
    CHECK(asked_for_flag(open, "--tp").find("output of a command") != std::string::npos);
    CHECK(asked_for_flag(open, "--pp").find("output of a command") != std::string::npos);
  }
  const ImportedConfig second = read_open(start + "--bf16 --pipeline-model-parallel-size 4 $(x)\n");
  CHECK(second.config.plan.pp == 4);
  CHECK(asked_for_flag(second, "--pp").empty());
  CHECK_FALSE(asked_for_flag(second, "--tp").empty());
}

TEST_CASE("outputs that are data, quoted words or in front of the program leave nothing open") {
  const std::string end =
      " --num-layers 32 --seq-length 4096 --micro-batch-size 1 "
      "--global-batch-size 64 --bf16";
  for (const std::string& script :
       {"srun --nodes 8 $(which torchrun) pretrain_gpt.py" + end,
        "#SBATCH --nodes=8\n$(which python) -m pretrain_gpt" + end,
        "torchrun pretrain_gpt.py" + end + " --data-path 0.5 $(cat blend.txt)",
        "torchrun pretrain_gpt.py" + end + " --save-interval 100 \"$(date)\""}) {
    CAPTURE(script);
    CHECK(read_open(script + "\n").asks.empty());
  }
}

}  // namespace
}  // namespace echelon
