// What a refusal of ep or etp names as the nearest valid value.
#include <string>
#include <vector>

#include "planner/space/plan_from_constraints.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

PlanRequest with_experts(const char* model, int gpus, int ep, int etp,
                         const char* framework = "megatron-core") {
  PlanRequest r = request_for(model, "dgx-h100", gpus, framework);
  r.job.global_batch = 1152;  // a multiple of 24 and 64
  r.constraints.pin<&ParallelPlan::ep>(ep);
  r.constraints.pin<&ParallelPlan::etp>(etp);
  return r;
}

/// The values that the refusal names, as text: "--ep 2 or 4".
std::string named_values(const PlanRequest& r) {
  const Result<ParallelPlan> plan = plan_from_constraints(r);
  if (plan.ok()) return "legal";
  const std::string lead = "nearest valid: ";
  const std::string& hint = plan.error().hint;
  const auto at = hint.find(lead);
  return at == std::string::npos ? "none of: " + hint : hint.substr(at + lead.size());
}

/// The numbers behind `flag` in "--ep 2 or 4 with --etp 1"; none: what was asked.
std::vector<int> numbers_after(const std::string& text, const std::string& flag, int asked) {
  auto at = text.find(flag + " ");
  if (at == std::string::npos) return {asked};
  std::vector<int> numbers;
  do {
    at = text.find_first_of("0123456789", at);
    numbers.push_back(std::stoi(text.substr(at)));
    at = text.find_first_not_of("0123456789", at);
  } while (at != std::string::npos && text.compare(at, 4, " or ") == 0);
  return numbers;
}

}  // namespace

TEST_CASE("a refused ep names values that divide the experts and the ranks of a stage") {
  CHECK(named_values(with_experts("deepseek-v3", 64, 12, 1)) == "--ep 8 or 16");
  CHECK(named_values(with_experts("deepseek-v3", 24, 12, 1)) == "--ep 8");
  CHECK(named_values(with_experts("deepseek-v3", 64, 6, 32)) == "--ep 2");
  PlanRequest stages = with_experts("mixtral-8x7b", 8, 8, 1);
  stages.constraints.pin<&ParallelPlan::pp>(2);
  CHECK(named_values(stages) == "--ep 4");
}

TEST_CASE("a refused etp names values that divide the experts' width and the ranks of a stage") {
  CHECK(named_values(with_experts("mixtral-8x7b", 8, 2, 3)) == "--etp 2 or 4");
  CHECK(named_values(with_experts("mixtral-8x7b", 8, 2, 8)) == "--etp 4");
}

TEST_CASE("where no ep is valid with the asked etp, the refusal names both") {
  CHECK(named_values(with_experts("mixtral-8x7b", 8, 3, 5)) == "--ep 2 or 4 with --etp 1");
}

TEST_CASE("a framework's rules about experts bind the values that a refusal names") {
  PlanRequest r = with_experts("mixtral-8x7b", 8, 3, 1, "deepspeed");
  r.constraints.pin<&ParallelPlan::tp>(4);
  r.constraints.pin<&ParallelPlan::zero>(0);
  CHECK(named_values(r) == "--ep 2");  // ep divides dp x cp
}

TEST_CASE("a request that takes the value named for it is no longer refused for its experts") {
  int named = 0;
  for (const char* model : {"mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"}) {
    for (const int gpus : {8, 24, 48}) {
      for (const int ep : {3, 6, 12, 64, 1024}) {
        for (const int etp : {1, 2, 3, 5}) {
          const std::string text = named_values(with_experts(model, gpus, ep, etp));
          INFO(model << " on " << gpus << " GPUs, ep " << ep << ", etp " << etp << ": " << text);
          CHECK(text.find("none of") == std::string::npos);
          for (const int better : numbers_after(text, "--ep", ep)) {
            for (const int split : numbers_after(text, "--etp", etp)) {
              INFO("takes ep " << better << ", etp " << split);
              CHECK(named_values(with_experts(model, gpus, better, split)) == "legal");
              ++named;
            }
          }
        }
      }
    }
  }
  CHECK(named > 100);
}
