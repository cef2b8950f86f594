// Texts about a step's stages, its simulation and the proof.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "report/format.hpp"
#include "report/text/text.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

const TextStyle kStyle{100, false, false};

PlanRequest uneven_7b() {
  PlanRequest r{.model = load_model("7b").value(),
                .job = {},
                .cluster = ClusterTopology::load("dgx-h100", 64).value(),
                .framework = find_framework("megatron-core").value(),
                .calibration = {},
                .constraints = {}};
  r.job.sequence = 4096;
  r.job.global_batch = 1024;
  r.job.precision = find_precision("bf16").value();
  r.calibration = pick_calibration(r.cluster.gpu(), r.framework).value();
  r.constraints.pin<&ParallelPlan::tp>(4);
  r.constraints.pin<&ParallelPlan::pp>(4);
  r.constraints.pin<&ParallelPlan::vpp>(1);
  r.constraints.pin<&ParallelPlan::layers_per_stage>({14, 6, 6, 6});
  return r;
}

SearchOutcome report_with(std::vector<OpenSplits> open) {
  SearchOutcome report;
  report.counts.points = 1000;
  report.counts.fitting = 10;
  report.open_splits = std::move(open);
  return report;
}

}  // namespace

TEST_CASE("a step is reported stage by stage, with imbalance next to fill and drain") {
  const PlanRequest request = uneven_7b();
  const Candidate plan = predict(request).value();
  const std::string text = predict_text(request, plan, kStyle);
  for (const char* part : {"Time of one step, mean of the stages", "stage imbalance",
                           "pipeline fill/drain", "Time of each stage, s", "\n  1-2 "}) {
    CHECK(lacks(text, part) == "");
  }
  CHECK(text.find("bubble") == std::string::npos);
  CHECK(text.find("finishes last") == std::string::npos);
}

TEST_CASE("a step without stages has no table of them") {
  PlanRequest request = uneven_7b();
  request.constraints.pin<&ParallelPlan::pp>(1);
  request.constraints.release<&ParallelPlan::layers_per_stage>();
  const Candidate plan = predict(request).value();
  const std::string text = predict_text(request, plan, kStyle);
  CHECK(lacks(text, "\nTime of one step\n") == "");
  CHECK(text.find("Time of each stage") == std::string::npos);
  CHECK(text.find("event by event") == std::string::npos);
}

TEST_CASE("the closed form stands below the simulated step of a pipeline") {
  const PlanRequest request = uneven_7b();
  Candidate plan = predict(request).value();
  REQUIRE(plan.simulated);
  CHECK(lacks(predict_text(request, plan, kStyle),
              "simulated  event by event; in closed form " +
                  duration(plan.prediction.time.closed_form)) == "");
  plan.simulated = false;
  CHECK(lacks(predict_text(request, plan, kStyle), "simulated  no: too many microbatches") == "");
}

TEST_CASE("a result that rests on assumptions names them and what is proved without them") {
  SearchOutcome report = report_with({});
  report.proved_gap = 0.063;
  const std::string text = proof_of(report);
  CHECK(text.find("Proved") == std::string::npos);
  for (const char* part :
       {"Best of all 1,000 combinations of the searched axes if no simulated step is more than 4 % "
        "shorter than its closed form and the split of layers that is best in closed form is the "
        "best",
        "without these assumptions one up to 6.3 % faster is not ruled out"}) {
    CHECK(lacks(text, part) == "");
  }
}

TEST_CASE("a result is not called proved if its layer partitions were not searched") {
  CHECK(lacks(proof_of(report_with({})), "Proved best of all 1,000 combinations") == "");
  const std::string open = proof_of(
      report_with({{.kind = OpenSplits::Kind::pinned_recompute, .points = 12, .gap = 0.079}}));
  CHECK(open.find("Proved") == std::string::npos);
  for (const char* part :
       {"not proved", "for 12 combinations with pinned numbers of recomputed layers",
        "up to 7.9 % faster"}) {
    CHECK(lacks(open, part) == "");
  }
}
