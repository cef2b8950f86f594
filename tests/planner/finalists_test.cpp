#include "planner/finalists.hpp"

#include "planner/search.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("equal stages take the same simulated as in closed form") {
  PlanRequest r = request_for("gpt3-175b", "dgx-h100", 64);
  r.model.vocab = 128;  // a head of almost no weight
  r.constraints.tp = 1;
  r.constraints.pp = 8;
  const Candidate c = predict(r).value();
  const Pricer pricer(r.model, r.job, r.cluster, r.stack, r.calibration);
  CHECK(simulated_step(pricer, c.plan, c.prediction) / c.prediction.time.step ==
        Approx(1.0).epsilon(0.01));
}

TEST_CASE("the closed form of uneven 1F1B stages is an upper bound of the simulation") {
  for (const char* model : {"llama3-8b", "70b", "gpt2-xl"}) {
    for (const int pp : {2, 4, 8}) {
      PlanRequest r = request_for(model, "dgx-h100", 64);
      r.constraints.tp = 1;
      r.constraints.pp = pp;
      const Candidate c = predict(r).value();
      const Pricer pricer(r.model, r.job, r.cluster, r.stack, r.calibration);
      const double ratio = simulated_step(pricer, c.plan, c.prediction) / c.prediction.time.step;
      CHECK(ratio <= 1 + 1e-9);
      CHECK(ratio > 0.7);
    }
  }
}

TEST_CASE("every finalist of a search is simulated") {
  const PlanReport report = search(request_for("70b", "dgx-h100", 256)).value();
  REQUIRE(report.candidates.size() == 5);
  for (const Candidate& c : report.candidates) {
    REQUIRE(c.simulated_step);
    CHECK(*c.simulated_step / c.prediction.time.step == Approx(1.0).epsilon(0.1));
  }
}
