// What the frameworks' own parsers refused of exports, or read otherwise than the plan (tests/
// external/README.md says how they were asked).
#include <algorithm>
#include <string>
#include <string_view>

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using P = ParallelPlan;

/// Llama 3 8B in a format's own framework and precision, on as many GPUs as the plan has.
RunConfig run_of(const ConfigFormat& format, P plan) {
  RunConfig run;
  run.model = *load_model("llama3-8b");
  run.model_name = "llama3-8b";
  const ConfigRow* row = row_of(format, &RunConfig::framework);
  run.framework = row->cases.empty() ? row->absent : row->cases.front().value;
  run.precision = find_framework(run.framework)->default_precision;
  run.sequence = 8192;
  run.global_batch = 512;
  plan.layers_per_stage.assign(static_cast<std::size_t>(plan.pp), 32 / plan.pp);
  plan.recompute_layers.assign(static_cast<std::size_t>(plan.pp), 0);
  plan.shard_group = plan.dp * plan.cp;
  run.gpus = static_cast<int>(plan.gpus());
  run.gpus_per_node = 8;
  run.plan = plan;
  return run;
}

ExportedConfig exported(const char* name, const P& plan, const char* precision = nullptr) {
  const ConfigFormat& format = **find_config_format(name);
  RunConfig run = run_of(format, plan);
  if (precision != nullptr) run.precision = precision;
  return export_config(format, run);
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a plan at ZeRO-0 has no option of Megatron-DeepSpeed, and stays Megatron-LM's") {
  P plan;
  plan.dp = 64;
  const ExportedConfig script = exported("megatron-lm", plan);
  CHECK_FALSE(has(script.text, "zero-stage"));
  const Result<ImportedConfig> back = import_config({{"run.sh", script.text}}, GivenRun{});
  REQUIRE(back);
  CHECK(back->config.framework == "megatron-core");
  CHECK(back->config.plan.zero == 0);
}

TEST_CASE("with AutoTP DeepSpeed is given no batch of all ranks, which it would count wrongly") {
  P plan;
  plan.dp = 16;
  CHECK(has(exported("deepspeed", plan).text, "\"train_batch_size\": 512"));
  plan.dp = 8;
  plan.tp = 2;
  const ExportedConfig split = exported("deepspeed", plan);
  CHECK_FALSE(has(split.text, "train_batch_size"));
  CHECK(has(split.text, "\"train_micro_batch_size_per_gpu\": 1"));
  CHECK(has(split.text, "\"gradient_accumulation_steps\": 64"));
  CHECK(split.lost.empty());
}

TEST_CASE("a model's name cannot add a line to a script or a job") {
  P plan;
  plan.dp = 8;
  const ConfigFormat& format = **find_config_format("megatron-lm");
  RunConfig run = run_of(format, plan);
  run.model.name = "a\ntouch b";
  const ExportedConfig script = export_config(format, run);
  CHECK(has(script.text, "# a?touch b on 8 GPUs"));
  CHECK_FALSE(has(script.text, "\ntouch b"));
  for (const char* launcher : {"slurm", "mpirun", "kubernetes"}) {
    CAPTURE(launcher);
    CHECK_FALSE(has(*launch_job(launcher, format, run, script, 0), "\ntouch b"));
  }
}

TEST_CASE("words that YAML 1.1 takes for booleans are written in quotes") {
  P plan;
  plan.dp = 8;
  plan.zero = 3;
  CHECK(has(exported("accelerate", plan, "fp32").text, "mixed_precision: \"no\""));
}

TEST_CASE("keys that a framework asks for are there, or marked to be filled in") {
  P plan;
  plan.dp = 8;
  plan.zero = 3;
  const std::string foundry = exported("llm-foundry", plan).text;
  for (const char* key :
       {"name: mpt_causal_lm", "device_eval_batch_size: ", "t_warmup: ", "name: text"}) {
    CAPTURE(key);
    CHECK(has(foundry, key));
  }
  plan.zero = 1;
  CHECK(has(exported("nanotron", plan, "fp32").text, "accumulate_grad_in_fp32: false"));
}

// Stage i of eight is on rank i, then on rank 7 - i.
TEST_CASE("chunks of DualPipeV are dealt to torchtitan's ranks there and back") {
  P plan;
  plan.pp = 4;
  plan.vpp = 2;
  plan.dp = 8;
  plan.zero = 2;
  plan.schedule = ScheduleKind::dualpipe_v;
  const ConfigFormat& format = **find_config_format("torchtitan-toml");
  RunConfig run = run_of(format, plan);
  run.plan.layers_per_stage = {7, 9, 9, 7};
  run.plan.microbatch_group = 1;
  const ExportedConfig file = export_config(format, run);
  CAPTURE(file.text);
  for (const Inexpressible& lost : file.lost) {
    CAPTURE(lost.wanted, lost.instead);
    CHECK(lost.field != ConfigField{plan_part<&P::microbatch_group>});
    CHECK(lost.field != ConfigField{plan_part<&P::layers_per_stage>});
  }
  // Rank 0 holds the first and the last stage: 4 + 3 layers, as layers_in_chunk deals them.
  const int first = layers_in_chunk(run.plan, 0, 0);
  const std::string begin_of_second = "'layers." + std::to_string(first) + "'";
  CHECK(has(file.text, "[ " + begin_of_second));
  const int last = layers_in_chunk(run.plan, 0, 1);
  CHECK(has(file.text, "[ 'layers." + std::to_string(32 - last) + "'"));
}

TEST_CASE("jobs keep what a file says of itself, and MPI jobs ask for their master") {
  P plan;
  plan.dp = 16;
  const ConfigFormat& format = **find_config_format("megatron-lm");
  const RunConfig run = run_of(format, plan);
  const ExportedConfig script = export_config(format, run);
  for (const char* launcher : {"slurm", "mpirun", "kubernetes"}) {
    CAPTURE(launcher);
    const Result<std::string> job = launch_job(launcher, format, run, script, 0);
    REQUIRE(job);
    CHECK(has(*job, "# fill in data-path: prefix of the tokenized data"));
  }
  CHECK(has(*launch_job("mpirun", format, run, script, 0),
            "export MASTER_ADDR=FILL_IN MASTER_PORT=29500"));
  CHECK(has(*launch_job("slurm", format, run, script, 0), "srun --cpu-bind=none torchrun"));
}

}  // namespace echelon
