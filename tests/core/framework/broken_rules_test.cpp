// Combinations that frameworks refuse, by the rules of their tables.
#include <string>

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/job.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// What the rule that the plan breaks says; "" if it breaks none of this part.
std::string broken_part(const char* framework, RulePart part, const ModelSpec& model,
                        const ParallelPlan& plan) {
  const Framework table = find_framework(framework).value();
  const FrameworkRule* rule = broken_rule(table, part, model, *find_precision("bf16"), plan);
  if (rule == nullptr) return {};
  CHECK_FALSE(rule->source.empty());
  return std::string(rule->what);
}

// Source: Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1808-1826.
TEST_CASE("CUDA graphs hold no recomputed part with dropout") {
  ModelSpec model = *load_model("llama3-8b");
  ParallelPlan plan;
  plan.recompute = Recompute::selective;
  const auto refused = [&] {
    return broken_part("megatron-core", RulePart::recomputation, model, plan);
  };
  for (const CudaGraphs graphs : {CudaGraphs::layers, CudaGraphs::full_iteration}) {
    plan.cuda_graphs = graphs;
    for (const RecomputeModules& attention :
         {RecomputeModules{}, RecomputeModules{RecomputeModule::core_attn}}) {
      plan.recompute_modules = attention;
      model.attention_dropout = 0.1;
      CHECK(refused().find("attention dropout") != std::string::npos);
      model.attention_dropout = 0;
      CHECK(refused().empty());
    }
    plan.recompute_modules = {RecomputeModule::mlp};
    model.attention_dropout = 0.1;
    CHECK(refused().empty());
    model.hidden_dropout = 0.1;
    CHECK(refused().find("hidden dropout") != std::string::npos);
    plan.recompute = Recompute::none;
    CHECK(refused().empty());
    plan.recompute = Recompute::selective;
    model.hidden_dropout = model.attention_dropout = 0;
  }
  plan.cuda_graphs = CudaGraphs::none;
  model.hidden_dropout = model.attention_dropout = 0.1;
  CHECK(refused().empty());
}

// Source: DeepSpeed edaa7221, deepspeed/module_inject/auto_ep_presets/registry.py:21.
TEST_CASE("DeepSpeed spreads experts of the families that AutoEP knows") {
  ParallelPlan plan;
  plan.dp = plan.ep = 8;
  const auto refused = [&](const ModelSpec& model) {
    return broken_part("deepspeed", RulePart::degrees, model, plan);
  };
  for (const char* known : {"mixtral-8x7b", "qwen2-57b-a14b", "qwen3-30b-a3b", "qwen3.5-35b-a3b",
                            "deepseek-v2", "deepseek-v3", "moonlight-16b-a3b"}) {
    CAPTURE(known);
    CHECK(refused(*load_model(known)).empty());
  }
  for (const char* other : {"gpt-oss-20b", "glm-4.5-air", "olmoe-7b", "qwen3-next-80b-a3b",
                            "kimi-k2", "llama4-scout", "deepseek-v3.2"}) {
    CAPTURE(other);
    CHECK(refused(*load_model(other)).find("AutoEP") != std::string::npos);
  }
  ModelSpec own = *load_model("glm-4.5-air");
  own.architecture = "imported";
  CHECK(refused(own).empty());
  plan.ep = 1;
  CHECK(refused(*load_model("glm-4.5-air")).empty());
}

}  // namespace
}  // namespace echelon
