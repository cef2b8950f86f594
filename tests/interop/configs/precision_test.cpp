// Precisions in exported and imported configurations: the settings of their states, what differs
// where a format has none, and what a file says besides those of the precision that is read.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

const ConfigFormat& precision_format(const char* name) { return **find_config_format(name); }

/// Of Llama 3 8B with ZeRO-1.
ExportedConfig exported_precision(const char* format, const std::string& precision) {
  RunConfig run;
  run.model = *load_model("llama3-8b");
  run.model_name = run.model.name;
  run.framework = "megatron-core";
  run.sequence = 1024;
  run.global_batch = 64;
  run.gpus = run.gpus_per_node = 8;
  run.precision = precision;
  run.plan.dp = run.plan.shard_group = 8;
  run.plan.zero = 1;
  run.plan.layers_per_stage = {run.model.layers};
  run.plan.recompute_layers = {0};
  return export_config(precision_format(format), run);
}

bool states(const ExportedConfig& exported, const std::string& option) {
  return exported.arguments.find("  --" + option + " \\\n") != std::string::npos ||
         exported.arguments.find("  --" + option + "\n") != std::string::npos;
}

TEST_CASE("every fp8 precision is exported with its recipe, and read back") {
  const ConfigFormat& format = precision_format("megatron-lm");
  const std::set<std::string> scaled = {"delayed", "tensorwise", "blockwise", "mxfp8"};
  std::set<std::string> seen;
  for (const ConfigCase& each : row_of(format, &RunConfig::precision)->cases) {
    const std::string name(each.value);
    if (name.find("fp8") == std::string::npos || !seen.insert(name).second) continue;
    const ExportedConfig exported = exported_precision("megatron-lm", name);
    CAPTURE(exported.text);
    CHECK(exported.lost.empty());
    CHECK(std::ranges::count_if(scaled, [&](const std::string& recipe) {
            return states(exported, "fp8-recipe " + recipe);
          }) == 1);
    const Result<ImportedConfig> back = import_config({{"run.sh", exported.text}}, GivenRun{});
    REQUIRE(back);
    CHECK(back->config.precision == name);
  }
  CHECK(seen.size() >= 7);
}

TEST_CASE("DeepSeek's fp8, mxfp8 with Muon and nvfp4 are exported to Megatron-LM") {
  const auto exported = [](const char* precision) {
    ExportedConfig out = exported_precision("megatron-lm", precision);
    CAPTURE(precision, out.text);
    CHECK(out.lost.empty());
    const Result<ImportedConfig> back = import_config({{"run.sh", out.text}}, GivenRun{});
    REQUIRE(back);
    CHECK(back->config.precision == precision);
    CHECK(back->unpriced.empty());
    return out;
  };
  const ExportedConfig deepseek = exported("fp8:deepseek-v3");
  for (const char* option :
       {"fp8-format e4m3", "fp8-recipe blockwise", "fp8-param-gather",
        "use-precision-aware-optimizer", "exp-avg-dtype bf16", "exp-avg-sq-dtype bf16"}) {
    CHECK(states(deepseek, option));
  }
  CHECK_FALSE(states(deepseek, "grad-reduce-in-bf16"));
  const ExportedConfig muon = exported("mxfp8:muon");
  for (const char* option :
       {"fp8-format e4m3", "fp8-recipe mxfp8", "optimizer muon", "grad-reduce-in-bf16"}) {
    CHECK(states(muon, option));
  }
  CHECK_FALSE(states(muon, "fp8-param-gather"));
  CHECK(muon.text.find("# needs Megatron-LM core 0.18") != std::string::npos);
  const ExportedConfig nvfp4 = exported("nvfp4:adam-fp32-master");
  CHECK(states(nvfp4, "fp4-format e2m1"));
}

TEST_CASE("a precision without settings is refused with the nearest one and what differs") {
  const auto lost = [](const char* format, const char* precision) {
    const ExportedConfig out = exported_precision(format, precision);
    REQUIRE(out.lost.size() == 1);
    return std::pair(out.lost.front(), out.text);
  };
  const auto [narrow, script] = lost("megatron-lm", "bf16:adam-8bit");
  CHECK(narrow.instead == "bf16:adam-bf16-states");
  CHECK(narrow.nearest == "moments of 4 instead of 2.03 bytes per parameter");
  CHECK(script.find("--bf16") != std::string::npos);  // not fp32, as without an option
  CHECK(lost("deepspeed", "fp8:deepseek-v3").first.instead == "bf16:deepspeed-zero");
  CHECK(lost("megatron-lm", "fp64").first.instead == "fp32");
}

