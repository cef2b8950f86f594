// What a search answers with: the winner, the fastest plan beside it, one plan of each family.
#include <algorithm>
#include <cmath>

#include "planner/search/plan_pool.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

double probability_of(const Candidate& candidate) {
  return candidate.score.fits_probability.value();
}

}  // namespace

TEST_CASE("listed plans are of different families, and siblings are folded into them") {
  for (const auto& [model, gpus] : {std::pair{"7b", 64}, std::pair{"mixtral-8x7b", 64}}) {
    const SearchOutcome report = search(request_for(model, "dgx-h100", gpus)).value();
    REQUIRE(report.candidates.size() == 5);
    REQUIRE(report.siblings.size() == 5);
    for (std::size_t a = 0; a < 5; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        CHECK(family_of(report.candidates[a].plan) != family_of(report.candidates[b].plan));
      }
    }
    const bool some = std::ranges::any_of(report.siblings, [](const Siblings& each) {
      return each.plans > 0 && !each.ranges.empty() && each.smallest <= each.largest &&
             each.least <= each.most;
    });
    CHECK(some);
    for (const Siblings& each : report.siblings) {
      for (const Siblings::Range& range : each.ranges) CHECK(range.first < range.last);
    }
  }
}

TEST_CASE("the winner gives up at most 3 % of the step, for a plan that is likelier to fit") {
  const SearchOutcome report = search(request_for("llama3-70b", "dgx-h100", 128)).value();
  const Candidate& winner = *report.winner();
  REQUIRE(report.fastest);
  CHECK(report.fastest->prediction.time.step < winner.prediction.time.step);
  CHECK(winner.expected() < report.fastest->expected());
  CHECK(probability_of(winner) > 0.9);
  CHECK(probability_of(*report.fastest) >= 0.5);
}

TEST_CASE("the fastest plan that is likely to fit stands beside one that is not") {
  const SearchOutcome report = search(request_for("llama3-70b", "dgx-h100", 64)).value();
  REQUIRE(report.fastest);
  REQUIRE(report.fastest_likely);
  const Candidate& likely = *report.fastest_likely;
  CHECK(probability_of(*report.fastest) < 0.9);
  CHECK(probability_of(likely) >= 0.9);
  CHECK(likely.plan.offload_optimizer == 0);
  CHECK(likely.prediction.time.step < report.winner()->prediction.time.step);
  CHECK(report.fastest->prediction.time.step <= likely.prediction.time.step);
}

TEST_CASE("with --prefer fastest the fastest plan wins, with robust the likeliest to fit") {
  PlanRequest r = request_for("llama3-70b", "dgx-h100", 128);
  r.calibration.memory_band = MemoryBand{MemoryBandKind::extrapolated, 0, 0.12, "test"};
  const SearchOutcome balanced = search(r).value();
  r.preference = Preference::fastest;
  const SearchOutcome fastest = search(r).value();
  CHECK_FALSE(fastest.fastest);
  REQUIRE(balanced.fastest);
  // Where memory counts, other partitions of a point are simulated, too, and one may be shorter
  // than the best in closed form: docs/search.md, split_of_layers.
  const double shorter =
      1 - balanced.fastest->prediction.time.step / fastest.winner()->prediction.time.step;
  CHECK(std::abs(shorter) < 5e-4);
  r.preference = Preference::robust;
  const SearchOutcome robust = search(r).value();
  CHECK(probability_of(*robust.winner()) >= probability_of(*balanced.winner()));
  CHECK(probability_of(*balanced.winner()) > probability_of(*fastest.winner()));
}

TEST_CASE("a limit on memory is hard, and switches the risk off") {
  PlanRequest r = request_for("70b", "dgx-h100", 256);
  r.max_memory = 60_GiB;
  const SearchOutcome report = search(r).value();
  for (const Candidate& each : report.candidates) {
    CHECK_FALSE(each.score.fits_probability);
    CHECK(each.prediction.memory.peak_reserved <= 60_GiB);
    CHECK(each.score.weight < 1.05);
  }
}

TEST_CASE("where nothing is likely to fit, what may fit is found, and says so") {
  PlanRequest r = request_for("7b", "dgx-h100", 8);
  r.constraints.pin<&ParallelPlan::pp>(1);
  r.constraints.pin<&ParallelPlan::tp>(1);
  r.constraints.pin<&ParallelPlan::cp>(1);
  r.constraints.pin<&ParallelPlan::zero>(3);
  r.constraints.pin<&ParallelPlan::offload_optimizer>(0.0);
  r.constraints.pin<&ParallelPlan::recompute>(Recompute::full);
  r.constraints.pin<&ParallelPlan::microbatch>(1);
  Bytes least = r.cluster.gpu().memory;
  r.whole_front = true;
  const SearchOutcome small = search(r).value();
  for (const Candidate& each : small.pareto) {
    least = std::min(least, each.prediction.memory.peak_reserved);
  }
  GpuSpec gpu = r.cluster.gpu();
  // Runs need 3 % more than predicted, give or take 3 %: with 1 % to spare Φ(−0.67), one in four.
  r.calibration.memory_band = MemoryBand{MemoryBandKind::extrapolated, 0.03, 0.03, "test"};
  gpu.memory = least * 1.01;
  r.cluster = r.cluster.with_gpu(gpu);
  const SearchOutcome report = search(r).value();
  REQUIRE(report.winner() != nullptr);
  CHECK(probability_of(*report.winner()) < 0.5);
  CHECK(probability_of(*report.winner()) > 0.05);
  gpu.memory = least * 0.9;
  r.cluster = r.cluster.with_gpu(gpu);
  CHECK(search(r).value().winner() == nullptr);
}
