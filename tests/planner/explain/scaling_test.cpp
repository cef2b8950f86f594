#include "planner/explain/scaling.hpp"

#include "planner/search/optimize.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("GPU counts double, inside a node and in nodes") {
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 24).value();
  CHECK(scaling_counts(cluster, 64) == std::vector<int>{1, 2, 4, 8, 16, 24, 32, 64});
  CHECK(scaling_counts(cluster, 1) == std::vector<int>{1, 24});
}

TEST_CASE("only numbers of GPUs that the description allows are tried") {
  const ClusterTopology cluster = ClusterTopology::load("rtx-4090", 8).value();
  for (const int gpus : scaling_counts(cluster, 1 << 20)) CHECK(cluster.resized(gpus).ok());
}

TEST_CASE("a point of the curve is the search on that number of GPUs") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 16);
  request.constraints.pin<&ParallelPlan::pp>(1);
  const Candidate here = search(request)->candidates.at(0);
  const ScalingPoint point = scaling_point(request, here.plan, 32);
  REQUIRE(point.best);
  PlanRequest larger = request;
  larger.cluster = request.cluster.resized(32).value();
  const Result<SearchResult> choice = optimize(larger);
  REQUIRE(choice.ok());
  CHECK(point.best->candidate.plan == choice->report.winner()->plan);
  CHECK(point.best->tokens_per_second == choice->report.winner()->prediction.tokens_per_second);
  REQUIRE(point.same);
  CHECK(point.same->candidate.plan.tp == here.plan.tp);
  CHECK(point.same->candidate.plan.dp == 2 * here.plan.dp);
  CHECK(point.same->tokens_per_second <= point.best->tokens_per_second * (1 + 1e-9));
}

TEST_CASE("the current plan is unchanged on its own number of GPUs") {
  const PlanRequest request = request_for("llama2-7b", "dgx-h100", 16);
  const Candidate here = search(request)->candidates.at(0);
  const ScalingPoint point = scaling_point(request, here.plan, 16);
  REQUIRE(point.best);
  REQUIRE(point.same);
  CHECK(point.best->candidate.plan == here.plan);
  CHECK(point.same->candidate.plan.dp == here.plan.dp);
  CHECK(ideal_rate({point}, 32) == Approx(2 * point.best->tokens_per_second));
}

TEST_CASE("money per token is GPU time times its price") {
  const PlanRequest request = request_for("llama2-7b", "aws-p5", 16);
  REQUIRE(request.cluster.price_per_gpu_hour());
  const Candidate here = search(request)->candidates.at(0);
  const ScalingPoint point = scaling_point(request, here.plan, 16);
  REQUIRE(point.best);
  REQUIRE(point.best->per_million);
  const double hours = point.best->gpu_time.in(Seconds{3600});
  CHECK(point.best->per_million->in(kDollar) ==
        Approx(hours * request.cluster.price_per_gpu_hour()->in(kDollar)));
  CHECK(point.best->gpu_time.in(kSecond) >= Approx(16e6 / point.best->tokens_per_second));
}

TEST_CASE("if nothing fits, the curve reports it") {
  PlanRequest request = request_for("llama3.1-405b", "dgx-h100", 512);
  request.constraints.pin<&ParallelPlan::zero>(0);
  const ScalingPoint point = scaling_point(request, ParallelPlan{}, 1);
  CHECK_FALSE(point.best);
  CHECK_FALSE(point.same);
  CHECK_FALSE(point.why_none.empty());
  CHECK(ideal_rate({point}, 8) == 0);
  const ScalingPoint none = scaling_point(request, ParallelPlan{}, 12);
  CHECK(none.why_none.find("12") != std::string::npos);
}

TEST_CASE("a stopped search ends early") {
  const PlanRequest request = request_for("mixtral-8x7b", "dgx-h100", 64);
  const auto calls_until = [&](int last) {
    int calls = 0;
    (void)scaling_point(request, ParallelPlan{}, 64, [&](double) { return ++calls < last; });
    return calls;
  };
  const int all = calls_until(1 << 20);
  REQUIRE(all > 2);
  CHECK(calls_until(2) == 2);
}
