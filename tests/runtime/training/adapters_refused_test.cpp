// Adapters and quantised weights, which the runtime does not train: named before a run begins.
#include <string>

#include "core/model/model_io.hpp"
#include "runtime/training/run.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

TEST_CASE("the runtime refuses adapters, and weights in 4 bits under them, by name") {
  PlanFile file;
  file.model = load_model("gpt2-tiny").value();
  file.plan.layers_per_stage = {file.model.layers};
  file.plan.recompute_layers = {0};
  file.job.sequence = 64;
  file.job.global_batch = 1;
  file.job.adapters = parse_adapters("4:linear_qkv", "test", {}).value();
  const Status adapters = check_executable(file, "cpu");
  REQUIRE_FALSE(adapters.ok());
  CHECK(adapters.error().kind == Error::Kind::input);
  CHECK(mentions(adapters.error().message(), "adapters (--lora) on frozen weights"));
  file.job.quantized_weights = QuantizedWeights{.double_quant = true};
  const Status quantized = check_executable(file, "cpu");
  REQUIRE_FALSE(quantized.ok());
  CHECK(mentions(quantized.error().message(),
                 "weights in nf4:double-quant (--quantized-weights) under adapters (--lora)"));
}