TEST_CASE("Megatron-Bridge's recipes are those of the priced scaling, and what differs is said") {
  const auto written = [](const char* precision) {
    const ExportedConfig out = exported_precision("megatron-bridge", precision);
    CAPTURE(precision, out.text);
    CHECK(out.lost.empty());
    const std::size_t at = out.arguments.find("mixed_precision=");
    REQUIRE(at != std::string::npos);
    const std::string recipe =
        out.arguments.substr(at, out.arguments.find_first_of(" \n", at) - at);
    std::string differs;
    for (const std::string& note : out.notes) {
      if (note.find("mixed_precision") != std::string::npos) differs += note;
    }
    return std::pair(recipe, differs);
  };
  using Written = std::pair<std::string, std::string>;
  CHECK(written("bf16:adam-fp32-master") == Written("mixed_precision=bf16_mixed", ""));
  CHECK(written("fp8:primary-weights") ==
        Written("mixed_precision=bf16_with_fp8_delayed_scaling_mixed", ""));
  const auto [delayed, fp8_alone] = written("fp8:adam-fp32-master");
  CHECK(delayed == "mixed_precision=bf16_with_fp8_delayed_scaling_mixed");
  CHECK(fp8_alone ==
        "mixed_precision=bf16_with_fp8_delayed_scaling_mixed keeps weights of layers in fp8 alone; "
        "as priced if the recipe's own cfg.mixed_precision is this one with fp8_param_gather = "
        "False, and without this option");
  CHECK(written("fp8:bf16-gradients").first ==
        "mixed_precision=bf16_with_fp8_current_scaling_mixed");
  CHECK(written("fp8:bf16-gradients").second.find("fp32") != std::string::npos);
  CHECK(written("fp8:blockwise").first == "mixed_precision=bf16_with_fp8_subchannel_scaling_mixed");
  CHECK(written("mxfp8:bf16-gradients").first == "mixed_precision=bf16_with_mxfp8_mixed");
  CHECK(written("nvfp4:adam-fp32-master").second.find("fp4_param_gather = False") !=
        std::string::npos);
}

TEST_CASE(
    "a recipe of Megatron-Bridge is read as the nearest precision, and what differs is said") {
  const auto read = [](const std::string& recipe) {
    GivenRun given;
    given.format = "megatron-bridge";
    const Result<ImportedConfig> run = import_config(
        {{"train.sh", "torchrun run_recipe.py mixed_precision=" + recipe + "\n"}}, given);
    REQUIRE(run);
    return std::pair(run->config.precision, run->unpriced.size());
  };
  using Read = std::pair<std::string, std::size_t>;
  CHECK(read("bf16_with_fp8_delayed_scaling_mixed") == Read("fp8:primary-weights", 0));
  CHECK(read("bf16_with_fp8_current_scaling_mixed") == Read("fp8:bf16-gradients", 1));
  CHECK(read("bf16_with_fp8_subchannel_scaling_mixed") == Read("fp8:blockwise", 1));
  CHECK(read("bf16_with_mxfp8_mixed") == Read("mxfp8:bf16-gradients", 1));
  CHECK(read("bf16_with_nvfp4_mixed") == Read("nvfp4:bf16-gradients", 1));
  CHECK(read("bf16-with-fp8-delayed-scaling-mixed") == Read("fp8:primary-weights", 0));
}

TEST_CASE("fp8 of NeMo 2 states its delayed scaling") {
  const ExportedConfig out = exported_precision("nemo", "fp8:adam-fp32-master");
  CHECK(out.arguments.find("trainer.plugins.fp8=hybrid") != std::string::npos);
  CHECK(out.arguments.find("trainer.plugins.fp8_recipe=delayed") != std::string::npos);
}

TEST_CASE("a setting of another precision is not priced in silence") {
  const auto unpriced = [](const std::string& options) {
    const Result<ImportedConfig> run = import_config(
        {{"train.sh", "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 " + options}},
        GivenRun{});
    REQUIRE(run);
    return fmt::format("{}", fmt::join(run->unpriced, "; "));
  };
  CHECK(unpriced("--bf16 --optimizer adam").empty());
  CHECK(unpriced("--bf16 --fp8-format hybrid --grad-reduce-in-bf16") ==
        "train.sh line 1: --grad-reduce-in-bf16 = true, which precision fp8:adam-fp32-master has "
        "not");
  CHECK(unpriced("--bf16 --fp8-format hybrid --grad-reduce-in-bf16 --exp-avg-dtype bf16 "
                 "--exp-avg-sq-dtype bf16")
            .find("--exp-avg-sq-dtype = bf16, which precision fp8:adam-fp32-master has not") !=
        std::string::npos);
  CHECK(unpriced("--fp16 --fp8-format hybrid") ==
        "train.sh line 1: --fp8-format = hybrid, which precision fp16:adam-fp32-master has not");
  CHECK(unpriced("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --optimizer muon") ==
        "train.sh line 1: --optimizer = muon, which precision mxfp8:adam-fp32-master has not");
}

