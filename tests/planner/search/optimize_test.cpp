#include "planner/search/optimize.hpp"

#include <algorithm>
#include <optional>

#include "planner/economics.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/legality.hpp"
#include "planner/space/score.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

PlanRequest small_request() {
  PlanRequest r = request_for("gpt2-xl", "dgx-h100", 8);
  r.job.sequence = 1024;
  r.job.global_batch = 16;
  r.max_memory = 30_GiB;
  // What the nested loops below enumerate: no context parallelism, nothing offloaded, one order.
  r.constraints.pin<&ParallelPlan::cp>(1);
  r.constraints.pin<&ParallelPlan::offload_optimizer>(0.0);
  r.constraints.pin<&ParallelPlan::rank_order>(RankOrder::dp_inside_pp);
  return r;
}

/// Smallest key over every legal plan that fits, by nested loops.
std::optional<ObjectiveKey> brute_force(const PlanRequest& r) {
  const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
  std::optional<ObjectiveKey> best;
  const int gpus = r.cluster.gpus();
  for (int tp = 1; tp <= gpus; ++tp) {
    for (int pp = 1; pp <= gpus; ++pp) {
      if (gpus % (tp * pp) != 0) continue;
      const int dp = gpus / (tp * pp);
      for (int microbatch = 1; microbatch <= r.job.global_batch; ++microbatch) {
        for (int code = 0; code < 4 * 2 * (r.model.layers + 1) * 8; ++code) {
          SearchPoint t;
          t.sharding.tp = tp;
          t.sharding.microbatch = microbatch;
          t.sharding.sequence_parallel = code / 4 % 2 == 1;
          t.pp = pp;
          t.vpp = 1 + code / (8 * (r.model.layers + 1));
          t.schedule = t.vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
          t.dp = t.shard_group = dp;
          if (t.vpp > 1) {
            const std::int64_t m = r.job.global_batch / std::max(1, dp * microbatch);
            t.microbatch_group = smallest_group(m, pp, pp).value_or(pp);
          }
          t.zero = code % 4;
          t.recompute_layers = code / 8 % (r.model.layers + 1);
          if (t.recompute_layers > 0) t.recompute = Recompute::full;
          if (t.recompute_layers % t.vpp != 0 || t.recompute_layers > r.model.layers / pp + 1) {
            continue;
          }
          ParallelPlan plan;
          if (!fill_plan(r, t, plan)) continue;
          if (check_plan(r.model, r.job, r.cluster, r.framework, plan)) continue;
          const Candidate c = candidate_of(r, cost_model, std::move(plan));
          if (!c.fits) continue;
          const ObjectiveKey key = objective_key(r, c);
          if (!best || key < *best) best = key;
        }
      }
    }
  }
  return best;
}

TimePrediction step_with(Seconds compute, Seconds bubble) {
  TimePrediction time;
  time.parts.compute = compute;
  time.parts.fill_drain = bubble;
  time.step = time.parts.total();
  return time;
}

}  // namespace

TEST_CASE("each objective's winner is the best of all plans enumerated by brute force") {
  PlanRequest r = small_request();
  for (const Objective objective :
       {Objective::step_time, Objective::cost, Objective::memory_headroom, Objective::goodput}) {
    r.objective = objective;
    INFO(name_of(objective));
    const SearchResult choice = optimize(r).value();
    REQUIRE(choice.report.winner() != nullptr);
    CHECK(objective_key(r, *choice.report.winner()).value == brute_force(r)->value);
  }
}

TEST_CASE("the memory-headroom winner needs less memory than the fastest plan, and is no faster") {
  PlanRequest r = request_for("70b", "dgx-h100", 256);
  const Candidate fastest = *optimize(r)->report.winner();
  r.objective = Objective::memory_headroom;
  const SearchResult choice = optimize(r).value();
  const Candidate& smallest = *choice.report.winner();
  CHECK(smallest.prediction.memory.peak_reserved < fastest.prediction.memory.peak_reserved);
  CHECK(smallest.prediction.time.step >= fastest.prediction.time.step);
  for (std::size_t i = 1; i < choice.report.candidates.size(); ++i) {
    CHECK(choice.report.candidates[i].prediction.memory.peak_reserved >
          choice.report.candidates[i - 1].prediction.memory.peak_reserved);
  }
}

TEST_CASE("over GPU counts each objective picks the count with its best key") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.max_gpus = 64;
  for (const Objective objective : {Objective::step_time, Objective::cost, Objective::goodput}) {
    r.objective = objective;
    const SearchResult choice = optimize(r).value();
    INFO(name_of(objective));
    REQUIRE(choice.counts.size() > 5);
    for (const GpuCountResult& count : choice.counts) {
      PlanRequest alone = r;
      alone.max_gpus.reset();
      alone.cluster = r.cluster.resized(count.gpus).value();
      const Result<SearchResult> direct = optimize(alone);
      const bool found = direct.ok() && direct->report.winner() != nullptr;
      REQUIRE(count.best.has_value() == found);
      if (!found) continue;
      CHECK(objective_key(alone, *direct->report.winner()) == count.key);
      CHECK(objective_key(choice.request, *choice.report.winner()) <= count.key);
    }
  }
}

