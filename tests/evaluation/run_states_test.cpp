// States per parameter that the recipes behind measured runs keep.
#include "evaluation/run_states.hpp"

#include "core/model/model_io.hpp"
#include "tests/evaluation/table_rows.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

struct Case {
  std::string framework = "megatron-core";
  std::string detail{}, locator{};
  std::string precision = "bf16";
  std::string precision_detail{};
  std::string model = "llama3-8b", cluster = "dgx-h100";
};

PrecisionRecipe states_of(const Case& c, std::vector<std::string>& inferred) {
  MeasuredRun row;
  row.framework = c.framework;
  row.framework_detail = c.detail;
  row.locator = c.locator;
  row.precision = c.precision;
  row.precision_detail = c.precision_detail;
  const Software software = software_of(row);
  return with_states(recipe_of(row, software).value(), row, software, load_model(c.model).value(),
                     ClusterTopology::load(c.cluster, 8).value().gpu(), inferred);
}

PrecisionRecipe states_of(const Case& c) {
  std::vector<std::string> inferred;
  return states_of(c, inferred);
}

constexpr const char* kBridge = "NVIDIA Megatron-Bridge skills measured_results";

}  // namespace

TEST_CASE("recipes tuned for speed keep and reduce gradients in 16 bits, plain Megatron-LM in 32") {
  std::vector<std::string> inferred;
  const PrecisionRecipe bridge = states_of({.locator = kBridge}, inferred);
  CHECK(bridge.main_gradient == 2);
  CHECK(bridge.reduced_gradient == 2);
  REQUIRE(inferred.size() == 1);
  CHECK(inferred.front() == "gradients kept and reduced in bf16");
  CHECK(states_of({.framework = "nemo"}).main_gradient == 2);
  CHECK(states_of({.framework = "nemo-mlperf"}).main_gradient == 2);
  CHECK(states_of({}).main_gradient == 4);
  CHECK(states_of({.framework = "nemo", .detail = "Megatron-LM 2023"}).main_gradient == 4);
  for (const char* said :
       {"fp32 grad reduce", "grad_reduce_in_fp32=True", "reduce_dtype=float32"}) {
    CAPTURE(said);
    CHECK(states_of({.locator = kBridge, .precision_detail = said}).main_gradient == 4);
  }
}

TEST_CASE("software that keeps every state in bf16 has 8 bytes per parameter, also beside fp8") {
  for (const char* precision : {"bf16", "fp8"}) {
    CAPTURE(precision);
    const PrecisionRecipe pure = states_of({.framework = "litgpt",
                                            .precision = precision,
                                            .precision_detail = "pure bf16: weights and moments"});
    CHECK(pure.weight + pure.main_gradient + pure.master + pure.moments == 8);
    CHECK(pure.reduced_gradient == 2);
    CHECK(name_of(pure.compute) == precision);
  }
  CHECK(states_of({.framework = "litgpt"}).moments == 8);
}

TEST_CASE("tuned recipes of models with latent attention keep 16-bit moments") {
  CHECK(states_of({.locator = kBridge, .model = "deepseek-v3"}).moments == 4);
  CHECK(states_of({.locator = kBridge}).moments == 8);
  CHECK(states_of({.model = "deepseek-v3"}).moments == 8);
}

TEST_CASE("pure bf16 keeps one copy of the weights, gradients and moments in 16 bits") {
  const PrecisionRecipe pure =
      states_of({.framework = "fsdp1", .precision_detail = "pure bf16: weights and moments"});
  CHECK(pure.weight + pure.gradient + pure.main_gradient + pure.master + pure.moments == 8);
  CHECK(states_of({.framework = "fsdp1"}).moments == 8);
}

TEST_CASE("pure bf16 reduces gradients in the format that the row states") {
  CHECK(states_of({.precision_detail = "pure bf16"}).reduced_gradient == 2);
  const PrecisionRecipe wide =
      states_of({.precision_detail = "pure bf16: weights; gradients reduced in fp32"});
  CHECK(wide.reduced_gradient == 4);
  CHECK(wide.main_gradient == 2);
}

// torchtitan's pull request 1033 of 2025-04 compiles the loss with the model.
TEST_CASE("a compiled torchtitan has a compiled loss since April of 2025") {
  const auto logits = [](const char* date, bool compiled) {
    MeasuredRun row;
    row.framework = "torchtitan";
    row.date = date;
    row.torch_compile = compiled;
    const Software software = software_of(row);
    Framework framework = *software.framework;
    std::vector<std::string> inferred;
    set_loss_memory(row, *software.defaults, 1, framework, inferred);
    CHECK(software.defaults->same_code);
    return framework.logits_bytes;
  };
  CHECK(logits("2025-04", true) == 4);
  CHECK(logits("2025-03", true) == 12);
  CHECK(logits("", true) == 12);
  CHECK(logits("2025-09", false) == logits("2025-03", false));
}

TEST_CASE("KempnerForge's loss holds whole logits on every tensor-parallel rank") {
  MeasuredRun row;
  row.framework = "kempnerforge";
  row.torch_compile = true;
  const Software software = software_of(row);
  for (const int tp : {1, 4}) {
    CAPTURE(tp);
    Framework framework = *software.framework;
    std::vector<std::string> inferred;
    set_loss_memory(row, *software.defaults, tp, framework, inferred);
    CHECK(framework.logits_bytes == 8 * tp);  // a rank's share is 1/tp
    CHECK(framework.loss_traffic == software.framework->loss_traffic * tp);
    CHECK(inferred.size() == (tp > 1 ? 2 : 1));
  }
}

TEST_CASE("fp8 weights stand next to bf16 ones, or replace them in tuned recipes") {
  const auto layer_weight = [](const std::string& locator, const std::string& precision,
                               const std::string& cluster, const std::string& detail = "") {
    return states_of({.locator = locator,
                      .precision = precision,
                      .precision_detail = detail,
                      .cluster = cluster})
        .layer_weight;
  };
  CHECK(layer_weight("", "bf16", "dgx-h100") == 0);
  CHECK(layer_weight("", "fp8", "dgx-h100") == 2);  // row and transpose
  CHECK(layer_weight("", "fp8", "dgx-b200") == 1);  // no transpose needed
  CHECK(layer_weight("", "mxfp8", "dgx-b200") == 2);
  CHECK(layer_weight(kBridge, "fp8", "dgx-h100") == 0);
  CHECK(layer_weight(kBridge, "fp8", "dgx-b200") == -1);
  CHECK(layer_weight(kBridge, "mxfp8", "dgx-b200") == 0);
  CHECK(layer_weight(kBridge, "fp8", "dgx-h100", "fp8 subchannel 128x128/1x128") == 2);
}

// KempnerForge 5666d0d1, kempnerforge/training/grad.py, maybe_no_sync: nothing to wait for in a
// step of one microbatch.
TEST_CASE("a software that accumulates gradients whole does so over several microbatches alone") {
  MeasuredRun run = row_of(whole_table(), "kempnerforge-0012");  // 2 microbatches
  CHECK(mapped(run).framework.accumulates_whole);
  run.global_batch = *run.microbatch * *run.dp;
  run.grad_accumulation = 1;
  CHECK_FALSE(mapped(run).framework.accumulates_whole);
  CHECK_FALSE(mapped(row_of(whole_table(), "torchtitan-qwen3-0001")).framework.accumulates_whole);
}

}  // namespace echelon