TEST_CASE("Muon's older spelling shards its states layer by layer") {
  const Result<ImportedConfig> run = import_config(
      {{"train.sh",
        "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --bf16 --optimizer dist_muon"}},
      GivenRun{});
  REQUIRE(run);
  CHECK(run->config.precision == "bf16:muon");
  CHECK(run->config.plan.zero == 1);
}

TEST_CASE("an export to Megatron-LM has the options that a plan of its precision asks for") {
  const Framework megatron = find_framework("megatron-core").value();
  ParallelPlan plan;
  plan.dp = plan.shard_group = 8;
  plan.zero = 1;
  plan.layers_per_stage = {32};
  int checked = 0;
  for (const ConfigCase& each :
       row_of(precision_format("megatron-lm"), &RunConfig::precision)->cases) {
    const PrecisionRecipe recipe = find_precision(each.value).value();
    const ExportedConfig exported = exported_precision("megatron-lm", recipe.name);
    for (const FrameworkRemark& remark :
         remarks(megatron, *load_model("llama3-8b"), plan, recipe)) {
      std::string options = remark.text.substr(0, remark.text.find(','));
      CAPTURE(options, exported.arguments);
      for (std::size_t at = 0; at != std::string::npos; at = options.find("--", at + 1)) {
        const std::size_t end = options.find(" --", at);
        const std::size_t length = (end == std::string::npos ? options.size() : end) - at - 2;
        CHECK(states(exported, options.substr(at + 2, length)));
        ++checked;
      }
    }
  }
  CHECK(checked > 40);
}

/// The precision that is read from options of Megatron-LM, and what is not priced of them.
std::pair<std::string, std::vector<std::string>> read_fp8(const std::string& options) {
  const Result<ImportedConfig> run = import_config(
      {{"train.sh",
        "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --bf16 --fp8-format hybrid " +
            options + "\n"}},
      GivenRun{});
  REQUIRE(run);
  return {run->config.precision, run->unpriced};
}

TEST_CASE("an fp8 recipe is read as a precision of its scaling, whose other states are named") {
  CHECK(read_fp8("--fp8-recipe delayed") ==
        std::pair(std::string("fp8:adam-fp32-master"), std::vector<std::string>{}));
  const auto [tensorwise, states] = read_fp8("--fp8-recipe tensorwise");
  CHECK(tensorwise == "fp8:bf16-gradients");
  REQUIRE(states.size() == 1);
  CHECK(states.front().starts_with("train.sh line 1: --fp8-recipe = tensorwise with other states"));
  CHECK(states.front().find("gradients of 2 instead of 4") != std::string::npos);
  CHECK(states.front().find("weights of layers in fp8 alone") != std::string::npos);
  for (const char* options : {"", " --fp8-param-gather", " --use-distributed-optimizer",
                              " --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
                              " --fp8-param-gather --grad-reduce-in-bf16"}) {
    for (const char* recipe : {"tensorwise", "blockwise", "mxfp8"}) {
      CAPTURE(recipe, options);
      const auto [name, other] =
          read_fp8("--fp8-recipe " + std::string(recipe) + std::string(options));
      CHECK(name_of(find_precision(name)->scaling) == recipe);
    }
  }
  CHECK(read_fp8("--fp8-recipe blockwise --grad-reduce-in-bf16").second.empty());
  CHECK(
      read_fp8("--fp8-recipe tensorwise --grad-reduce-in-bf16 --fp8-param-gather").second.empty());
}

TEST_CASE("first and last layers in bf16 are named where they are on") {
  const auto named = [](const std::string& options) {
    return read_fp8("--fp8-recipe delayed " + options).second;
  };
  const std::vector<std::string> both =
      named("--first-last-layers-bf16 --num-layers-at-end-in-bf16 2");
  REQUIRE(both.size() == 1);
  CHECK(both.front() ==
        "train.sh line 1: --first-last-layers-bf16: --num-layers-at-start-in-bf16 1 and "
        "--num-layers-at-end-in-bf16 2; priced are all layers in fp8");
  CHECK(named("--num-layers-at-start-in-bf16 1").empty());
}

}  // namespace
}  // namespace echelon