TEST_CASE("cost never takes more GPUs than the fastest step does") {
  PlanRequest r = request_for("7b", "dgx-h100", 128);
  r.max_gpus = 128;
  const int fastest = optimize(r)->request.cluster.gpus();
  r.objective = Objective::cost;
  CHECK(optimize(r)->request.cluster.gpus() <= fastest);
}

TEST_CASE("GPU counts are few, inside a node too, and whole nodes above") {
  const PlanRequest r = request_for("7b", "dgx-h100", 64);
  const std::vector<int> counts = gpu_counts(r.cluster, 100);
  CHECK(counts == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96});
  CHECK(gpu_counts(r.cluster, 6) == std::vector<int>{1, 2, 3, 4, 5, 6});
  const ClusterTopology sixteen = request_for("7b", "gcp-a2-mega", 16).cluster;
  CHECK(gpu_counts(sixteen, 40) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 32});
}

TEST_CASE("a model too large for every count reports the largest one's nearest misses") {
  PlanRequest r = request_for("gpt3-175b", "dgx-h100", 8);
  r.max_gpus = 8;
  const SearchResult choice = optimize(r).value();
  CHECK(choice.report.winner() == nullptr);
  CHECK_FALSE(choice.report.nearest_infeasible.empty());
}

TEST_CASE("being tied is symmetric, and every plan is tied with itself") {
  const SearchOutcome report = search(request_for("70b", "dgx-h100", 256)).value();
  for (const Candidate& a : report.pareto) {
    CHECK(tied(a.prediction.time, a.prediction.time, 0.3));
    for (const Candidate& b : report.pareto) {
      CHECK(tied(a.prediction.time, b.prediction.time, 0.3) ==
            tied(b.prediction.time, a.prediction.time, 0.3));
    }
  }
}

TEST_CASE("plans that differ by more of the same are told apart before plans of another kind") {
  // Both pairs differ by 1.5 s of 10 s. Where one only waits longer the error is shared; where
  // compute was traded for waiting, each part's error counts.
  const TimePrediction base = step_with(8_s, 2_s);
  const TimePrediction longer_bubble = step_with(8_s, Seconds{3.5});
  const TimePrediction other_kind = step_with(4_s, Seconds{7.5});
  CHECK_FALSE(tied(base, longer_bubble, 0.3));
  CHECK(tied(base, other_kind, 0.3));
}

TEST_CASE("a narrower band ties fewer plans") {
  const TimePrediction a = step_with(8_s, 2_s);
  const TimePrediction b = step_with(8_s, Seconds{2.3});
  CHECK(tied(a, b, 0.3));
  CHECK_FALSE(tied(a, b, 0.05));
}

TEST_CASE("of the recipes of states the one whose best plan gains more than its states cost") {
  for (const Bytes memory : {12_GiB, 30_GiB, 70_GiB}) {
    PlanRequest r = small_request();
    r.max_memory = memory;
    PlanRequest alone = r;
    std::optional<double> least;
    std::string chosen;
    for (const std::string_view name : r.framework.state_recipes) {
      if (!name.starts_with("bf16:")) continue;
      r.recipes.push_back(find_precision(name).value());
      alone.job.precision = r.recipes.back();
      const std::optional<ObjectiveKey> key = brute_force(alone);
      if (!key) continue;
      const double weighed = key->value * (1 + price_of_states(r.preference, alone.job.precision));
      if (least && weighed >= *least) continue;
      least = weighed;
      chosen = name;
    }
    INFO(memory.in(1_GiB));
    const SearchResult choice = optimize(r).value();
    CHECK(choice.request.job.precision.name == chosen);
    CHECK(objective_key(choice.request, *choice.report.winner()).value *
              (1 + price_of_states(r.preference, choice.request.job.precision)) ==
          *least);
    CHECK(choice.recipes.size() == 4);
  }
}

TEST_CASE("with --prefer fastest narrow states have no price") {
  const PrecisionRecipe narrow = find_precision("bf16:precision-aware").value();
  CHECK(price_of_states(Preference::balanced, narrow) == kNarrowGradients + kNarrowMoments);
  CHECK(price_of_states(Preference::fastest, narrow) == 0);
  CHECK(price_of_states(Preference::balanced, find_precision("bf16").value()) == 0);
}

TEST_CASE("recipes and numbers of GPUs are searched together") {
  PlanRequest r = small_request();
  for (const char* name : {"bf16:adam-fp32-master", "bf16:precision-aware"}) {
    r.recipes.push_back(find_precision(name).value());
  }
  r.max_gpus = 8;
  const SearchResult choice = optimize(r).value();
  CHECK(choice.recipes.size() == 2);
  CHECK(choice.counts.size() == 8);
}

TEST_CASE("a number of GPUs whose search was stopped is not said to be too small") {
  PlanRequest r = request_for("deepseek-v3", "dgx-h100", 256);
  r.max_gpus = 256;
  const SearchResult sizes = optimize(r, [](double) { return false; }).value();
  CHECK(sizes.counts.back().why_none == "stopped before a plan was found");
}
