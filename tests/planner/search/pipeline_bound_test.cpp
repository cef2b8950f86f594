// The lower bound, the closed form and the simulation of pipelines of plans as a search meets them.
#include <algorithm>
#include <array>

#include "costmodel/schedule/lower_plan.hpp"
#include "costmodel/schedule/makespan.hpp"
#include "costmodel/schedule/makespan_bound.hpp"
#include "planner/search/predict.hpp"
#include "planner/space/candidates.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

using namespace echelon;

namespace {

struct Question {
  const char* model;
  const char* cluster;
  int gpus;
  int sequence;
  int batch;
};

constexpr std::array kQuestions{Question{"llama2-7b", "dgx-h100", 64, 4096, 1024},
                                Question{"llama2-13b", "dgx-a100-40gb", 32, 4096, 512},
                                Question{"llama3-70b", "dgx-h100", 64, 8192, 512},
                                Question{"llama3-70b", "dgx-h100", 256, 8192, 1024},
                                Question{"llama3-70b", "dgx-h100", 1024, 8192, 2048},
                                Question{"llama3-70b", "dgx-h100", 512, 8192, 128},
                                Question{"llama3-70b", "dgx-b200", 128, 8192, 1024},
                                Question{"llama3.1-405b", "dgx-h100", 4096, 8192, 2048},
                                Question{"llama3.1-405b", "gb200-nvl72", 576, 8192, 1152},
                                Question{"mixtral-8x7b", "dgx-h100", 64, 4096, 1024},
                                Question{"mixtral-8x22b", "dgx-h100", 128, 4096, 1024},
                                Question{"qwen3-235b-a22b", "dgx-h100", 256, 4096, 1024},
                                Question{"qwen3-235b-a22b", "dgx-b200", 64, 4096, 1024},
                                Question{"deepseek-v3", "dgx-h100", 1024, 4096, 4096},
                                Question{"deepseek-v3", "gb200-nvl72", 256, 4096, 2048},
                                Question{"gpt-oss-120b", "dgx-h200", 64, 4096, 1024},
                                Question{"glm-4.5", "dgx-h100", 256, 4096, 2048},
                                Question{"kimi-k2", "gb200-nvl72", 512, 4096, 4096},
                                Question{"qwen3-30b-a3b", "dgx-h100", 16, 4096, 512},
                                Question{"llama3-70b", "dgx-h100", 64, 131072, 64},
                                Question{"llama3-8b", "dgx-h100", 16, 131072, 32},
                                Question{"llama2-7b", "rtx-4090", 8, 4096, 128},
                                Question{"llama2-13b", "l40s", 16, 4096, 256},
                                Question{"llama2-13b", "a100-pcie", 32, 4096, 512},
                                Question{"gpt3-175b", "dgx-h100", 1024, 2048, 1536},
                                Question{"llama2-7b", "dgx-h100", 512, 4096, 1024}};
constexpr std::array kSmallModels{"gpt2-xl",  "llama3-8b", "llama2-7b",
                                  "qwen3-4b", "gemma2-9b", "olmoe-7b"};
constexpr std::array kSmallClusters{"dgx-a100", "a100-pcie", "l40s", "dgx-h100", "dgx-b200"};

template <class T, std::size_t n>
const T& any_of(const std::array<T, n>& values, Numbers& draw) {
  return values[draw.below(n)];
}

/// A question of the list, or a small job.
PlanRequest any_request(bool small, Numbers& draw) {
  Question q = any_of(kQuestions, draw);
  if (small) {
    q = {any_of(kSmallModels, draw), any_of(kSmallClusters, draw), 8 << draw.upto(2),
         1024 << draw.upto(2), 32 << draw.upto(4)};
  }
  PlanRequest r = request_for(q.model, q.cluster, q.gpus);
  r.job.sequence = std::min<decltype(r.job.sequence)>(q.sequence, r.model.max_positions);
  r.job.global_batch = q.batch;
  return r;
}

/// Any degrees with a pipeline, any schedule.
void pin_any(PlanRequest& r, Numbers& draw) {
  const auto divisor = [&](std::int64_t of) {
    const std::vector<std::int64_t> all = divisors(of);
    return static_cast<int>(all[draw.below(all.size())]);
  };
  const int pp = divisor(r.cluster.gpus());
  r.constraints.pin<&ParallelPlan::tp>(1 << draw.upto(3));
  r.constraints.pin<&ParallelPlan::pp>(pp);
  r.constraints.pin<&ParallelPlan::microbatch>(1 << draw.upto(2));
  if (r.model.moe.experts > 0) r.constraints.pin<&ParallelPlan::ep>(1 << draw.upto(5));
  if (draw.upto(3) > 0) {
    const int most = std::max(1, r.model.layers / pp);
    r.constraints.pin<&ParallelPlan::vpp>(1 + draw.upto(most - 1));
  } else if (draw.upto(3) == 0) {
    r.constraints.pin<&ParallelPlan::schedule>(ScheduleKind::zero_bubble_h1);
  }
  if (draw.coin()) r.constraints.pin<&ParallelPlan::recompute>(Recompute::full);
}

double quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

TEST_CASE("no pipeline of 500 plans of many questions is faster than its lower bound") {
  Numbers draw(26);
  std::vector<double> above_bound, above_outlined, above_closed;
  for (int tried = 0; above_bound.size() < 500; ++tried) {
    REQUIRE(tried < 20000);
    PlanRequest r = any_request(draw.coin(), draw);
    pin_any(r, draw);
    const Result<Candidate> c = predict(r);
    if (!c.ok() || c->plan.pp == 1) continue;
    const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
    const ShardingCosts sharding = cost_model.sharding_costs(c->plan);
    const StageModel model(cost_model, c->plan, sharding);
    const PipelineShape shape = shape_of(c->plan, r.job.global_batch);
    const ScheduleCosts costs = pipeline_costs(cost_model, model, c->plan, shape);
    Seconds sum, slowest;
    for (const Stage& stage : c->prediction.memory.contents) {
      sum += model.times(stage).total();
      slowest = std::max(slowest, model.times(stage).total());
    }
    const Seconds simulated = simulate_makespan(shape, costs);
    const Seconds bound = least_makespan(shape, costs);
    INFO(r.model.name << " tried " << tried);
    CHECK(bound <= simulated * (1 + 1e-9));
    PipelineOutline outline = outline_of(shape, costs);
    CHECK(outline.sum / sum == Approx(1).epsilon(1e-9));
    const Seconds outlined = least_pipeline_time(outline);
    CHECK(outlined <= simulated * (1 + 1e-9));
    outline.slowest = outline.least_chunk = {};
    CHECK(least_pipeline_time(outline) <= outlined);
    above_outlined.push_back(simulated / outlined - 1);
    above_bound.push_back(simulated / bound - 1);
    above_closed.push_back(simulated / model.pipeline(sum, slowest) - 1);
  }
  // The figures of docs/schedules.md.
  CHECK(quantile(above_bound, 0.5) == Approx(0.0002).margin(1e-4));
  CHECK(quantile(above_bound, 0.9) == Approx(0.013).margin(1e-3));
  CHECK(quantile(above_bound, 1) == Approx(0.177).margin(1e-3));
  CHECK(quantile(above_outlined, 0.5) == Approx(0.025).margin(1e-3));
  CHECK(quantile(above_outlined, 0.9) == Approx(0.155).margin(1e-3));
  CHECK(quantile(above_closed, 0) == Approx(-0.095).margin(1e-3));
  CHECK(quantile(above_closed, 0.5) == Approx(-0.003).margin(1e-3));
  CHECK(quantile(above_closed, 0.9) == Approx(0.022).margin(1e-3));
  CHECK(quantile(above_closed, 1) == Approx(0.300).margin(1e-3));
}
