// Exports of Megatron-Bridge and NeMo 2 stand on a recipe: what they write so that its own settings
// go, in the spelling that the frameworks' parsers take.
#include <string>
#include <utility>
#include <vector>

#include "core/framework/stage_layers.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using P = ParallelPlan;

/// A run on 64 GPUs.
RunConfig run_of(const char* model, int tp = 1, int pp = 1, int cp = 1) {
  RunConfig run;
  run.model = *load_model(model);
  run.model_name = model;
  run.framework = "megatron-core";
  run.sequence = 4096;
  run.global_batch = 512;
  run.precision = "bf16:adam-fp32-master";
  run.gpus = 64;
  run.gpus_per_node = 8;
  run.plan.tp = tp;
  run.plan.pp = pp;
  run.plan.cp = cp;
  run.plan.dp = 64 / tp / pp / cp;
  run.plan.shard_group = run.plan.dp * cp;
  run.plan.zero = 1;
  run.plan.layers_per_stage.assign(static_cast<std::size_t>(pp), run.model.layers / pp);
  run.plan.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
  return run;
}

ExportedConfig exported(const char* format, const RunConfig& run) {
  return export_config(**find_config_format(format), run);
}

/// Whether a line of the command is this setting.
bool has(const ExportedConfig& out, const std::string& setting) {
  return out.arguments.find("\n  " + setting + " \\\n") != std::string::npos ||
         out.arguments.starts_with("  " + setting + " \\\n");
}

bool noted(const ExportedConfig& out, const std::string& text) {
  return out.text.find("# " + text) != std::string::npos;
}

P read_back(const char* format, const RunConfig& run, const std::string& text) {
  GivenRun given;
  given.format = format;
  given.model = run.model;
  given.gpus = run.gpus;
  const Result<ImportedConfig> back = import_config({{"run.sh", text}}, given);
  INFO(text);
  REQUIRE(back);
  return back->config.plan;
}

void comes_back(const char* format, const RunConfig& run) {
  const ExportedConfig out = exported(format, run);
  CAPTURE(format, out.text);
  CHECK(out.lost.empty());
  CHECK(differing_fields(read_back(format, run, out.text), run.plan).empty());
}

const std::string kOverlapOf =
    "comm_overlap='{_target_:megatron.bridge.training.comm_overlap.CommOverlapConfig,";

TEST_CASE("keys of Llama's recipes of Megatron-Bridge go through the transformer of the model") {
  const ExportedConfig llama = exported("megatron-bridge", run_of("llama3-8b", 2));
  CHECK(has(llama, "model.transformer.tensor_model_parallel_size=2"));
  CHECK(llama.arguments.find("model.tensor_model_parallel_size") == std::string::npos);
  CHECK(noted(llama, "model.transformer.KEY is model.KEY in releases up to v0.6.0"));
  const ExportedConfig qwen = exported("megatron-bridge", run_of("qwen3-8b", 2));
  CHECK(has(qwen, "model.tensor_model_parallel_size=2"));
  CHECK(qwen.text.find("model.transformer") == std::string::npos);
  comes_back("megatron-bridge", run_of("llama3-8b", 2));
  comes_back("megatron-bridge", run_of("qwen3-8b", 2));
}

TEST_CASE("both names of a key of Megatron-Bridge are read, and messages have the file's") {
  const RunConfig run = run_of("llama3-8b");
  for (const char* section : {"model.", "model.transformer."}) {
    const std::string key = std::string(section) + "tensor_model_parallel_size";
    const std::string script = "torchrun run_recipe.py train.micro_batch_size=1 " + key + "=";
    CHECK(read_back("megatron-bridge", run, script + "4\n").tp == 4);
    const Result<ImportedConfig> wrong = import_config({{"run.sh", script + "x\n"}}, GivenRun{});
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().message().find("run.sh line 1: " + key) != std::string::npos);
  }
}

TEST_CASE("the overlaps of Megatron-Bridge are one section, of experts where there are some") {
  RunConfig dense = run_of("qwen3-8b", 2);
  ExportedConfig out = exported("megatron-bridge", dense);
  // Hydra takes a section as a whole where the recipe has none: null comes first.
  CHECK(out.arguments.find("  comm_overlap=null \\\n  " + kOverlapOf + "tp_comm_overlap:false}'") !=
        std::string::npos);
  CHECK(out.arguments.find("comm_overlap.tp") == std::string::npos);
  CHECK(out.arguments.find("moe") == std::string::npos);
  dense.plan.overlap_tp = dense.plan.sequence_parallel = true;
  CHECK(has(exported("megatron-bridge", dense), kOverlapOf + "tp_comm_overlap:true}'"));
  comes_back("megatron-bridge", dense);
  RunConfig experts = run_of("mixtral-8x7b", 1, 4);
  experts.plan.ep = 8;
  CHECK(has(exported("megatron-bridge", experts),
            kOverlapOf + "tp_comm_overlap:false,overlap_moe_expert_parallel_comm:false}'"));
  experts.plan.overlap_ep = true;
  CHECK(has(exported("megatron-bridge", experts),
            kOverlapOf + "tp_comm_overlap:false,overlap_moe_expert_parallel_comm:true,"
                         "delay_wgrad_compute:true}'"));
  comes_back("megatron-bridge", experts);
  const std::string older =
      "torchrun run_recipe.py train.micro_batch_size=1 model.tensor_model_parallel_size=2 "
      "comm_overlap.tp_comm_overlap=true\n";
  CHECK(read_back("megatron-bridge", dense, older).overlap_tp);
}

