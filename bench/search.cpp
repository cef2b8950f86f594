// Speed of predictions and searches. The signature of the chosen plans makes runs of two versions
// comparable: equal signatures mean that the same plans were chosen.
//
//   bench_search [--benchmark_filter=...]
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>

#include "bench/requests.hpp"
#include "planner/search/search.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/legality.hpp"

namespace {

using namespace echelon;

/// Chained hash of degrees and step time: equal only if the same plans got the same prices.
std::uint64_t signature(std::uint64_t seed, const ParallelPlan& plan, Seconds step) {
  const auto text =
      fmt::format("{} {} {} {} {} {} {} {:a};", plan.tp, plan.pp, plan.vpp, plan.dp,
                  plan.microbatch, plan.zero, plan.recompute_layers.front(), step.in(kSecond));
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

/// At most `limit` legal plans of the request, without context or expert parallelism.
std::vector<ParallelPlan> legal_plans(const PlanRequest& r, std::size_t limit) {
  std::vector<ParallelPlan> plans;
  ParallelPlan plan;
  const int gpus = r.cluster.gpus();
  for (const int tp : degree_values({}, gpus)) {
    for (const int pp : degree_values({}, gpus)) {
      if (gpus % (tp * pp) != 0 || pp > r.model.layers) continue;
      SearchPoint t;
      t.sharding.tp = tp;
      t.sharding.sequence_parallel = tp > 1;
      t.pp = pp;
      t.dp = t.shard_group = gpus / (tp * pp);
      for (const int microbatch : microbatch_values(r, t.dp)) {
        t.sharding.microbatch = microbatch;
        for (const Chunks chunks : chunk_values(r, pp)) {
          t.vpp = chunks.vpp;
          t.schedule = chunks.schedule;
          for (const int zero : zero_values(r, t)) {
            t.zero = zero;
            if (!fill_plan(r, t, plan)) continue;
            if (check_plan(r.model, r.job, r.cluster, r.framework, plan)) continue;
            plans.push_back(plan);
            if (plans.size() == limit) return plans;
          }
        }
      }
    }
  }
  return plans;
}

/// Complete predictions, each from scratch: operators, memory of all stages, all parts of the step
/// time.
void cold_predictions(benchmark::State& state, const char* model, int gpus) {
  const PlanRequest r = request_for(model, gpus);
  const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
  const std::vector<ParallelPlan> plans = legal_plans(r, 100000);
  PlanCosts out;
  std::uint64_t sign = 0;
  for (const ParallelPlan& plan : plans) {
    cost_model.price(plan, cost_model.sharding_costs(plan), out);
    sign = signature(sign, plan, out.time.step);
  }
  for (auto _ : state) {
    for (const ParallelPlan& plan : plans) {
      cost_model.price(plan, cost_model.sharding_costs(plan), out);
      benchmark::DoNotOptimize(out.time.step);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(plans.size()));
  state.SetLabel(fmt::format("{} plans, signature {:016x}", plans.size(), sign));
}

/// The same, except that all plans with the same layer sharding share its costs, as in the search.
void predictions(benchmark::State& state, const char* model, int gpus) {
  const PlanRequest r = request_for(model, gpus);
  const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
  const std::vector<ParallelPlan> plans = legal_plans(r, 100000);
  PlanCosts out;
  for (auto _ : state) {
    ShardingCosts costs = cost_model.sharding_costs(plans.front());
    for (const ParallelPlan& plan : plans) {
      if (!(costs.sharding == sharding_of(plan))) costs = cost_model.sharding_costs(plan);
      cost_model.price(plan, costs, out);
      benchmark::DoNotOptimize(out.time.step);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(plans.size()));
  state.SetLabel(fmt::format("{} plans", plans.size()));
}

void whole_search(benchmark::State& state, const char* model, int gpus,
                  const char* cluster = "dgx-h100") {
  const PlanRequest r = request_for(model, gpus, cluster);
  SearchOutcome report;
  for (auto _ : state) {
    report = search(r).value();
    benchmark::DoNotOptimize(report);
  }
  std::uint64_t sign = 0;
  for (const Candidate& c : report.candidates) {
    sign = signature(sign, c.plan, c.prediction.time.step);
  }
  state.SetLabel(fmt::format("{} points, {} priced, signature {:016x}", report.counts.points,
                             report.counts.priced, sign));
}

BENCHMARK_CAPTURE(cold_predictions, 7b_64, "7b", 64);
BENCHMARK_CAPTURE(cold_predictions, 175b_1024, "gpt3-175b", 1024);
BENCHMARK_CAPTURE(predictions, 7b_64, "7b", 64);
BENCHMARK_CAPTURE(predictions, 70b_256, "70b", 256);
BENCHMARK_CAPTURE(predictions, 175b_1024, "gpt3-175b", 1024);
BENCHMARK_CAPTURE(whole_search, 7b_64, "7b", 64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_search, 70b_256, "70b", 256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_search, 175b_1024, "gpt3-175b", 1024)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_search, 405b_16384, "405b", 16384)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_search, mixtral_256, "mixtral-8x7b", 256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_search, deepseek_v3_2048, "deepseek-v3", 2048)
    ->Unit(benchmark::kMillisecond);
// Layers of two kinds, where most of a search is the partition of the layers.
BENCHMARK_CAPTURE(whole_search, glm_4_5_1024, "glm-4.5", 1024, "dgx-h200")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_search, llama4_maverick_512, "llama4-maverick", 512, "dgx-b200")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_search, llama4_maverick_64, "llama4-maverick", 64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_search, ling_1t_256, "ling-1t", 256)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
