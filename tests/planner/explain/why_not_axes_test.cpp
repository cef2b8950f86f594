// What overlap of expert communication and CUDA graphs cost or gain, as `--why-not` answers it.
#include "planner/explain/why_not.hpp"

#include "planner/space/constraints_of_plan.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Small experts. A host that keeps up leaves the exchange to be hidden, a slow one the launches.
PlanRequest small_experts(Seconds host) {
  PlanRequest r = request_for("qwen3-30b-a3b", "dgx-h100", 64);
  r.preference = Preference::fastest;
  r.constraints.pin<&ParallelPlan::tp>(2);
  r.constraints.pin<&ParallelPlan::cp>(1);
  r.constraints.pin<&ParallelPlan::ep>(8);
  r.calibration.host_experts = host;
  return r;
}

}  // namespace

TEST_CASE(
    "why not: without overlap more of the exchange is exposed, without graphs more of the host") {
  {
    const PlanRequest r = small_experts(5_ms);
    const SearchOutcome found = search(r).value();
    REQUIRE(found.winner() != nullptr);
    PlanConstraints no_overlap;
    no_overlap.pin<&ParallelPlan::overlap_ep>(false);
    const WhyNot plain = why_not(r, no_overlap, found.winner());
    CHECK(plain.verdict == WhyNot::Verdict::slower);
    REQUIRE(plain.asked.has_value());
    CHECK_FALSE(plain.asked->plan.overlap_ep);
    CHECK(plain.asked->prediction.time.parts.exposed[Axis::ep] >
          found.winner()->prediction.time.parts.exposed[Axis::ep]);
  }
  const PlanRequest r = small_experts(12_ms);
  const SearchOutcome found = search(r).value();
  REQUIRE(found.winner() != nullptr);
  PlanConstraints no_graphs = pinned_to(found.winner()->plan);
  no_graphs.pin<&ParallelPlan::cuda_graphs>(CudaGraphs::none);
  const WhyNot launched = why_not(r, no_graphs, found.winner());
  CHECK(launched.verdict == WhyNot::Verdict::slower);
  REQUIRE(launched.asked.has_value());
  CHECK(launched.asked->prediction.time.parts.host > found.winner()->prediction.time.parts.host);
}

TEST_CASE("why not: what excludes CUDA graphs is named, and the choice freed") {
  const PlanRequest r = small_experts(12_ms);
  const SearchOutcome found = search(r).value();
  PlanConstraints asked;
  asked.pin<&ParallelPlan::cuda_graphs>(CudaGraphs::layers);
  asked.pin<&ParallelPlan::recompute>(Recompute::full);
  const WhyNot answer = why_not(r, asked, found.winner());
  CHECK(answer.verdict == WhyNot::Verdict::illegal);
  REQUIRE(answer.rule.has_value());
  CHECK(answer.rule->detail.find("full recomputation with CUDA graphs") != std::string::npos);
  REQUIRE(answer.neighbor.has_value());
  CHECK(answer.changes == 1);
}

TEST_CASE("why not: context parallelism by a gather has no price, which is no contradiction") {
  const PlanRequest r = request_for("llama3-8b", "dgx-h100", 8);
  PlanConstraints asked;
  asked.pin<&ParallelPlan::cp>(2);
  asked.pin<&ParallelPlan::cp_comm>(CpComm::all_gather);
  const WhyNot answer = why_not(r, asked, nullptr);
  CHECK(answer.verdict == WhyNot::Verdict::illegal);
  REQUIRE(answer.rule.has_value());
  CHECK(answer.rule->reason == RejectionReason::no_price);
  CHECK(answer.rule->detail.find("by all_gather without sparse attention") != std::string::npos);
}