TEST_CASE("a layout is in quotes of Hydra, and bare for NeMo-Run") {
  RunConfig run = run_of("qwen3-8b", 1, 8);
  run.plan.layers_per_stage = {4, 5, 5, 5, 5, 4, 4, 4};
  const std::string layout = megatron_layout(run.plan);
  CHECK(layout.find('(') != std::string::npos);
  const auto at = [](const char* format, const RunConfig& config, const std::string& setting) {
    const ExportedConfig out = exported(format, config);
    CAPTURE(out.text);
    CHECK(has(out, setting));
  };
  at("megatron-bridge", run, "model.pipeline_model_parallel_layout=\"'" + layout + "'\"");
  at("nemo", run, "trainer.strategy.pipeline_model_parallel_layout='" + layout + "'");
  for (const char* format : {"megatron-bridge", "nemo"}) comes_back(format, run);
  const std::string bare =
      "torchrun run_recipe.py train.micro_batch_size=1 model.pipeline_model_parallel_size=8 "
      "model.pipeline_model_parallel_layout='" +
      layout + "'\n";
  CHECK(read_back("megatron-bridge", run, bare).layers_per_stage == run.plan.layers_per_stage);
}

TEST_CASE("what a recipe sets and the plan has not is taken away") {
  const ExportedConfig bridge = exported("megatron-bridge", run_of("qwen3-8b"));
  for (const char* setting :
       {"model.virtual_pipeline_model_parallel_size=null",
        "model.pipeline_model_parallel_layout=null",
        "model.num_layers_in_first_pipeline_stage=null",
        "model.num_layers_in_last_pipeline_stage=null",
        "model.account_for_embedding_in_pipeline_split=false",
        "model.account_for_loss_in_pipeline_split=false", "model.recompute_granularity=null",
        "model.recompute_method=null", "model.recompute_num_layers=null",
        "model.recompute_modules=null", "model.cuda_graph_impl=none", "model.mtp_num_layers=null",
        "optimizer.use_precision_aware_optimizer=false", "optimizer.main_grads_dtype=torch.float32",
        "optimizer.exp_avg_dtype=torch.float32", "optimizer.exp_avg_sq_dtype=torch.float32"}) {
    CAPTURE(setting, bridge.text);
    CHECK(has(bridge, setting));
  }
  const ExportedConfig nemo = exported("nemo", run_of("qwen3-8b"));
  for (const char* setting :
       {"trainer.strategy.virtual_pipeline_model_parallel_size=None",
        "trainer.strategy.pipeline_model_parallel_layout=None",
        "trainer.strategy.num_layers_in_first_pipeline_stage=None",
        "trainer.strategy.num_layers_in_last_pipeline_stage=None",
        "trainer.strategy.account_for_embedding_in_pipeline_split=false",
        "trainer.strategy.account_for_loss_in_pipeline_split=false",
        "model.config.recompute_granularity=None", "model.config.recompute_method=None",
        "model.config.recompute_num_layers=None", "model.config.recompute_modules=None",
        "model.config.mtp_num_layers=None", "optim.config.use_precision_aware_optimizer=false",
        "optim.config.main_grads_dtype=torch.float32"}) {
    CAPTURE(setting, nemo.text);
    CHECK(has(nemo, setting));
  }
}

TEST_CASE("what the plan has is not taken away") {
  RunConfig run = run_of("qwen3-8b", 1, 2);
  run.plan.vpp = 2;
  run.plan.schedule = ScheduleKind::interleaved;
  run.plan.microbatch_group = 2;
  run.plan.overlap_pp = true;
  run.plan.recompute = Recompute::full;
  run.plan.recompute_layers = {18, 18};
  for (const auto& [format, section] :
       {std::pair{"megatron-bridge", "model."}, std::pair{"nemo", "trainer.strategy."}}) {
    const ExportedConfig out = exported(format, run);
    CAPTURE(out.text);
    CHECK(has(out, std::string(section) + "virtual_pipeline_model_parallel_size=2"));
    CHECK(out.text.find("recompute_granularity=full") != std::string::npos);
    CHECK(out.text.find("recompute_method=block") != std::string::npos);
    comes_back(format, run);
  }
  run.plan.layers_per_stage = {19, 17};  // a layout
  run.plan.recompute_layers = {19, 17};
  const ExportedConfig layout = exported("megatron-bridge", run);
  CHECK(layout.text.find("pipeline_model_parallel_layout=\"'") != std::string::npos);
  CHECK(has(layout, "model.virtual_pipeline_model_parallel_size=2"));
  CHECK(has(exported("nemo", run), "trainer.strategy.virtual_pipeline_model_parallel_size=None"));
  run.model.prediction_modules = 1;
  CHECK(has(exported("megatron-bridge", run), "model.mtp_num_layers=1"));
  CHECK(has(exported("nemo", run), "model.config.mtp_num_layers=1"));
}

