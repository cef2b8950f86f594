// Adapters that the runtime does not train, and quantised weights: named before a run begins.
#include <string>

#include "core/model/model_io.hpp"
#include "runtime/training/run.hpp"
#include "tests/runtime/training/small_models.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

PlanFile adapted_plan(const ModelSpec& model) {
  PlanFile file;
  file.model = model;
  file.plan.layers_per_stage = {model.layers};
  file.plan.recompute_layers = {0};
  file.job.sequence = 64;
  file.job.global_batch = 1;
  file.job.precision = find_precision("fp32").value();
  file.job.adapters = parse_adapters("4:linear_qkv", "test", {}).value();
  return file;
}

std::string refusal_of(const PlanFile& file) {
  const Status executable = check_executable(file, "cpu");
  if (!executable) CHECK(executable.error().kind == Error::Kind::input);
  return executable ? "" : executable.error().message();
}

}  // namespace

TEST_CASE("the runtime takes adapters of dense models") {
  CHECK(refusal_of(adapted_plan(load_model("gpt2-tiny").value())) == "");
  CHECK(refusal_of(adapted_plan(load_model("llama3.2-1b").value())) == "");
}

TEST_CASE("the runtime refuses other adapters, and weights in 4 bits under them, by name") {
  PlanFile file = adapted_plan(load_model("gpt2-tiny").value());
  file.plan.schedule = ScheduleKind::zero_bubble_h1;
  CHECK(mentions(refusal_of(file), "schedule zb-h1 with adapters (--lora)"));
  file.plan.schedule = ScheduleKind::one_f_one_b;
  file.job.adapters->targets = {};
  CHECK(mentions(refusal_of(file), "adapters (--lora) on no matrix"));
  file.job.quantized_weights = QuantizedWeights{.double_quant = true};
  CHECK(mentions(refusal_of(file),
                 "weights in nf4:double-quant (--quantized-weights) under adapters (--lora)"));
  CHECK(mentions(refusal_of(adapted_plan(load_model("mixtral-8x7b").value())),
                 "adapters (--lora) in a model with experts"));
  const ModelSpec latent = like_deepseek(load_model("llama3.2-1b").value(), {.kv_lora_rank = 64,
                                                                             .q_lora_rank = 0,
                                                                             .qk_nope_head_dim = 32,
                                                                             .qk_rope_head_dim = 32,
                                                                             .v_head_dim = 64});
  CHECK(mentions(refusal_of(adapted_plan(latent)),
                 "adapters (--lora) in a model with latent attention (MLA)"));
}
