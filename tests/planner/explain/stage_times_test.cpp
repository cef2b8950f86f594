// The work and the waiting times of every stage of a predicted step.
#include <algorithm>

#include "core/schedule/stage_waits.hpp"
#include "planner/explain/plan_detail.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// llama3-70b on 64 GPUs in 4 stages: 128 microbatches.
PlanRequest in_four_stages(const char* model, std::vector<int> layers) {
  PlanRequest r = request_for(model, "dgx-h100", 64);
  r.constraints.pin<&ParallelPlan::tp>(4);
  r.constraints.pin<&ParallelPlan::pp>(4);
  r.constraints.pin<&ParallelPlan::vpp>(1);
  r.constraints.pin<&ParallelPlan::dp>(4);
  r.constraints.pin<&ParallelPlan::microbatch>(1);
  r.constraints.pin<&ParallelPlan::zero>(1);
  r.constraints.pin<&ParallelPlan::layers_per_stage>(std::move(layers));
  return r;
}

TimePrediction time_of(const PlanRequest& request) {
  return predict(request).value().prediction.time;
}

double share(Seconds part, const TimePrediction& time) { return part / time.step; }

/// Of the simulated schedule, stage by stage: the compute queue's idle time, divided.
std::vector<StageWaits> simulated_waits(const SimulatedStep& step) {
  const auto ranks = step.schedule.programs.size();
  std::vector<RankWaiting> waiting(ranks);
  std::vector<Seconds> busy(ranks);
  for (const Span& span : step.timeline.spans) {
    if (span.queue != Queue::compute) continue;
    busy[static_cast<std::size_t>(span.rank)] += span.end - span.start;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    waiting[rank].waiting = step.timeline.makespan - busy[rank];
  }
  return divide_waiting(
      step.schedule,
      [&](int rank, const Instruction& i) {
        return duration_of(step.costs, step.schedule, rank, i);
      },
      waiting);
}

}  // namespace

TEST_CASE("the light first stage of 70B is imbalance and no bubble of the whole pipeline") {
  const TimePrediction time = time_of(in_four_stages("llama3-70b", {18, 21, 21, 20}));
  REQUIRE(time.stages.size() == 4);
  // Stage 0 has 18 of 21 layers and waited 9.06 of 57.7 s, which was shown as the bubble.
  const StageTime& light = time.stages.front();
  CHECK(share(light.fill_drain + light.imbalance, time) > 0.12);
  CHECK(light.imbalance > 2 * light.fill_drain);
  CHECK(share(time.parts.bubble(), time) < 0.6 * share(light.fill_drain + light.imbalance, time));
  // The slowest stage does not wait for a slower one.
  CHECK(share(std::ranges::min(time.stages, {}, &StageTime::imbalance).imbalance, time) < 0.002);
}

TEST_CASE("the imbalance of 14, 6, 6, 6 layers is the time that 8, 8, 8, 8 save") {
  const TimePrediction even = time_of(in_four_stages("llama2-7b", {8, 8, 8, 8}));
  const TimePrediction uneven = time_of(in_four_stages("llama2-7b", {14, 6, 6, 6}));
  CHECK(uneven.step / even.step > 1.4);
  CHECK(uneven.parts.bubble() > 2 * even.parts.bubble());  // shown were 3.9 % against 14.3 %
  CHECK(uneven.parts.fill_drain.in(1_s) == Approx(even.parts.fill_drain.in(1_s)).epsilon(0.06));
  CHECK((uneven.parts.imbalance - even.parts.imbalance).in(1_s) ==
        Approx((uneven.step - even.step).in(1_s)).epsilon(0.05));
  CHECK(uneven.stages[0].imbalance < 0.01 * uneven.step);
  CHECK(uneven.stages[2].imbalance > 0.3 * uneven.step);
}

