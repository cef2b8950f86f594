#include "planner/search/ranked_plans.hpp"

#include <algorithm>

#include "planner/search/optimize.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("the space contains every listed plan and every plan of the front once") {
  PlanRequest request = request_for("7b", "dgx-h100", 16);
  request.top = 30;
  const SearchOutcome report = search(request).value();
  const std::vector<RankedPlan> plans = plans_of(request, report);
  REQUIRE(report.candidates.size() == 30);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (i < 30) {
      CHECK(plans[i].candidate == &report.candidates[i]);
      CHECK(plans[i].rank == static_cast<int>(i) + 1);
      CHECK(plans[i].tied == tied(report.winner()->prediction.time,
                                  plans[i].candidate->prediction.time,
                                  request.calibration.time_band));
    } else {
      CHECK_FALSE(plans[i].rank);
      CHECK(plans[i].on_front);
    }
    for (std::size_t j = 0; j < i; ++j)
      CHECK_FALSE(plans[i].candidate->plan == plans[j].candidate->plan);
  }
  const auto on_front = std::ranges::count_if(plans, &RankedPlan::on_front);
  CHECK(on_front == static_cast<std::ptrdiff_t>(report.pareto.size()));
  CHECK(plans.front().on_front);  // no plan is faster than the winner
}

TEST_CASE("by headroom no plan is tied: ties refer to time") {
  PlanRequest request = request_for("7b", "dgx-h100", 16);
  request.objective = Objective::memory_headroom;
  const SearchOutcome report = search(request).value();
  for (const RankedPlan& plan : plans_of(request, report)) CHECK_FALSE(plan.tied);
}
