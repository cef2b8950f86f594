// torchtitan's recipes in Python: parsed, never executed.
#include <algorithm>
#include <string>

#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

const std::string kRecipe = R"("""Plans.

p.tensor_parallel_degree = 99 in a text is none.
"""
from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.distributed.activation_checkpoint import FullAC


def plan():
    c = llama3_8b(); p = c.parallelism  # its sections
    p.data_parallel_shard_degree = 8
    p.fsdp_reshard_after_forward = "always"
    p.tensor_parallel_degree = 2
    p.pipeline_parallel_degree = 2
    p.num_pp_microbatches = 8
    p.module_fqns_per_model_part = [
        ["tok_embeddings", "layers.0", 'layers.1'],  # "
        ["layers.2", "norm", "lm_head"],
    ]
    c.training.max_context_length = 8192
    c.training.num_tokens_per_microbatch_per_dp_rank = 2 * 8192
    c.training.num_tokens_per_train_step = 128*8192
    c.activation_checkpoint = FullAC.Config()
    c.compile.enable = True
    other.tensor_parallel_degree = 4
    return c
)";

Result<ImportedConfig> read_recipe(const std::string& text) {
  GivenRun given;
  given.gpus = 32;
  return import_config({{"plans.py", text}}, given);
}

std::string recipe_error(const std::string& text) {
  const Result<ImportedConfig> run = read_recipe(text);
  return run ? "no error" : run.error().message();
}

TEST_CASE("a recipe is read through the names of its sections") {
  std::string text = kRecipe;
  const std::size_t parts = text.find("    p.module_fqns");
  text.erase(parts, text.find("    c.training.max") - parts);
  const Result<ImportedConfig> run = read_recipe(text);
  REQUIRE(run);
  CHECK(run->format->name == "torchtitan-main");
  CHECK(run->asks.empty());
  const RunConfig& config = run->config;
  CHECK(config.model_name == "llama3-8b");
  CHECK(config.sequence == 8192);
  CHECK(config.global_batch == 128);
  CHECK(config.plan.tp == 2);
  CHECK(config.plan.pp == 2);
  CHECK(config.plan.dp == 8);
  CHECK(config.plan.microbatch == 2);
  CHECK(config.plan.zero == 3);
  CHECK(config.plan.recompute == Recompute::full);
}

TEST_CASE("modules of chunks over several lines are counted") {
  const Result<ImportedConfig> run = read_recipe(kRecipe);
  REQUIRE(run);
  CHECK(run->config.plan.layers_per_stage == std::vector{2, 1});
}

TEST_CASE("malformed recipes are refused with their line") {
  CHECK(recipe_error("a = [1,\n2\n").find("plans.py line 1: a bracket that is not closed") !=
        std::string::npos);
  CHECK(recipe_error("a = 1\nb = 'x\nc = 2\n").find("line 2: a quote that is not closed") !=
        std::string::npos);
  CHECK(recipe_error("\"\"\"\nno end\n").find("line 1") != std::string::npos);
  std::string text = kRecipe;
  text.replace(text.find("tensor_parallel_degree = 2"), 26, "tensor_parallel_degree = two");
  CHECK(recipe_error(text).find("line 13") != std::string::npos);
  text = kRecipe;
  text.replace(text.find("\"always\""), 8, "\"often\"");
  CHECK(recipe_error(text).find("default, always or never") != std::string::npos);
  text = kRecipe;
  text.replace(text.find("128*8192"), 8, "1000");
  CHECK(recipe_error(text).find("a multiple of the 8192 tokens") != std::string::npos);
}

// What the function that a recipe imports sets itself. Source: torchtitan b5bcd76c,
// torchtitan/models/*/config_registry.py.

std::string on_function(const std::string& family, const std::string& function,
                        const std::string& changes = "") {
  return "from torchtitan.models." + family + ".config_registry import " + function +
         "\n\n\ndef plan():\n    config = " + function + "()\n" + changes + "    return config\n";
}

ImportedConfig recipe_of(const std::string& text) {
  Result<ImportedConfig> run = read_recipe(text);
  INFO((run ? text : run.error().message()));
  REQUIRE(run);
  return *std::move(run);
}

bool not_priced(const ImportedConfig& run, const std::string& what) {
  return std::ranges::any_of(
      run.unpriced, [&](const std::string& each) { return each.find(what) != std::string::npos; });
}

TEST_CASE("a recipe has what its function sets, unless it sets another value") {
  const ImportedConfig large = recipe_of(on_function("llama3", "llama3_70b"));
  CHECK(large.config.plan.tp == 8);
  CHECK(large.config.plan.dp == 4);
  CHECK(large.config.plan.recompute == Recompute::full);
  CHECK(large.config.sequence == 8192);
  CHECK(large.config.plan.microbatch == 8);
  CHECK(large.config.global_batch == 32);
  const auto tp = std::ranges::find(large.findings, ConfigField{plan_part<&ParallelPlan::tp>},
                                    &ConfigFinding::field);
  REQUIRE(tp != large.findings.end());
  CHECK(tp->origin == Origin::found);
  CHECK(tp->from.find("config_registry.llama3_70b") != std::string::npos);
  const ImportedConfig changed = recipe_of(
      on_function("llama3", "llama3_70b", "    config.parallelism.tensor_parallel_degree = 4\n"));
  CHECK(changed.config.plan.tp == 4);
  const ImportedConfig experts = recipe_of(on_function(
      "deepseek_v3", "deepseek_v3_671b", "    config.parallelism.pipeline_parallel_degree = 4\n"));
  CHECK(experts.config.plan.ep == 2);
  CHECK(experts.config.plan.schedule == ScheduleKind::interleaved);
  CHECK(experts.config.plan.recompute == Recompute::selective);
  CHECK(experts.config.sequence == 4096);
  CHECK(not_priced(experts, "compile.components = loss"));
  CHECK_FALSE(not_priced(experts, "disable_cuda_graphs"));
  const ImportedConfig largest = recipe_of(on_function("llama3", "llama3_405b"));
  CHECK(largest.config.plan.overlap_tp);
  CHECK(not_priced(largest, "float8linearconverter"));
  CHECK_FALSE(not_priced(largest, "compile"));
}

TEST_CASE("a function whose settings are not known is named, and so is a model of its own") {
  GivenRun given;
  given.gpus = 32;
  given.model = *load_model("llama3-8b");
  const Result<ImportedConfig> unknown =
      import_config({{"plans.py", on_function("llama3", "llama3_8b_mxfp8")}}, given);
  REQUIRE(unknown);
  CHECK(not_priced(*unknown, "llama3_8b_mxfp8, whose own settings are not known"));
  const ImportedConfig own = recipe_of(on_function(
      "llama3", "llama3_8b", "    config.model_spec = my_registry(\"8B\", layers=4)\n"));
  CHECK(std::ranges::any_of(own.asks,
                            [](const std::string& each) { return each.starts_with("--model:"); }));
}

RunConfig recipe_run(const char* model) {
  RunConfig run;
  run.model = *load_model(model);
  run.model_name = model;
  run.framework = "torchtitan";
  run.sequence = 4096;
  run.global_batch = 128;
  run.precision = "bf16:fsdp-fp32-shards";
  run.gpus = 64;
  run.gpus_per_node = 8;
  run.plan.dp = run.plan.shard_group = 64;
  run.plan.zero = 3;
  run.plan.layers_per_stage = {run.model.layers};
  run.plan.recompute_layers = {0};
  return run;
}

// Source: torchtitan v0.3.0, torchtitan/trainer.py:179, _validate_cuda_graphs.
TEST_CASE("a recipe states whether it runs in CUDA graphs, with compiled model and loss") {
  const ConfigFormat& format = **find_config_format("torchtitan-main");
  for (const char* model : {"llama3-8b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b"}) {
    for (const bool graphs : {false, true}) {
      RunConfig run = recipe_run(model);
      run.plan.cuda_graphs = graphs ? CudaGraphs::full_iteration : CudaGraphs::none;
      const ExportedConfig exported = export_config(format, run);
      CAPTURE(exported.text);
      const auto has = [&](const std::string& text) {
        return exported.text.find(text) != std::string::npos;
      };
      CHECK(exported.lost.empty());
      CHECK(has(graphs ? "config.training.disable_cuda_graphs = False"
                       : "config.training.disable_cuda_graphs = True"));
      CHECK(has("config.compile.components = [\"model\", \"loss\"]"));
      // Its own attention has lists of documents, whose shapes change.
      CHECK(has("attn_backend=\"flex\"") == (graphs && run.model.attention_sinks));
      const ImportedConfig back = recipe_of(exported.text);
      CHECK(back.unpriced.empty());
      CHECK(back.config.plan.cuda_graphs == run.plan.cuda_graphs);
    }
  }
  RunConfig unnamed = recipe_run("olmoe-7b");  // the user's function, with this argument
  unnamed.plan.ep = 8;
  unnamed.plan.dispatcher = Dispatcher::hybridep;
  const ExportedConfig own = export_config(format, unnamed);
  CAPTURE(own.text);
  CHECK(own.lost.empty());
  CHECK(own.text.find("from FILL_IN import model_registry") != std::string::npos);
  CHECK(own.text.find("model_registry(\"FILL_IN\", moe_comm_backend=\"hybridep\")") !=
        std::string::npos);
  RunConfig layers = recipe_run("llama3-8b");
  layers.plan.cuda_graphs = CudaGraphs::layers;
  CHECK_FALSE(export_config(format, layers).lost.empty());
  const auto graphs_of = [](const char* family, const char* function) {
    return recipe_of(on_function(family, function)).config.plan.cuda_graphs;
  };
  CHECK(graphs_of("llama3", "llama3_8b") == CudaGraphs::full_iteration);
  CHECK(graphs_of("deepseek_v3", "deepseek_v3_671b") == CudaGraphs::none);  // its own setting
  const ConfigFormat& release = **find_config_format("torchtitan-toml");
  RunConfig run = recipe_run("llama3-8b");
  run.plan.cuda_graphs = CudaGraphs::full_iteration;
  const ExportedConfig older = export_config(release, run);
  REQUIRE(older.lost.size() == 1);
  CHECK(older.lost.front().why.starts_with("CUDA graphs, which releases with TOML files"));
}

TEST_CASE("a model without a function of its own is written into another's") {
  struct Written {
    const char* model;
    const char* function;
    const char* flavor;
  };
  for (const Written& each :
       {Written{"llama3.1-405b", "llama3_70b", "405B"}, Written{"qwen3-8b", "qwen3_14b", "8B"},
        Written{"qwen3-235b-a22b", "qwen3_30b_a3b", "235B-A22B"}}) {
    for (const char* name : {"torchtitan", "torchtitan-main"}) {
      CAPTURE(each.model, name);
      const ExportedConfig exported =
          export_config(**find_config_format(name), recipe_run(each.model));
      CAPTURE(exported.text);
      CHECK(exported.lost.empty());
      CHECK(exported.text.find(std::string("config_registry import ") + each.function + "\n") !=
            std::string::npos);
      CHECK(exported.text.find(std::string("import model_registry\n")) != std::string::npos);
      CHECK(exported.text.find(std::string("config.model_spec = model_registry(\"") + each.flavor +
                               "\")\n") != std::string::npos);
      const ImportedConfig back = recipe_of(exported.text);
      CHECK(back.format->name == name);
      CHECK(back.config.model_name == each.model);
      CHECK(back.unpriced.empty());
      CHECK(back.asks.empty());
    }
  }
}

// Source: torchtitan v0.3.0, torchtitan/config/configs.py, local_batch_size, and trainer.py:414.
TEST_CASE("a recipe of the release counts its batch in sequences") {
  const ImportedConfig defaults =
      recipe_of(on_function("qwen3", "qwen3_32b",
                            "    config.training.local_batch_size = 4\n"
                            "    config.training.global_batch_size = 256\n"));
  CHECK(defaults.format->name == "torchtitan");
  CHECK(defaults.config.sequence == 4096);
  CHECK(defaults.config.plan.microbatch == 4);
  CHECK(defaults.config.global_batch == 256);
  const ImportedConfig pipeline =
      recipe_of(on_function("qwen3", "qwen3_32b",
                            "    config.training.local_batch_size = 16\n"
                            "    config.parallelism.pipeline_parallel_degree = 4\n"
                            "    config.parallelism.pipeline_parallel_microbatch_size = 2\n"));
  CHECK(pipeline.config.plan.dp == 8);
  CHECK(pipeline.config.plan.microbatch == 2);
  CHECK(pipeline.config.global_batch == 128);
  const ImportedConfig other =
      recipe_of(on_function("qwen3", "qwen3_32b",
                            "    config.training.seq_len = 2048\n"
                            "    config.model_spec = model_registry('4B')\n"));
  CHECK(other.config.model_name == "qwen3-4b");
  CHECK(other.config.plan.microbatch == 2);
  CHECK(other.config.plan.recompute == Recompute::full);
}

// Source: torchtitan b5bcd76c, torchtitan/models/common/decoder.py:176.
TEST_CASE("context parallelism of GPT-OSS asks for FlexAttention") {
  const ConfigFormat& format = **find_config_format("torchtitan-main");
  RunConfig run = recipe_run("gpt-oss-20b");
  CHECK(export_config(format, run).text.find("model_registry") == std::string::npos);
  run.plan.cp = 2;
  run.plan.dp = 32;
  const ExportedConfig exported = export_config(format, run);
  CAPTURE(exported.text);
  CHECK(exported.lost.empty());
  CHECK(exported.text.find("model_registry(\"20b\", attn_backend=\"flex\")") != std::string::npos);
  CHECK(recipe_of(exported.text).asks.empty());
}

// Source: torchtitan v0.3.0, torchtitan/models/common/config_utils.py:361.
TEST_CASE("the dispatcher of experts is an argument of the model's registry") {
  const ConfigFormat& format = **find_config_format("torchtitan");
  RunConfig run = recipe_run("gpt-oss-20b");
  run.plan.ep = 8;
  run.plan.cp = 2;
  run.plan.dp = 32;
  for (const Dispatcher dispatcher :
       {Dispatcher::alltoall, Dispatcher::deepep, Dispatcher::hybridep}) {
    run.plan.dispatcher = dispatcher;
    const ExportedConfig exported = export_config(format, run);
    CAPTURE(exported.text);
    CHECK(exported.lost.empty());
    const bool named = exported.text.find("moe_comm_backend") != std::string::npos;
    CHECK(named == (dispatcher != Dispatcher::alltoall));
    const ImportedConfig back = recipe_of(exported.text);
    CHECK(back.config.plan.dispatcher == dispatcher);
    CHECK(back.config.plan.cp == 2);
    CHECK(back.asks.empty());
  }
  CHECK(recipe_error(on_function("gpt_oss", "gpt_oss_20b",
                                 "    config.model_spec = model_registry(\"20b\", "
                                 "moe_comm_backend='minimal_async_ep')\n"))
            .find("minimal_async_ep") != std::string::npos);
}

TEST_CASE("recipes attend within documents") {
  CHECK(recipe_of(on_function("llama3", "llama3_8b")).config.packed_documents);
}

}  // namespace
}  // namespace echelon
