// torchtitan's recipes in Python: parsed, never executed.
#include <string>

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
  CHECK(run->format->name == "torchtitan-recipe");
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

}  // namespace
}  // namespace echelon
