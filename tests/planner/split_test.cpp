#include "planner/split.hpp"

#include <algorithm>
#include <numeric>

#include "planner/candidates.hpp"
#include "planner/legality.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ParallelPlan plan_for(const PlanRequest& r, int tp, int pp, Recompute recompute) {
  ParallelPlan p;
  p.tp = tp;
  p.pp = pp;
  p.dp = r.cluster.gpus() / (tp * pp);
  p.shard_group = p.dp;
  p.zero = p.dp > 1 ? 1 : 0;
  p.sequence_parallel = tp > 1;
  p.recompute = recompute;
  p.layers_per_stage = balanced_layers(r.model.layers, pp);
  p.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
  return p;
}

}  // namespace

TEST_CASE("the programme's step time is the price of the split it returns") {
  for (const char* model : {"llama3-8b", "gpt2-xl", "70b"}) {
    const PlanRequest r = request_for(model, "dgx-h100", 64);
    const Pricer pricer(r.model, r.job, r.cluster, r.stack, r.calibration);
    for (const auto& [tp, pp] : {std::pair{4, 2}, std::pair{4, 4}, std::pair{8, 8}}) {
      if (r.model.heads % tp != 0) continue;
      ParallelPlan p = plan_for(r, tp, pp, Recompute::none);
      const CutCosts costs = pricer.cut_costs(cut_of(p));
      const auto split = best_split(pricer, p, costs, Bytes{1e15}, Seconds{1e30});
      REQUIRE(split);
      CHECK(std::accumulate(split->layers.begin(), split->layers.end(), 0) == r.model.layers);
      const Seconds balanced = pricer.price(p).time.step;
      p.layers_per_stage = split->layers;
      p.recompute_layers = split->recomputed;
      CHECK(pricer.price(p).time.step.in(1_us) == Approx(split->step.in(1_us)).epsilon(1e-12));
      CHECK(split->step <= balanced * (1 + 1e-12));
    }
  }
}

TEST_CASE("a heavy output head takes layers from the last stage") {
  PlanRequest r = request_for("llama3-8b", "dgx-h100", 8);
  const Pricer pricer(r.model, r.job, r.cluster, r.stack, r.calibration);
  const ParallelPlan p = plan_for(r, 1, 8, Recompute::none);
  const auto split = best_split(pricer, p, pricer.cut_costs(cut_of(p)), Bytes{1e15}, Seconds{1e30});
  REQUIRE(split);
  CHECK(split->layers.back() < *std::max_element(split->layers.begin(), split->layers.end()));
}

TEST_CASE("a stack that may differ between stages recomputes less on later stages") {
  PlanRequest r = request_for("13b", "dgx-h100", 8, "echelon");
  const Pricer pricer(r.model, r.job, r.cluster, r.stack, r.calibration);
  const ParallelPlan p = plan_for(r, 1, 8, Recompute::full);
  const auto split = best_split(pricer, p, pricer.cut_costs(cut_of(p)), 38_GiB, Seconds{1e30});
  REQUIRE(split);
  CHECK(split->recomputed.front() > 0);
  CHECK(split->recomputed.front() > split->recomputed.back());
}

TEST_CASE("no split is returned when the bound cannot be beaten or nothing fits") {
  const PlanRequest r = request_for("llama3-8b", "dgx-h100", 8);
  const Pricer pricer(r.model, r.job, r.cluster, r.stack, r.calibration);
  const ParallelPlan p = plan_for(r, 1, 8, Recompute::full);
  const CutCosts costs = pricer.cut_costs(cut_of(p));
  CHECK_FALSE(best_split(pricer, p, costs, r.usable_memory(), 1_ms));
  CHECK_FALSE(best_split(pricer, p, costs, 1_GiB, Seconds{1e30}));
}
