#include "planner/explain/plan_detail.hpp"

#include <algorithm>

#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

Candidate pipelined(PlanRequest& request) {
  request.constraints.pin<&ParallelPlan::pp>(4);
  request.constraints.pin<&ParallelPlan::tp>(2);
  request.constraints.pin<&ParallelPlan::recompute>(Recompute::full);
  return predict(request).value();
}

}  // namespace

TEST_CASE("the highest reserved peak of the stages equals the prediction's") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 16);
  const Candidate candidate = pipelined(request);
  const std::vector<Bytes> peaks = reserved_peaks(request, candidate);
  REQUIRE(peaks.size() == 4);
  const auto highest = std::ranges::max_element(peaks);
  CHECK(*highest == candidate.prediction.memory.peak_reserved);
  CHECK(highest - peaks.begin() == candidate.prediction.memory.tightest_stage);
  for (std::size_t i = 0; i < peaks.size(); ++i) {
    CHECK(peaks[i] >= candidate.prediction.memory.stages[i].total());
  }
}

TEST_CASE("a simulated plan runs to its end and reports its recomputation") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 16);
  const Candidate candidate = pipelined(request);
  const SimulatedStep step = simulate_plan(request, candidate);
  CHECK(step.timeline.complete());
  std::size_t instructions = 0;
  for (const Program& program : step.schedule.programs) {
    instructions += program.instructions.size();
  }
  CHECK(step.timeline.spans.size() == instructions);
  CHECK(instructions_of(request, candidate) > 0.3 * static_cast<double>(instructions));
  for (const ChunkTimes& chunk : step.costs.stages) {
    CHECK(chunk.recompute > 0.5 * chunk.forward);
    CHECK(chunk.recompute < chunk.backward());
  }
  const double idle = idle_share(step.timeline, 4);
  CHECK(idle > 0);
  CHECK(idle < 1);
}

TEST_CASE("recomputation is part of the backward, not in addition to it") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 16);
  const Candidate with = pipelined(request);
  const SimulatedStep step = simulate_plan(request, with);
  request.constraints.pin<&ParallelPlan::recompute>(Recompute::none);
  const SimulatedStep without = simulate_plan(request, predict(request).value());
  for (std::size_t i = 0; i < step.costs.stages.size(); ++i) {
    CHECK(without.costs.stages[i].recompute == Seconds{});
    CHECK(step.costs.stages[i].backward() > without.costs.stages[i].backward());
    // Collectives of recomputed forwards are not distinguished from those of the backward.
    CHECK(step.costs.stages[i].backward_weight.in(kSecond) ==
          Approx(without.costs.stages[i].backward_weight.in(kSecond)).epsilon(0.1));
  }
}
