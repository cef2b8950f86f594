#include "planner/search/search.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("plans of a single stage are proved without an assumption") {
  PlanRequest r = request_for("7b", "dgx-h100", 8);
  r.constraints.pin<&ParallelPlan::pp>(1);
  const SearchOutcome report = search(r).value();
  CHECK(report.proved());
  CHECK(report.proved_gap == 0);
}

TEST_CASE("a search that rests on the closed form of pipelines says how far it is proved") {
  PlanRequest r = request_for("70b", "dgx-h100", 64);
  r.constraints.pin<&ParallelPlan::pp>(4);
  const SearchOutcome report = search(r).value();
  CHECK(report.best_as_assumed());
  CHECK(report.gap == 0);
  CHECK_FALSE(report.proved());
  CHECK(report.proved_gap > 0.01);
  CHECK(report.proved_gap < 0.5);
}

TEST_CASE("the only plan of a space is proved to be its best") {
  PlanRequest r = request_for("70b", "dgx-h100", 64);
  r.constraints.pin<&ParallelPlan::pp>(4);
  r.constraints = pinned_to(search(r)->winner()->plan);
  const SearchOutcome report = search(r).value();
  REQUIRE(report.winner() != nullptr);
  CHECK(report.winner()->plan.pp == 4);
  CHECK(report.proved());
}

TEST_CASE("no pinned split of the layers is faster than the proved gap allows") {
  PlanRequest r = request_for("llama2-7b", "a100-pcie", 16);
  r.constraints.pin<&ParallelPlan::pp>(4);
  const SearchOutcome report = search(r).value();
  const Seconds least = (1 - report.proved_gap) * report.winner()->expected();
  int found = 0;
  for (const std::vector<int>& layers :
       {std::vector<int>{8, 8, 8, 8}, {7, 9, 9, 7}, {9, 8, 8, 7}, {5, 9, 9, 9}, {11, 7, 7, 7}}) {
    r.constraints.pin<&ParallelPlan::layers_per_stage>(layers);
    const Result<SearchOutcome> pinned = search(r);
    if (!pinned.ok() || pinned->winner() == nullptr) continue;
    ++found;
    CHECK(pinned->winner()->expected() >= least);
  }
  CHECK(found >= 3);
}