TEST_CASE("without ZeRO neither switch shards the optimizer") {
  RunConfig run = run_of("qwen3-8b");
  run.plan.zero = 0;
  const ExportedConfig bridge = exported("megatron-bridge", run);
  CAPTURE(bridge.text);
  for (const char* setting :
       {"ddp.use_distributed_optimizer=false", "optimizer.use_distributed_optimizer=false",
        "ddp.overlap_grad_reduce=true", "ddp.overlap_param_gather=false"}) {
    CHECK(has(bridge, setting));
  }
  CHECK(has(exported("nemo", run), "optim.config.use_distributed_optimizer=false"));
  CHECK(has(exported("megatron-bridge", run_of("qwen3-8b")), "ddp.overlap_param_gather=true"));
  for (const char* format : {"megatron-bridge", "nemo"}) comes_back(format, run);
}

TEST_CASE("ZeRO-2 and ZeRO-3 save checkpoints in Megatron-FSDP's format") {
  for (const int zero : {2, 3}) {
    RunConfig run = run_of("qwen3-8b");
    run.plan.zero = zero;
    CHECK(has(exported("megatron-bridge", run), "checkpoint.ckpt_format=fsdp_dtensor"));
    CHECK(has(exported("nemo", run), "trainer.strategy.save_ckpt_format=fsdp_dtensor"));
    for (const char* format : {"megatron-bridge", "nemo"}) comes_back(format, run);
  }
  CHECK(exported("megatron-bridge", run_of("qwen3-8b")).text.find("fsdp") == std::string::npos);
}

TEST_CASE("gradients reduced in 16 bits are a whole section of Megatron-Bridge") {
  RunConfig run = run_of("gpt-oss-20b");
  run.precision = "bf16:adam-bf16-gradients";
  const ExportedConfig out = exported("megatron-bridge", run);
  CAPTURE(out.text);
  CHECK(has(out, "mixed_precision=null"));
  CHECK(has(out,
            "mixed_precision='{_target_:megatron.bridge.training.mixed_precision."
            "MixedPrecisionConfig,grad_reduce_in_fp32:false,bf16:true,params_dtype:torch.bfloat16,"
            "pipeline_dtype:torch.bfloat16}'"));
  CHECK(out.lost.empty());
}

TEST_CASE("context parallelism has the plan's kind, not the recipe's") {
  CHECK(has(exported("megatron-bridge", run_of("qwen3-8b", 1, 1, 2)), "model.cp_comm_type=p2p"));
  CHECK(has(exported("nemo", run_of("qwen3-8b", 1, 1, 2)), "model.config.cp_comm_type=p2p"));
  CHECK(exported("nemo", run_of("qwen3-8b")).text.find("cp_comm_type") == std::string::npos);
}

TEST_CASE("NeMo 2 gets the sequence of the model too, and reads that of the data") {
  const RunConfig run = run_of("qwen3-8b");
  const ExportedConfig out = exported("nemo", run);
  CHECK(has(out, "data.seq_length=4096"));
  CHECK(has(out, "model.config.seq_length=4096"));
  const Result<ImportedConfig> model_alone =
      import_config({{"run.sh", "nemo llm pretrain model.config.seq_length=4096\n"}}, GivenRun{});
  REQUIRE(model_alone);
  CHECK(model_alone->config.sequence == 0);
}

TEST_CASE("what no override takes away from a recipe of NeMo 2 is said") {
  CHECK(noted(exported("nemo", run_of("gpt-oss-20b")), "requires a recipe of your own"));
  CHECK(noted(exported("nemo", run_of("deepseek-v3")), "trainer.callbacks of the recipe"));
  CHECK_FALSE(noted(exported("nemo", run_of("qwen3-8b")), "trainer.callbacks"));
}

// Source: Megatron-LM core_v0.19.0, megatron/core/transformer/transformer_config.py:2634.
TEST_CASE("activations offloaded in a graph of a whole step have a limit of those in flight") {
  RunConfig run = run_of("qwen3-8b");
  run.plan.offload_modules = {OffloadModule::core_attn};
  const auto limit = [&](const char* format) {
    return exported(format, run).arguments.find("max") != std::string::npos &&
           exported(format, run).arguments.find("inflight") != std::string::npos;
  };
  for (const char* format : {"megatron-lm", "megatron-bridge"}) {
    CAPTURE(format);
    run.plan.cuda_graphs = CudaGraphs::layers;
    CHECK_FALSE(limit(format));
    run.plan.cuda_graphs = CudaGraphs::full_iteration;
    CHECK(limit(format));
  }
  CHECK(has(exported("megatron-lm", run), "--fine-grained-offloading-max-inflight-offloads 1"));
}

}  // namespace
}  // namespace echelon
