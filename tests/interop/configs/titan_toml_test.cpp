// torchtitan's last release with TOML files: what it runs by default, and what it cannot run.
#include <algorithm>
#include <string>

#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using P = ParallelPlan;

RunConfig titan_run(const char* model, int tp, int cp, int pp) {
  RunConfig run;
  run.model = *load_model(model);
  run.model_name = model;
  run.framework = "torchtitan";
  run.sequence = 4096;
  run.global_batch = 128;
  run.precision = "bf16:fsdp-fp32-shards";
  run.gpus = 64;
  run.gpus_per_node = 8;
  P& plan = run.plan;
  plan.tp = tp;
  plan.cp = cp;
  plan.pp = pp;
  plan.dp = 64 / tp / cp / pp;
  plan.shard_group = plan.dp * cp;
  plan.zero = 3;
  plan.sequence_parallel = tp > 1;
  plan.etp = run.model.moe.experts > 0 ? tp : 1;
  for (int stage = 0; stage < pp; ++stage) {
    const int rest = stage < run.model.layers % pp ? 1 : 0;
    plan.layers_per_stage.push_back(run.model.layers / pp + rest);
  }
  plan.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
  return run;
}

ExportedConfig as_format(const char* format, const RunConfig& run) {
  return export_config(**find_config_format(format), run);
}

std::string why_degree_is_lost(const ExportedConfig& exported, const ConfigField& field) {
  const auto at = std::ranges::find(exported.lost, field, &Inexpressible::field);
  return at == exported.lost.end() ? "" : at->why;
}

Result<ImportedConfig> read_toml_run(const std::string& text) {
  GivenRun given;
  given.gpus = 64;
  return import_config({{"run.toml", text}}, given);
}

// Source: torchtitan v0.2.2, torchtitan/models/qwen3/__init__.py:199, gpt_oss/__init__.py:85,
// gpt_oss/model/args.py:89, deepseek_v3/model/args.py:104.
TEST_CASE("TOML files cannot express what their release refuses, and recipes in Python can") {
  struct Refused {
    const char* model;
    int cp, pp;
    const char* why;
  };
  for (const Refused& each : {Refused{"qwen3-32b", 1, 4, "a pipeline of GPT-OSS or Qwen3"},
                              Refused{"gpt-oss-20b", 1, 4, "a pipeline of GPT-OSS or Qwen3"},
                              Refused{"gpt-oss-20b", 2, 1, "context parallelism of windows"},
                              Refused{"deepseek-v3", 2, 1, "context parallelism of DeepSeek-V3"}}) {
    CAPTURE(each.model, each.cp, each.pp);
    const RunConfig run = titan_run(each.model, 1, each.cp, each.pp);
    const ConfigField degree = each.pp > 1 ? plan_part<&P::pp> : plan_part<&P::cp>;
    const ExportedConfig toml = as_format("torchtitan-toml", run);
    CAPTURE(toml.text);
    CHECK(why_degree_is_lost(toml, degree).find(each.why) != std::string::npos);
    CHECK(toml.text.find("v0.3.0") == std::string::npos);
    const ExportedConfig recipe = as_format("torchtitan", run);
    CAPTURE(recipe.text);
    CHECK(recipe.lost.empty());
  }
  CHECK(as_format("torchtitan-toml", titan_run("llama3-70b", 8, 2, 2)).lost.empty());
  CHECK(as_format("torchtitan-toml", titan_run("qwen3-32b", 8, 2, 1)).lost.empty());
}

TEST_CASE("a TOML file that its release refuses is refused with its line") {
  const Result<ImportedConfig> pipeline = read_toml_run(
      "[model]\nname = \"qwen3\"\nflavor = \"32B\"\n[parallelism]\npipeline_parallel_degree = 4\n");
  REQUIRE_FALSE(pipeline);
  const std::string message = pipeline.error().message();
  CAPTURE(message);
  CHECK(message.find("run.toml line 5") != std::string::npos);
  CHECK(message.find("v0.2.2 has no pipeline of GPT-OSS or Qwen3") != std::string::npos);
  CHECK(
      read_toml_run("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
                    "pipeline_parallel_degree = 4\ncontext_parallel_degree = 2\n"));
}

// Source: torchtitan v0.2.2, torchtitan/config/job_config.py:652-655.
TEST_CASE("selective recomputation of torchtitan is of every second layer unless it says op") {
  const auto noted = [](const std::string& section) {
    const Result<ImportedConfig> read = read_toml_run(
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[compile]\nenable = true\n" + section);
    REQUIRE(read);
    CHECK(read->unpriced.size() <= 1);
    return read->unpriced.empty() ? std::string() : read->unpriced.front();
  };
  constexpr const char* kSecond = "recomputes one of every 2 layers fully";
  CHECK(noted("").find(kSecond) != std::string::npos);
  CHECK(noted("[activation_checkpoint]\nmode = \"selective\"\n").find(kSecond) !=
        std::string::npos);
  CHECK(noted("[activation_checkpoint]\nselective_ac_option = \"3\"\n")
            .find("one of every 3 layers") != std::string::npos);
  CHECK(noted("[activation_checkpoint]\nselective_ac_option = \"op\"\n").empty());
  CHECK(noted("[activation_checkpoint]\nmode = \"full\"\nselective_ac_option = \"2\"\n").empty());
  CHECK(noted("[activation_checkpoint]\nmode = \"none\"\n").empty());
}

TEST_CASE("attention of torchtitan's DeepSeek-V3 stays within documents") {
  const auto masks = [](const char* name, const char* flavor) {
    const Result<ImportedConfig> read = read_toml_run(std::string("[model]\nname = \"") + name +
                                                      "\"\nflavor = \"" + flavor + "\"\n");
    REQUIRE(read);
    return read->config.packed_documents;
  };
  CHECK(masks("deepseek_v3", "671B"));
  CHECK_FALSE(masks("llama3", "8B"));
  const ExportedConfig exported = as_format("torchtitan-toml", titan_run("deepseek-v3", 1, 1, 1));
  CHECK(exported.lost.empty());
  CHECK(exported.text.find("# attention stays within the documents") != std::string::npos);
}

}  // namespace
}  // namespace echelon
