#include "planner/explain/one_change.hpp"

#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("one change to a plan that is not likely to fit is another plan, which is") {
  PlanRequest r = request_for("llama3-8b", "dgx-h100", 8);
  r.job.sequence = 8192;
  r.job.global_batch = 128;
  r.job.precision = find_precision("bf16:adam-bf16-gradients").value();
  r.calibration.memory_band = MemoryBand{MemoryBandKind::extrapolated, 0, 0.12, "test"};
  PlanRequest pinned = r;
  pinned.constraints.pin<&ParallelPlan::zero>(1);
  pinned.constraints.pin<&ParallelPlan::microbatch>(1);
  pinned.constraints.pin<&ParallelPlan::recompute>(Recompute::none);
  const Candidate own = predict(pinned).value();
  REQUIRE_FALSE(own.fits);
  REQUIRE(own.score.fits_probability.value() > kLastResort);
  const std::vector<OneChange> changes = one_change_plans(r, own);
  CHECK_FALSE(changes.empty());
  for (const OneChange& each : changes) {
    INFO(each.what);
    CHECK(each.plan.plan != own.plan);
    CHECK(each.plan.prediction.memory.peak_reserved <= r.usable_memory());
  }
}
