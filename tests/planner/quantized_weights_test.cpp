// Which plans take weights in 4 bits, and what explanations say of them.
#include "core/plan/quantized_weights.hpp"

#include "planner/explain/traffic.hpp"
#include "planner/search/predict.hpp"
#include "planner/search/search.hpp"
#include "planner/space/legality.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

PlanRequest quantized_request(const char* model, const char* framework, int gpus,
                              const char* quantized = "nf4") {
  PlanRequest request = request_for(model, "dgx-h100", gpus, framework);
  request.job.sequence = 2048;
  request.job.global_batch = 16;
  request.job.adapters = parse_adapters("16:linear_qkv,linear_proj", "", {}).value();
  request.job.quantized_weights = parse_quantized_weights(quantized, "").value();
  return request;
}

std::string quantized_reason(const PlanRequest& r) {
  const auto refused = check_quantized_weights(r.model, r.job, r.framework);
  return refused ? refused->detail : std::string("none");
}

}  // namespace

TEST_CASE("weights in 4 bits need adapters, a framework with bitsandbytes, and dense layers") {
  CHECK(quantized_reason(quantized_request("llama2-70b", "deepspeed", 8)) == "none");
  CHECK(quantized_reason(quantized_request("llama2-70b", "torchtitan", 8, "nf4:fp32-rest")) ==
        "none");
  CHECK(quantized_reason(quantized_request("llama2-70b", "llm-foundry", 8)) == "none");
  CHECK(quantized_reason(quantized_request("llama2-70b", "megatron-core", 8)) ==
        "megatron-core has no weights in nf4");
  CHECK(quantized_reason(quantized_request("llama2-70b", "deepspeed", 8, "nf4:fp32-rest")) ==
        "weights in nf4:fp32-rest: deepspeed casts all parameters to bf16");
  CHECK(quantized_reason(quantized_request("qwen3-30b-a3b", "deepspeed", 8)) ==
        "weights in nf4 of experts");
  PlanRequest all = quantized_request("llama2-7b", "deepspeed", 8);
  all.job.adapters = std::nullopt;
  CHECK(quantized_reason(all) == "weights in nf4 without adapters (LoRA), which alone are trained");
  PlanRequest wide = quantized_request("llama2-7b", "deepspeed", 8);
  wide.job.precision = find_precision("fp32").value();
  CHECK(quantized_reason(wide) == "weights in nf4 and products in fp32");
}

TEST_CASE("nothing splits packed weights but FSDP and ZeRO, and whole layers are recomputed") {
  const PlanRequest request = quantized_request("llama2-70b", "torchtitan", 8, "nf4:fp32-rest");
  const auto refused = [&](auto change) {
    ParallelPlan plan;
    change(plan);
    std::optional<Rejection> found = check_degrees_of_quantized(request.job, plan);
    if (!found) found = check_zero_of_quantized(request.job, plan);
    if (!found) found = check_recompute_of_quantized(request.job, plan);
    return found ? found->detail : std::string("none");
  };
  CHECK(refused([](ParallelPlan& p) { p.dp = 8; }) == "none");
  CHECK(refused([](ParallelPlan& p) { p.recompute = Recompute::full; }) == "none");
  CHECK(refused([](ParallelPlan& p) { p.tp = 2; }).find("tensor parallelism") != std::string::npos);
  CHECK(refused([](ParallelPlan& p) { p.pp = 2; }).find("pipeline stages") != std::string::npos);
  CHECK(refused([](ParallelPlan& p) { p.zero = 3; }) ==
        "weights in nf4:fp32-rest at ZeRO-3: FSDP shards parameters of one format");
  CHECK(refused([](ParallelPlan& p) {
          p.recompute = Recompute::selective;
        }).find("transformers recomputes whole layers") != std::string::npos);
}

TEST_CASE("a search keeps to what transformers and bitsandbytes run") {
  PlanRequest request = quantized_request("llama2-70b", "torchtitan", 4);
  const SearchOutcome found = search(request).value();
  REQUIRE(!found.candidates.empty());
  for (const Candidate& each : found.candidates) {
    const ParallelPlan& plan = each.plan;
    CAPTURE(plan.tp, plan.pp, plan.zero);
    CHECK(plan.tp == 1);
    CHECK(plan.pp == 1);
    CHECK(plan.recompute != Recompute::selective);
  }
}

TEST_CASE("explanations count gathers of packed weights") {
  PlanRequest request = quantized_request("llama2-70b", "torchtitan", 8);
  request.constraints.pin<&ParallelPlan::zero>(3);
  const Candidate packed = predict(request).value();
  request.job.quantized_weights = std::nullopt;
  request.constraints.pin<&ParallelPlan::tp>(1);
  const auto gathered = [&](const PlanRequest& r) {
    return traffic_of(r, packed.plan, Axis::dp)[1].payload.in(kByte);
  };
  const double whole = gathered(request);
  request.job.quantized_weights = QuantizedWeights{};
  const double matrices = 80.0 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192.0 * 28672);
  CHECK(whole - gathered(request) == Approx(1.5 * matrices));
}
