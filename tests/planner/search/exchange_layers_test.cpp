#include "planner/search/exchange_layers.hpp"

#include <cmath>

#include "planner/search/search.hpp"
#include "planner/space/plan_from_constraints.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Step of the same plan with one layer moved, simulated; nothing where it may not fit.
std::optional<Seconds> step_moved(const PlanRequest& request, ParallelPlan plan, std::size_t from,
                                  std::size_t to) {
  if (plan.layers_per_stage[from] <= plan.vpp) return std::nullopt;
  --plan.layers_per_stage[from];
  ++plan.layers_per_stage[to];
  PlanRequest pinned = request;
  pinned.constraints = pinned_to(plan);
  const Result<Candidate> moved = predict(pinned);
  if (!moved || moved->prediction.memory.peak_reserved > request.usable_memory()) {
    return std::nullopt;
  }
  return moved->prediction.time.step;
}

}  // namespace

TEST_CASE("no layer moved to a neighbouring stage makes the fastest plan faster") {
  int moves = 0;
  for (const char* model : {"llama3-70b", "qwen3-32b"}) {
    PlanRequest request = request_for(model, "dgx-h100", 64);
    request.preference = Preference::fastest;
    const SearchOutcome report = search(request).value();
    const Candidate& winner = *report.winner();
    const std::size_t stages = winner.plan.layers_per_stage.size();
    for (std::size_t stage = 0; stage + 1 < stages; ++stage) {
      for (const auto& [from, to] : {std::pair(stage, stage + 1), std::pair(stage + 1, stage)}) {
        const auto step = step_moved(request, winner.plan, from, to);
        if (!step) continue;
        ++moves;
        CAPTURE(model, from, to);
        CHECK(*step >= winner.prediction.time.step);
      }
    }
  }
  CHECK(moves >= 3);
}

TEST_CASE("the fastest plan beside a winner is the winner of a search for the fastest") {
  PlanRequest request = request_for("llama3-70b", "dgx-h100", 64);
  const SearchOutcome balanced = search(request).value();
  request.preference = Preference::fastest;
  const SearchOutcome fastest = search(request).value();
  REQUIRE(balanced.fastest);
  CHECK(balanced.fastest->prediction.time.step == fastest.winner()->prediction.time.step);
}