TEST_CASE("the parts of every stage sum to the step, and the parts of a step are their means") {
  for (const char* model : {"llama2-7b", "llama3-70b", "gpt2-xl", "mixtral-8x7b"}) {
    for (const int pp : {1, 2, 4, 8}) {
      for (const int vpp : {1, 2}) {
        PlanRequest r = request_for(model, "dgx-h100", 64);
        r.constraints.pin<&ParallelPlan::tp>(2);
        r.constraints.pin<&ParallelPlan::pp>(pp);
        r.constraints.pin<&ParallelPlan::vpp>(vpp);
        const Result<Candidate> c = predict(r);
        if (!c.ok()) continue;
        const TimePrediction& time = c->prediction.time;
        INFO(model << " pp " << pp << " vpp " << vpp);
        REQUIRE(time.stages.size() == static_cast<std::size_t>(pp));
        StageTime mean;
        for (const StageTime& stage : time.stages) {
          CHECK(stage.total() / time.step == Approx(1).epsilon(1e-9));
          for (Seconds StageTime::*part :
               {&StageTime::compute, &StageTime::recompute, &StageTime::communication_wait,
                &StageTime::fill_drain, &StageTime::imbalance, &StageTime::stragglers,
                &StageTime::optimizer, &StageTime::host, &StageTime::data}) {
            CHECK(stage.*part >= Seconds{});
            mean.*part += stage.*part / pp;
          }
        }
        const StageTime parts = stage_time(time.parts);
        CHECK(mean.compute / parts.compute == Approx(1).epsilon(1e-9));
        CHECK(mean.imbalance.in(1_s) == Approx(parts.imbalance.in(1_s)).epsilon(1e-9));
        CHECK(mean.communication_wait.in(1_s) ==
              Approx(parts.communication_wait.in(1_s)).epsilon(1e-9));
        if (pp == 1) CHECK(time.parts.bubble() == Seconds{});
      }
    }
  }
}

TEST_CASE("without a pipeline nothing is a bubble, not even the wait for the slowest node") {
  PlanRequest r = request_for("llama2-7b", "dgx-h100", 32);
  r.constraints.pin<&ParallelPlan::tp>(32);
  r.constraints.pin<&ParallelPlan::pp>(1);
  const TimePrediction time = time_of(r);
  CHECK(r.calibration.straggler_per_doubling > 0);
  CHECK(time.parts.bubble() == Seconds{});
  const StageTime& stage = time.stages.front();
  CHECK(stage.stragglers > Seconds{});
  CHECK(stage.idle() == stage.communication_wait + stage.stragglers);
}

TEST_CASE("equal stages have no imbalance, and of m microbatches (p - 1)/m is fill and drain") {
  PlanRequest r = request_for("gpt3-175b", "dgx-h100", 64);
  r.model.vocab = 128;  // a head of negligible cost
  r.constraints.pin<&ParallelPlan::tp>(1);
  r.constraints.pin<&ParallelPlan::pp>(8);
  r.constraints.pin<&ParallelPlan::vpp>(1);
  const Candidate c = predict(r).value();
  const TimePrediction& time = c.prediction.time;
  const double m = static_cast<double>(c.plan.microbatches_rounded_up(r.job.global_batch));
  for (const StageTime& stage : time.stages) {
    const Seconds work = stage.compute + stage.recompute + stage.host;
    CHECK(stage.fill_drain / work == Approx(7 / m).epsilon(0.05));
    CHECK(share(stage.imbalance, time) < 0.01);
  }
}

TEST_CASE("the simulator's stages wait for the same reasons") {
  for (const std::vector<int>& layers :
       {std::vector{8, 8, 8, 8}, std::vector{14, 6, 6, 6}, std::vector{6, 6, 6, 14}}) {
    PlanRequest r = in_four_stages("llama2-7b", layers);
    const Candidate c = predict(r).value();
    const TimePrediction& closed = c.prediction.time;
    const std::vector<StageWaits> simulated = simulated_waits(simulate_plan(r, c));
    REQUIRE(simulated.size() == 4);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      INFO("layers from " << layers.front() << ", stage " << stage);
      CHECK(share(simulated[stage].fill_drain, closed) ==
            Approx(share(closed.stages[stage].fill_drain, closed)).margin(0.03));
      CHECK(share(simulated[stage].imbalance, closed) ==
            Approx(share(closed.stages[stage].imbalance, closed)).margin(0.06));
    }
  }
}
