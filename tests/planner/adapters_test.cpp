// Which adapters are planned, with what schedules, and what explanations say of them.
#include "core/plan/adapters.hpp"

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "planner/explain/traffic.hpp"
#include "planner/search/predict.hpp"
#include "planner/space/legality.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("adapters that no framework trains, or that have no price, are refused") {
  const auto reason = [](const char* model, const char* framework, const char* adapters) {
    const auto refused =
        check_adapters(load_model(model).value(), parse_adapters(adapters, "", {}).value(),
                       find_framework(framework).value());
    return refused ? refused->detail : std::string("none");
  };
  CHECK(reason("llama2-7b", "megatron-core", "8:linear_qkv,linear_fc1") == "none");
  CHECK(reason("llama2-7b", "deepspeed", "8:linear_fc2") == "none");
  CHECK(reason("qwen3-30b-a3b", "megatron-core", "8:linear_qkv,linear_proj") == "none");
  CHECK(reason("llama2-7b", "nanotron", "8:linear_qkv") ==
        "nanotron has no training of adapters (LoRA): it trains all parameters");
  CHECK(reason("llama2-7b", "hai-llm", "8:linear_qkv").starts_with("hai-llm has no"));
  CHECK(reason("llama2-7b", "echelon", "8:linear_qkv,linear_fc1") == "none");
  for (const char* model : {"qwen3-30b-a3b", "deepseek-v3"}) {
    CHECK(reason(model, "echelon", "8:linear_qkv") ==
          "echelon has no adapters in models with experts or latent attention (MLA)");
  }
  CHECK(reason("qwen3-30b-a3b", "megatron-core", "8:linear_fc1") ==
        "adapters on experts (linear_fc1, linear_fc2)");
  CHECK(reason("deepseek-v3", "megatron-core", "8:linear_proj") ==
        "adapters on latent attention (MLA)");
  CHECK(reason("qwen3-next-80b-a3b", "megatron-core", "8:linear_proj") ==
        "adapters on layers without attention");
}

TEST_CASE("adapters leave nothing for a zero-bubble schedule to put off") {
  PlanRequest request = request_for("llama2-70b", "dgx-h100", 8);
  request.job.adapters = parse_adapters("16:linear_qkv", "", {}).value();
  request.constraints.pin<&ParallelPlan::pp>(2);
  ParallelPlan plan = predict(request).value().plan;
  plan.schedule = ScheduleKind::zero_bubble_h1;
  const auto refused = check_schedule(request.model, request.job, request.framework, plan);
  REQUIRE(refused);
  CHECK(refused->detail.find("no gradients to put off") != std::string::npos);
}

// Source: DeepSpeed edaa7221, runtime/pipe/module.py: a PipelineModule is a list of layers.
TEST_CASE("a pipeline of DeepSpeed takes neither PEFT's models nor those of transformers") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 8, "deepspeed");
  ParallelPlan plan;
  plan.pp = 2;
  plan.dp = plan.shard_group = 4;
  const auto reason = [&] {
    const auto refused =
        check_degrees(request.model, request.job, request.cluster, request.framework, plan);
    return refused ? refused->detail : std::string("none");
  };
  CHECK(reason() == "none");
  request.job.layer_code = LayerCode::transformers;
  CHECK(reason() == "deepspeed has no pipeline stages of a model of transformers (--layer-code)");
  request.job.layer_code = LayerCode::fused;
  request.job.adapters = parse_adapters("16:linear_qkv", "", {}).value();
  CHECK(reason() == "deepspeed has no pipeline stages of a model with PEFT's adapters (--lora)");
  plan.pp = 1;
  plan.dp = plan.shard_group = 8;
  CHECK(reason() == "none");
}

TEST_CASE("explanations count the traffic of adapters alone") {
  PlanRequest request = request_for("llama2-70b", "dgx-h100", 8);
  request.job.adapters = parse_adapters("16:linear_qkv", "", {}).value();
  request.constraints.pin<&ParallelPlan::tp>(2);
  request.constraints.pin<&ParallelPlan::pp>(2);
  request.constraints.pin<&ParallelPlan::zero>(1);
  const Candidate candidate = predict(request).value();
  constexpr double kAdapters = 16.0 * 40 * (8192 + 10240) / 2;  // of 40 layers on one of two ranks
  const std::vector<Traffic> sent = traffic_of(request, candidate.plan, Axis::dp);
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].payload.in(kByte) == Approx(4 * kAdapters));
  CHECK(sent[1].payload.in(kByte) == Approx(2 * kAdapters));
}
